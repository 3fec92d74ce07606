"""Losses that know which targets count."""

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package='tffpers')
class MaskedCrossEntropy(tf.keras.losses.Loss):
  """Cross-entropy of logits over the targets that are not padding.

  In a federated run each mean is per unmasked target; in `model.fit` it is the mean
  over the batch's unmasked targets.

  Args:
    mask_value: The target id that does not count, by default 0.
    name: Name of the loss.

  >>> loss = MaskedCrossEntropy()
  >>> round(float(loss(tf.constant([[1, 0]]), tf.zeros([1, 2, 4]))), 4)  # ln 4
  1.3863
  """

  def __init__(self, *, mask_value: int = 0, name: str = 'masked_cross_entropy', **kwargs):
    super().__init__(name=name, **kwargs)
    self.mask_value = mask_value

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihoods in nats: ids [b, …] and logits [b, …, classes] to [b, …]."""
    # The mask may be no class at all, such as −1.
    y_true = tf.where(tf.equal(y_true, self.mask_value), tf.zeros_like(y_true), y_true)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, tf.cast(y_pred, tf.float32))

  def weights(self, y_true: tf.Tensor) -> tf.Tensor:
    """1 for each target that counts and 0 for padding, float32."""
    return tf.cast(tf.not_equal(y_true, self.mask_value), tf.float32)

  def __call__(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Mean over the targets that count, scalar; 0 where none does."""
    weights = self.weights(y_true)
    if sample_weight is not None:
      sample_weight = tf.cast(sample_weight, tf.float32)
      extra = weights.shape.rank - sample_weight.shape.rank
      weights *= tf.reshape(sample_weight, tf.concat([tf.shape(sample_weight), [1] * extra], 0))
    return tf.math.divide_no_nan(
      tf.reduce_sum(self.call(y_true, y_pred) * weights), tf.reduce_sum(weights)
    )

  def get_config(self) -> dict[str, object]:
    """Constructor arguments as plain JSON."""
    return {**super().get_config(), 'mask_value': self.mask_value}
