"""Dense layer with a Gaussian posterior over kernel and bias."""

from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers.affine import BayesianAffine
from tffpers.keras.layers.base import validate_size


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianDense(BayesianAffine):
  """`activation(x · kernel + bias)` with Gaussian posteriors over kernel and bias.

  Args:
    units: Width of the output.
    activation: Keras activation; None is linear.
    use_bias: Whether there is a (Bayesian) bias.
    **kwargs: `estimator` and initializers, see `BayesianAffine`; see also `BayesianLayer`.

  Inputs [..., features] give outputs [..., units] in the policy's compute dtype;
  `lateral` [..., units] is added before the activation. In float16 the variance is
  computed in float32, as x²·σ² leaves float16's range.

  Raises:
    ValueError: `units` is not a positive integer or `estimator` is unknown.

  >>> layer = BayesianDense(3, activation="relu", kl_weight=1e-3)
  >>> layer(tf.ones([2, 5]), training=True).shape
  TensorShape([2, 3])
  """

  def __init__(self, units: int, activation: Any = None, use_bias: bool = True, **kwargs):
    super().__init__(activation=activation, use_bias=use_bias, **kwargs)
    self.units = validate_size('units', units)

  def build(self, input_shape: Any) -> None:
    features = input_shape[-1]
    if features is None:
      raise ValueError(f'{self.name}: the last dimension must be known. Received: {input_shape}')
    self.add_weights((features, self.units))
    super().build(input_shape)

  def linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.matmul(inputs, kernel)

  def call(
    self,
    inputs: tf.Tensor,
    training: bool | None = None,
    lateral: tf.Tensor | None = None,
  ) -> tf.Tensor:
    if inputs.shape.rank == 2:
      return super().call(inputs, training, lateral)
    rows = tf.reshape(inputs, [-1, self.kernel.shape[0]])
    if lateral is not None:
      lateral = tf.reshape(lateral, [-1, self.units])
    outputs = super().call(rows, training, lateral)
    outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], axis=0))
    return tf.ensure_shape(outputs, self.compute_output_shape(inputs.shape))

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    return (*tuple(input_shape)[:-1], self.units)

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {'units': self.units}
