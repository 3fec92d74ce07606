"""Two-dimensional convolution with a Gaussian posterior over kernel and bias."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers.affine import BayesianAffine
from tffpers.keras.layers.base import validate_size


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianConv2D(BayesianAffine):
  """`activation(x ∗ kernel + bias)` with Gaussian posteriors over kernel and bias.

  With local reparametrisation each output at each position has noise of its own:
  means and variances are exact, correlations between positions are left out. The
  other estimators draw one kernel, or one up to signs, for all positions.

  Args:
    filters: Number of output channels.
    kernel_size: Height and width of the kernel, or one integer for both.
    strides: Step along height and width, or one integer for both.
    padding: "valid" or "same".
    activation: Keras activation; None is linear.
    use_bias: Whether there is a (Bayesian) bias.
    **kwargs: `estimator` and initializers, see `BayesianAffine`; see also `BayesianLayer`.

  Inputs [batch, height, width, channels] give outputs [batch, height', width', filters]
  in the policy's compute dtype; `lateral`, of the outputs' shape, is added before the
  activation.

  Raises:
    ValueError: A size is not a positive integer, `padding` or `estimator` is unknown.

  >>> layer = BayesianConv2D(6, 3, padding="same", activation="relu")
  >>> layer(tf.ones([2, 8, 8, 3]), training=True).shape
  TensorShape([2, 8, 8, 6])
  """

  def __init__(
    self,
    filters: int,
    kernel_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: str = 'valid',
    activation: Any = None,
    use_bias: bool = True,
    **kwargs,
  ):
    super().__init__(activation=activation, use_bias=use_bias, **kwargs)
    self.filters = validate_size('filters', filters)
    self.kernel_size = _validate_pair('kernel_size', kernel_size)
    self.strides = _validate_pair('strides', strides)
    if padding not in ('valid', 'same'):
      raise ValueError(f"padding must be 'valid' or 'same'. Received: padding={padding!r}")
    self.padding = padding

  def build(self, input_shape: Any) -> None:
    if len(input_shape) != 4 or input_shape[-1] is None:
      raise ValueError(
        f'{self.name}: inputs must be [batch, height, width, channels] with known channels. '
        f'Received: {tuple(input_shape)}'
      )
    self.add_weights((*self.kernel_size, input_shape[-1], self.filters))
    super().build(input_shape)

  def linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    outputs = tf.nn.conv2d(inputs, kernel, self.strides, self.padding.upper())
    if inputs.shape[0]:
      return outputs
    # TensorFlow's oneDNN kernel gives an empty batch the shape of the inputs.
    batch, *sizes, _ = tf.unstack(tf.shape(inputs))
    sizes = map(self._output_size, sizes, self.kernel_size, self.strides)
    outputs = tf.reshape(outputs, [batch, *sizes, self.filters])
    return tf.ensure_shape(outputs, self.compute_output_shape(inputs.shape))

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    batch, *sizes, _ = tuple(input_shape)
    return (batch, *map(self._output_size, sizes, self.kernel_size, self.strides), self.filters)

  def _output_size(self, size: Any, kernel: int, stride: int) -> Any:
    if size is None:
      return None
    return -(-(size if self.padding == 'same' else size - kernel + 1) // stride)

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'filters': self.filters,
      'kernel_size': list(self.kernel_size),
      'strides': list(self.strides),
      'padding': self.padding,
    }


def _validate_pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
  pair = tuple(value) if isinstance(value, Sequence) else (value, value)
  if len(pair) != 2:
    raise ValueError(f'{name} must be an integer or a pair of them. Received: {name}={value!r}')
  return validate_size(name, pair[0]), validate_size(name, pair[1])
