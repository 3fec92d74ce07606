"""Dense layer with a Gaussian posterior over kernel and bias."""

from typing import Any

import tensorflow as tf

from tffpers.keras import noise
from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer, validate_size

_ESTIMATORS = ('local_reparameterization', 'reparameterization', 'flipout')


@tf.custom_gradient
def add_noise(mean: tf.Tensor, variance: tf.Tensor, noise_: tf.Tensor):
  """mean + sqrt(variance) · noise, with a gradient that is 0 where the variance is 0.

  The square root's own gradient is infinite there, which an all-zero input row
  without a bias reaches.
  """
  scale = tf.sqrt(variance)

  def gradient(upstream):
    slope = tf.math.divide_no_nan(tf.constant(0.5, scale.dtype), scale)
    noisy = tf.cast(upstream * noise_, scale.dtype)
    return upstream, noisy * slope, None

  return mean + tf.cast(scale, mean.dtype) * noise_, gradient


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianDense(BayesianLayer):
  """`activation(x · kernel + bias)` with Gaussian posteriors over kernel and bias.

  Args:
    units: Width of the output.
    activation: Keras activation; None is linear.
    use_bias: Whether there is a (Bayesian) bias.
    estimator: How a sampling call draws. "local_reparameterization" samples each
      output of each row from its exact Gaussian (Kingma, Salimans, Welling, arXiv
      1506.02557): least variance. "reparameterization" draws one weight for the whole
      batch. "flipout" multiplies one draw by random signs per row (Wen et al., arXiv
      1803.04386). All have the same mean and the same variance per output.
    kernel_initializer: Keras initializer of the kernel's means.
    bias_initializer: Keras initializer of the bias' means.
    **kwargs: See `BayesianLayer`.

  Inputs [..., features] give outputs [..., units] in the policy's compute dtype. In
  float16 the variance is computed in float32, as x²·σ² leaves float16's range.

  Raises:
    ValueError: `units` is not a positive integer or `estimator` is unknown.

  >>> layer = BayesianDense(3, activation="relu", kl_weight=1e-3)
  >>> layer(tf.ones([2, 5]), training=True).shape
  TensorShape([2, 3])
  """

  def __init__(
    self,
    units: int,
    activation: Any = None,
    use_bias: bool = True,
    estimator: str = 'local_reparameterization',
    kernel_initializer: Any = 'glorot_uniform',
    bias_initializer: Any = 'zeros',
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.units = validate_size('units', units)
    if estimator not in _ESTIMATORS:
      raise ValueError(f'estimator must be one of {_ESTIMATORS}. Received: estimator={estimator!r}')
    self.activation = keras.activations.get(activation)
    self.use_bias = bool(use_bias)
    self.estimator = estimator
    self.kernel_initializer = keras.initializers.get(kernel_initializer)
    self.bias_initializer = keras.initializers.get(bias_initializer)

  def build(self, input_shape: Any) -> None:
    features = input_shape[-1]
    if features is None:
      raise ValueError(f'{self.name}: the last dimension must be known. Received: {input_shape}')
    shape = (features, self.units)
    self.kernel = self.add_gaussian_weight('kernel', shape, self.kernel_initializer)
    self.bias = None
    if self.use_bias:
      self.bias = self.add_gaussian_weight('bias', shape[1:], self.bias_initializer)
    super().build(input_shape)

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    rows = inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, self.kernel.shape[0]])
    outputs = self.activation(self._affine(rows, training))
    if inputs.shape.rank == 2:
      return outputs
    outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], axis=0))
    return tf.ensure_shape(outputs, self.compute_output_shape(inputs.shape))

  def _affine(self, rows: tf.Tensor, training: bool | None) -> tf.Tensor:
    if not self.is_sampling(training):
      bias = None if self.bias is None else self.bias.mean(rows.dtype)
      return _affine(rows, self.kernel.mean(rows.dtype), bias)
    return getattr(self, f'_{self.estimator}')(rows)

  def _local_reparameterization(self, rows: tf.Tensor) -> tf.Tensor:
    (seed,) = self.draw_seeds(1)
    kernel, bias = self.kernel, self.bias
    dtype = rows.dtype
    wide = tf.float32 if dtype == tf.float16 else dtype
    mean = tf.matmul(rows, kernel.mean(dtype))
    variance = tf.matmul(tf.square(tf.cast(rows, wide)), kernel.variance(wide))
    if bias is not None:
      variance = tf.nn.bias_add(variance, bias.variance(wide))
    outputs = add_noise(mean, variance, noise.normal(tf.shape(mean), seed, dtype))
    # The bias comes last: TensorFlow's optimizer breaks on product, bias, sum, activation.
    return outputs if bias is None else tf.nn.bias_add(outputs, bias.mean(dtype))

  def _reparameterization(self, rows: tf.Tensor) -> tf.Tensor:
    seed, bias_seed = self.draw_seeds(2)
    bias = None if self.bias is None else self.bias.sample(bias_seed, rows.dtype)
    return _affine(rows, self.kernel.sample(seed, rows.dtype), bias)

  def _flipout(self, rows: tf.Tensor) -> tf.Tensor:
    seed, bias_seed, in_seed, out_seed = self.draw_seeds(4)
    dtype = rows.dtype
    mean = _affine(rows, self.kernel.mean(dtype), None)
    flipped = rows * noise.signs(tf.shape(rows), in_seed, dtype)
    noisy = tf.matmul(flipped, self.kernel.perturbation(seed, dtype))
    out_signs = noise.signs(tf.shape(mean), out_seed, dtype)
    if self.bias is None:
      return mean + noisy * out_signs
    noisy += self.bias.perturbation(bias_seed, dtype)
    return mean + self.bias.mean(dtype) + noisy * out_signs

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    return (*tuple(input_shape)[:-1], self.units)

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'units': self.units,
      'activation': keras.activations.serialize(self.activation),
      'use_bias': self.use_bias,
      'estimator': self.estimator,
      'kernel_initializer': keras.initializers.serialize(self.kernel_initializer),
      'bias_initializer': keras.initializers.serialize(self.bias_initializer),
    }


def _affine(rows: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
  outputs = tf.matmul(rows, kernel)
  return outputs if bias is None else tf.nn.bias_add(outputs, bias)
