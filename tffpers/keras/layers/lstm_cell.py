"""One step of an LSTM with Gaussian posteriors over its weights."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer, validate_size
from tffpers.keras.layers.gaussian import GaussianWeight

# A seed travels through the state as its 8 bytes, because Keras 3 casts states to the
# compute dtype and every float type holds 0..255 exactly.
_SEED_BYTES = 8

Activation = Callable[[tf.Tensor], tf.Tensor]


class BayesianLSTMWeights(BayesianLayer):
  """Weights and settings that the cell and the layer have in common.

  Args:
    units: Width of output and state.
    activation: Keras activation of candidate and output.
    recurrent_activation: Keras activation of the gates.
    use_bias: Whether there is a (Bayesian) bias.
    kernel_initializer: Keras initializer of the input kernel's means.
    recurrent_initializer: Keras initializer of the recurrent kernel's means.
    bias_initializer: Keras initializer of the bias' means.
    unit_forget_bias: Start the forget gate's bias at one.
    **kwargs: See `BayesianLayer`.

  Raises:
    ValueError: `units` is not a positive integer.
  """

  def __init__(
    self,
    units: int,
    activation: Any = 'tanh',
    recurrent_activation: Any = 'sigmoid',
    use_bias: bool = True,
    kernel_initializer: Any = 'glorot_uniform',
    recurrent_initializer: Any = 'orthogonal',
    bias_initializer: Any = 'zeros',
    unit_forget_bias: bool = True,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.units = validate_size('units', units)
    self.activation = keras.activations.get(activation)
    self.recurrent_activation = keras.activations.get(recurrent_activation)
    self.use_bias = bool(use_bias)
    self.kernel_initializer = keras.initializers.get(kernel_initializer)
    self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
    self.bias_initializer = keras.initializers.get(bias_initializer)
    self.unit_forget_bias = bool(unit_forget_bias)

  def build(self, input_shape: Any) -> None:
    features = input_shape[-1]
    if features is None:
      raise ValueError(f'{self.name}: the last dimension must be known. Received: {input_shape}')
    width = 4 * self.units
    self.kernel = self.add_gaussian_weight('kernel', (features, width), self.kernel_initializer)
    self.recurrent_kernel = self.add_gaussian_weight(
      'recurrent_kernel', (self.units, width), self.recurrent_initializer
    )
    self.bias = None
    if self.use_bias:
      self.bias = self.add_gaussian_weight('bias', (width,), self._initial_bias)
    super().build(input_shape)

  def _initial_bias(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
    if not self.unit_forget_bias:
      return self.bias_initializer(shape, dtype=dtype)
    gate = (self.units,)
    start = self.bias_initializer(gate, dtype=dtype)
    rest = self.bias_initializer((2 * self.units,), dtype=dtype)
    return tf.concat([start, tf.ones(gate, start.dtype), rest], axis=0)

  def draw_weights(
    self, seeds: Sequence[tf.Tensor] | None
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Kernel, recurrent kernel and bias in the compute dtype.

    Args:
      seeds: Three seeds [2] to sample with; None gives the posterior means.
    """
    dtype = tf.as_dtype(self.compute_dtype)

    def draw(weight: GaussianWeight, number: int) -> tf.Tensor:
      return weight.mean(dtype) if seeds is None else weight.sample(seeds[number], dtype)

    bias = None if self.bias is None else draw(self.bias, 2)
    return draw(self.kernel, 0), draw(self.recurrent_kernel, 1), bias

  def get_config(self) -> dict[str, Any]:
    serialize = keras.initializers.serialize
    return super().get_config() | {
      'units': self.units,
      'activation': keras.activations.serialize(self.activation),
      'recurrent_activation': keras.activations.serialize(self.recurrent_activation),
      'use_bias': self.use_bias,
      'kernel_initializer': serialize(self.kernel_initializer),
      'recurrent_initializer': serialize(self.recurrent_initializer),
      'bias_initializer': serialize(self.bias_initializer),
      'unit_forget_bias': self.unit_forget_bias,
    }


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianLSTMCell(BayesianLSTMWeights):
  """LSTM cell for `keras.layers.RNN` that uses one weight sample per sequence batch.

  The state is [h, c, seed]: the seed of the sample travels with the sequence and the
  sample is drawn again at every step, so nothing is cached on the layer. `BayesianLSTM`
  draws once and is faster. Gates are in Keras' order i, f, c, o.

  Arguments and errors are those of `BayesianLSTMWeights`.

  >>> layer = keras.layers.RNN(BayesianLSTMCell(4))
  >>> layer(tf.ones([2, 7, 3]), training=True).shape
  TensorShape([2, 4])
  """

  @property
  def state_size(self) -> list[int]:
    """Widths of h, c and the seed."""
    return [self.units, self.units, _SEED_BYTES]

  @property
  def output_size(self) -> int:
    """Width of the output."""
    return self.units

  def get_initial_state(
    self, inputs: tf.Tensor | None = None, batch_size: Any = None, dtype: Any = None
  ) -> list[tf.Tensor]:
    """Zero h and c [batch, units] and a newly drawn seed [batch, 8]."""
    if inputs is not None:
      batch_size = tf.shape(inputs)[0]
    zeros = tf.zeros([batch_size, self.units], self.compute_dtype)
    (seed,) = self.draw_seeds(1)
    coded = tf.cast(tf.bitcast(tf.cast(seed, tf.int32), tf.uint8), self.compute_dtype)
    return [zeros, zeros, tf.tile(tf.reshape(coded, [1, -1]), [batch_size, 1])]

  def call(
    self, inputs: tf.Tensor, states: Sequence[tf.Tensor], training: bool | None = None
  ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    h, c, coded = states
    seeds = _sequence_seeds(coded) if self.is_sampling(training) else None
    kernel, recurrent_kernel, bias = self.draw_weights(seeds)
    projected = tf.matmul(inputs, kernel)
    if bias is not None:
      projected = tf.nn.bias_add(projected, bias)
    h, c = lstm_step(projected, h, c, recurrent_kernel, self.activation, self.recurrent_activation)
    return h, [h, c, coded]


# Keras 2 looks a cell up by its bare name when it loads an RNN from .h5.
keras.utils.get_custom_objects()['BayesianLSTMCell'] = BayesianLSTMCell


def lstm_step(
  projected: tf.Tensor,
  h: tf.Tensor,
  c: tf.Tensor,
  recurrent_kernel: tf.Tensor,
  activation: Activation,
  recurrent_activation: Activation,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Next h and c [batch, units] from x · kernel + bias [batch, 4 units], gates i, f, c, o."""
  gates = projected + tf.matmul(h, recurrent_kernel)
  i, f, candidate, o = tf.split(gates, 4, axis=1)
  c = recurrent_activation(f) * c + recurrent_activation(i) * activation(candidate)
  return recurrent_activation(o) * activation(c), c


def _sequence_seeds(coded: tf.Tensor) -> list[tf.Tensor]:
  """Three seeds [2] from the state's seed [batch, 8]; all rows are equal."""
  # A maximum rather than row 0: it exists for a batch of no rows, too.
  row = tf.cast(tf.reduce_max(coded, axis=0), tf.uint8)
  seed = tf.bitcast(tf.reshape(row, [2, _SEED_BYTES // 2]), tf.int32)
  return [tf.random.fold_in(seed, number, alg='philox') for number in range(3)]
