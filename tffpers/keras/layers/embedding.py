"""Embedding with a Gaussian posterior over the table."""

from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras, not_equal
from tffpers.keras.layers.base import BayesianLayer, validate_size


@keras.utils.register_keras_serializable(package='tffpers')
class BayesianEmbedding(BayesianLayer):
  """Rows of a table with Gaussian posteriors, looked up by integer id.

  A sampling call draws the whole table once, so an id that occurs several times in
  a batch has one vector. That costs input_dim · output_dim normal numbers per call.

  Args:
    input_dim: Number of rows; ids lie in [0, input_dim). On a CPU another id raises
      `tf.errors.InvalidArgumentError`; XLA and GPUs do not check.
    output_dim: Width of a row.
    mask_zero: Whether id 0 is padding that later layers skip.
    embeddings_initializer: Keras initializer of the table's means.
    **kwargs: See `BayesianLayer`.

  Ids of any shape give outputs [..., output_dim] in the policy's compute dtype, to
  which `lateral` of the same shape is added.

  Raises:
    ValueError: A dimension is not a positive integer.

  >>> BayesianEmbedding(87, 8)(tf.constant([[1, 5, 0]])).shape
  TensorShape([1, 3, 8])
  """

  def __init__(
    self,
    input_dim: int,
    output_dim: int,
    mask_zero: bool = False,
    embeddings_initializer: Any = 'uniform',
    **kwargs,
  ):
    # Ids must not pass through a half-precision compute dtype.
    super().__init__(autocast=False, **kwargs)
    self.input_dim = validate_size('input_dim', input_dim)
    self.output_dim = validate_size('output_dim', output_dim)
    self.mask_zero = bool(mask_zero)
    self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

  def build(self, input_shape: Any) -> None:
    shape = (self.input_dim, self.output_dim)
    self.embeddings = self.add_gaussian_weight('embeddings', shape, self.embeddings_initializer)
    super().build(input_shape)

  def call(
    self,
    inputs: tf.Tensor,
    training: bool | None = None,
    lateral: tf.Tensor | None = None,
  ) -> tf.Tensor:
    rows = self._rows(inputs if inputs.dtype.is_integer else tf.cast(inputs, tf.int32), training)
    return rows if lateral is None else rows + lateral

  def _rows(self, ids: tf.Tensor, training: bool | None) -> tf.Tensor:
    if not self.is_sampling(training):
      return tf.cast(tf.gather(tf.convert_to_tensor(self.embeddings.loc), ids), self.compute_dtype)
    (seed,) = self.draw_seeds(1)
    return tf.gather(self.embeddings.sample(seed, tf.as_dtype(self.compute_dtype)), ids)

  def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor | None:
    return not_equal(inputs, 0) if self.mask_zero else None

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    return (*tuple(input_shape), self.output_dim)

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'input_dim': self.input_dim,
      'output_dim': self.output_dim,
      'mask_zero': self.mask_zero,
      'embeddings_initializer': keras.initializers.serialize(self.embeddings_initializer),
    }
