"""LSTM layer with Gaussian posteriors over its weights, one sample per sequence batch."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers.lstm_cell import BayesianLSTMWeights, lstm_step


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianLSTM(BayesianLSTMWeights):
  """LSTM whose sampling call draws its weights once and uses them at every step.

  With the posterior mean it computes what `keras.layers.LSTM` does with the same
  weights (gates i, f, c, o). The input projection of all steps is one product. A masked
  step carries state and output on, on either side of the sequence; a row that is masked
  throughout returns the initial state.

  Args:
    units: Width of output and state.
    return_sequences: Return the output of every step instead of the last one's.
    return_state: Also return the last h and c.
    go_backwards: Run from the last step to the first; outputs come in that order.
    unroll: True unrolls the recurrence and needs a statically known length. False uses
      `tf.while_loop`. None unrolls where the length is known, which runs faster
      and takes longer to trace.
    stateful: Not supported; only False is accepted.
    **kwargs: See `BayesianLSTMWeights` and `BayesianLayer`.

  Inputs are [batch, time, features]; `mask` is bool [batch, time]; `initial_state` is
  [h, c], each [batch, units]. Outputs are [batch, units] or [batch, time, units] in
  the policy's compute dtype. `lateral`, of the outputs' shape, is added to them after
  the recurrence and does not enter the state.

  Raises:
    ValueError: `stateful`, or `unroll=True` at an unknown length.

  >>> BayesianLSTM(4, return_sequences=True)(tf.ones([2, 7, 3]), training=True).shape
  TensorShape([2, 7, 4])
  """

  def __init__(
    self,
    units: int,
    *,
    return_sequences: bool = False,
    return_state: bool = False,
    go_backwards: bool = False,
    unroll: bool | None = None,
    stateful: bool = False,
    **kwargs,
  ):
    super().__init__(units, **kwargs)
    if stateful:
      raise ValueError(
        "BayesianLSTM keeps no state between batches, as it would carry one client's state to "
        'the next: pass initial_state to call instead. Received: stateful=True'
      )
    self.return_sequences = bool(return_sequences)
    self.return_state = bool(return_state)
    self.go_backwards = bool(go_backwards)
    self.unroll = unroll

  def call(
    self,
    inputs: tf.Tensor,
    mask: tf.Tensor | None = None,
    training: bool | None = None,
    initial_state: Sequence[tf.Tensor] | None = None,
    lateral: tf.Tensor | None = None,
  ) -> tf.Tensor | list[tf.Tensor]:
    seeds = self.draw_seeds(3) if self.is_sampling(training) else None
    kernel, recurrent_kernel, bias = self.draw_weights(seeds)
    steps = self._time_major(inputs)
    projected = tf.matmul(tf.reshape(steps, [-1, self.kernel.shape[0]]), kernel)
    if bias is not None:
      projected = tf.nn.bias_add(projected, bias)
    shape = tf.concat([tf.shape(steps)[:2], [4 * self.units]], axis=0)
    projected = tf.ensure_shape(tf.reshape(projected, shape), (*steps.shape[:2], 4 * self.units))
    state = self._initial_state(inputs, initial_state)
    mask = None if mask is None else self._time_major(tf.cast(mask, tf.bool)[..., tf.newaxis])
    outputs, h, c = self._run(projected, state, mask, recurrent_kernel)
    result = tf.transpose(outputs, [1, 0, 2]) if self.return_sequences else h
    result = result if lateral is None else result + lateral
    return [result, h, c] if self.return_state else result

  def _time_major(self, tensor: tf.Tensor) -> tf.Tensor:
    tensor = tf.transpose(tensor, [1, 0, 2])
    return tf.reverse(tensor, [0]) if self.go_backwards else tensor

  def _initial_state(self, inputs, initial_state) -> tuple[tf.Tensor, tf.Tensor]:
    if initial_state is not None:
      h, c = initial_state
      return tf.cast(h, self.compute_dtype), tf.cast(c, self.compute_dtype)
    zeros = tf.zeros([tf.shape(inputs)[0], self.units], self.compute_dtype)
    zeros = tf.ensure_shape(zeros, (inputs.shape[0], self.units))
    return zeros, zeros

  def _run(self, projected, state, mask, recurrent_kernel):
    def step(projected_t, mask_t, h, c):
      new_h, new_c = lstm_step(
        projected_t, h, c, recurrent_kernel, self.activation, self.recurrent_activation
      )
      if mask_t is None:
        return new_h, new_c
      return tf.where(mask_t, new_h, h), tf.where(mask_t, new_c, c)

    length = projected.shape[0]
    if self.unroll and length is None:
      raise ValueError(f'{self.name}: unroll=True needs a known length. Received: length=None')
    if length is None or self.unroll is False:
      return _looped(step, projected, mask, *state)
    return _unrolled(step, projected, mask, *state)

  def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> Any:
    output_mask = mask if self.return_sequences else None
    return [output_mask, None, None] if self.return_state else output_mask

  def compute_output_shape(self, inputs_shape: Any, initial_state_shape: Any = None) -> Any:
    batch, time = inputs_shape[0], inputs_shape[1]
    state = (batch, self.units)
    outputs = (batch, time, self.units) if self.return_sequences else state
    return [outputs, state, state] if self.return_state else outputs

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'return_sequences': self.return_sequences,
      'return_state': self.return_state,
      'go_backwards': self.go_backwards,
      'unroll': self.unroll,
    }


def _unrolled(step, projected, mask, h, c):
  masks = [None] * projected.shape[0] if mask is None else tf.unstack(mask)
  outputs = []
  for projected_t, mask_t in zip(tf.unstack(projected), masks, strict=True):
    h, c = step(projected_t, mask_t, h, c)
    outputs.append(h)
  return tf.stack(outputs), h, c


def _looped(step, projected, mask, h, c):
  length = tf.shape(projected)[0]

  def body(time, outputs, h, c):
    h, c = step(projected[time], None if mask is None else mask[time], h, c)
    return time + 1, outputs.write(time, h), h, c

  outputs = tf.TensorArray(h.dtype, size=length, element_shape=h.shape)
  _, outputs, h, c = tf.while_loop(
    lambda time, *_: time < length,
    body,
    (tf.constant(0), outputs, h, c),
    maximum_iterations=length,
  )
  return tf.ensure_shape(outputs.stack(), (projected.shape[0], *h.shape)), h, c
