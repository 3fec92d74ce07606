"""What Bayesian dense and convolutional layers have in common: a linear map and a bias."""

from typing import Any

import tensorflow as tf

from tffpers.keras import noise
from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer

ESTIMATORS = ('local_reparameterization', 'reparameterization', 'flipout')


@tf.custom_gradient
def add_noise(mean: tf.Tensor, variance: tf.Tensor, noise_: tf.Tensor):
  """mean + sqrt(variance) · noise, with a gradient that is 0 where the variance is 0.

  The square root's own gradient is infinite there, which an all-zero input
  without a bias reaches.
  """
  scale = tf.sqrt(variance)

  def gradient(upstream):
    slope = tf.math.divide_no_nan(tf.constant(0.5, scale.dtype), scale)
    noisy = tf.cast(upstream * noise_, scale.dtype)
    return upstream, noisy * slope, None

  return mean + tf.cast(scale, mean.dtype) * noise_, gradient


class BayesianAffine(BayesianLayer):
  """`activation(linear(x, kernel) + lateral + bias)` with posteriors over kernel and bias.

  A subclass calls `add_weights` in `build` and says in `linear` how a kernel acts.

  Args:
    activation: Keras activation; None is linear.
    use_bias: Whether there is a (Bayesian) bias.
    estimator: How a sampling call draws. "local_reparameterization" samples each
      output from its exact Gaussian (Kingma, Salimans, Welling, arXiv 1506.02557):
      least variance. "reparameterization" draws one weight for the whole batch.
      "flipout" multiplies one draw by random signs per example and channel (Wen et
      al., arXiv 1803.04386). All have the same mean and variance per output.
    kernel_initializer: Keras initializer of the kernel's means.
    bias_initializer: Keras initializer of the bias' means.
    **kwargs: See `BayesianLayer`.

  Raises:
    ValueError: `estimator` is unknown.
  """

  def __init__(
    self,
    *,
    activation: Any = None,
    use_bias: bool = True,
    estimator: str = 'local_reparameterization',
    kernel_initializer: Any = 'glorot_uniform',
    bias_initializer: Any = 'zeros',
    **kwargs,
  ):
    super().__init__(**kwargs)
    if estimator not in ESTIMATORS:
      raise ValueError(f'estimator must be one of {ESTIMATORS}. Received: estimator={estimator!r}')
    self.activation = keras.activations.get(activation)
    self.use_bias = bool(use_bias)
    self.estimator = estimator
    self.kernel_initializer = keras.initializers.get(kernel_initializer)
    self.bias_initializer = keras.initializers.get(bias_initializer)

  def linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """The linear map; linear in the inputs and in the kernel, and of the same form for squares."""
    raise NotImplementedError

  def add_weights(self, shape: tuple[int, ...]) -> None:
    """Adds a kernel of `shape` and a bias for its last axis."""
    self.kernel = self.add_gaussian_weight('kernel', shape, self.kernel_initializer)
    self.bias = None
    if self.use_bias:
      self.bias = self.add_gaussian_weight('bias', shape[-1:], self.bias_initializer)

  def call(
    self,
    inputs: tf.Tensor,
    training: bool | None = None,
    lateral: tf.Tensor | None = None,
  ) -> tf.Tensor:
    estimate = getattr(self, f'_{self.estimator if self.is_sampling(training) else "mean"}')
    outputs, bias = estimate(inputs)
    if lateral is not None:
      outputs += lateral
    # The bias comes last: TensorFlow's optimizer breaks on product, bias, sum, activation.
    return self.activation(outputs if bias is None else tf.nn.bias_add(outputs, bias))

  # Each estimator returns the product without the bias, and the bias to add or None.

  def _mean(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    return self.linear(inputs, self.kernel.mean(inputs.dtype)), self._mean_bias(inputs)

  def _local_reparameterization(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    (seed,) = self.draw_seeds(1)
    dtype = inputs.dtype
    wide = tf.float32 if dtype == tf.float16 else dtype
    mean = self.linear(inputs, self.kernel.mean(dtype))
    variance = self.linear(tf.square(tf.cast(inputs, wide)), self.kernel.variance(wide))
    if self.bias is not None:
      variance = tf.nn.bias_add(variance, self.bias.variance(wide))
    noisy = add_noise(mean, variance, noise.normal(tf.shape(mean), seed, dtype))
    return noisy, self._mean_bias(inputs)

  def _reparameterization(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    seed, bias_seed = self.draw_seeds(2)
    bias = None if self.bias is None else self.bias.sample(bias_seed, inputs.dtype)
    return self.linear(inputs, self.kernel.sample(seed, inputs.dtype)), bias

  def _flipout(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    seed, bias_seed, in_seed, out_seed = self.draw_seeds(4)
    dtype = inputs.dtype
    mean = self.linear(inputs, self.kernel.mean(dtype))
    flipped = inputs * noise.signs(_per_channel(inputs), in_seed, dtype)
    noisy = self.linear(flipped, self.kernel.perturbation(seed, dtype))
    if self.bias is not None:
      noisy += self.bias.perturbation(bias_seed, dtype)
    out_signs = noise.signs(_per_channel(mean), out_seed, dtype)
    return mean + noisy * out_signs, self._mean_bias(inputs)

  def _mean_bias(self, inputs: tf.Tensor) -> tf.Tensor | None:
    return None if self.bias is None else self.bias.mean(inputs.dtype)

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'activation': keras.activations.serialize(self.activation),
      'use_bias': self.use_bias,
      'estimator': self.estimator,
      'kernel_initializer': keras.initializers.serialize(self.kernel_initializer),
      'bias_initializer': keras.initializers.serialize(self.bias_initializer),
    }


def _per_channel(tensor: tf.Tensor) -> tf.Tensor:
  """Shape [batch, 1, …, 1, channels] that broadcasts to the tensor."""
  shape, ones = tf.shape(tensor), tf.ones([tensor.shape.rank - 2], tf.int32)
  return tf.concat([shape[:1], ones, shape[-1:]], axis=0)
