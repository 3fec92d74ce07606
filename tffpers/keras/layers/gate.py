"""The gate through which a private path enters a shared one."""

from typing import Any

import tensorflow as tf

from tffpers.keras.backend import NO_AUTOCAST, keras


@keras.utils.register_keras_serializable(package='tffpers')
class Gate(keras.layers.Layer):
  """g ⊙ x with one deterministic number g ≥ 0 per unit of the last axis.

  Gates start at U(0, 0.1) (VIRTUAL, arXiv 1906.06268). Keras optimizers keep them
  non-negative; other training code calls `tffpers.keras.project_gates`.

  Inputs [..., units] give outputs of the same shape in the policy's compute dtype.

  >>> Gate()(tf.ones([2, 5, 3])).shape
  TensorShape([2, 5, 3])
  """

  def build(self, input_shape: Any) -> None:
    self.gate = self.add_weight(
      name='gate',
      shape=(input_shape[-1],),
      # In the variables' dtype under mixed policies, like every trainable weight here.
      dtype='float64' if self.variable_dtype == 'float64' else 'float32',
      initializer=keras.initializers.RandomUniform(0.0, 0.1),
      constraint=keras.constraints.NonNeg(),
      trainable=True,
      **NO_AUTOCAST,
    )
    self.supports_masking = True
    self.built = True

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(self.gate), inputs.dtype) * inputs

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    return tuple(input_shape)
