"""How far a classifier's probabilities can be trusted, as Keras metrics on logits."""

from typing import Any

import tensorflow as tf

from tffpers.keras.backend import keras


def predictive_entropy(y_true: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Entropy of the predicted distribution of each target, in nats.

  Args:
    y_true: Targets; not used, so that this serves as a metric.
    logits: Floats [..., classes].

  Returns:
    float32 [...].
  """
  del y_true
  log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
  # exp(-inf) * -inf is NaN; a class of probability 0 adds nothing.
  terms = tf.math.multiply_no_nan(log_probabilities, tf.exp(log_probabilities))
  return -tf.reduce_sum(terms, -1)


class NegativeLogLikelihood(keras.metrics.Mean):
  """Mean −ln p(y | x) of integer targets under softmax(logits), in nats."""

  def __init__(self, name: str = 'nll', **kwargs):
    super().__init__(name=name, **kwargs)

  def update_state(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
  ) -> Any:
    """Adds targets [...] with logits [..., classes] and optional weights [...]."""
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.cast(y_true, tf.int32), tf.cast(y_pred, tf.float32)
    )
    return super().update_state(loss, sample_weight)


class ExpectedCalibrationError(keras.metrics.Metric):
  """Σ_b n_b/N |accuracy_b − confidence_b| over equal bins b of the confidence.

  The confidence is the largest class probability. With few targets the error is
  biased upwards: pool the targets where one number for a model is wanted. Source: Guo,
  Pleiss, Sun, Weinberger, *On Calibration of Modern Neural Networks*, ICML 2017, arXiv
  1706.04599, equation 3.

  Args:
    num_bins: Number of bins M.
    name: Name of the metric.

  >>> ece = ExpectedCalibrationError()
  >>> ece.update_state([0, 1], tf.math.log([[0.8, 0.2], [0.8, 0.2]]))
  >>> round(float(ece.result()), 6)  # confidence 0.8, accuracy 0.5
  0.3
  """

  def __init__(self, *, num_bins: int = 15, name: str = 'ece', **kwargs):
    super().__init__(name=name, **kwargs)
    if num_bins < 1:
      raise ValueError(f'num_bins must be at least 1. Received: num_bins={num_bins}')
    self.num_bins = num_bins
    self._weight, self._confidence, self._correct = (
      self.add_weight(name=part, shape=(num_bins,), initializer='zeros')
      for part in ('weight', 'confidence', 'correct')
    )

  def update_state(
    self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
  ) -> None:
    """Adds integer targets [...] with logits [..., classes] and optional weights [...]."""
    probabilities = tf.nn.softmax(tf.cast(y_pred, tf.float32))
    confidence = tf.reshape(tf.reduce_max(probabilities, -1), [-1])
    predicted = tf.reshape(tf.argmax(probabilities, -1, tf.int32), [-1])
    target = tf.reshape(tf.cast(y_true, tf.int32), [-1])
    # In the plain graphs that TFF traces `==` compares objects, not elements.
    hit = tf.cast(tf.equal(predicted, target), tf.float32)
    weight = tf.ones_like(hit)
    if sample_weight is not None:
      weight = tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
    bins = tf.minimum(tf.cast(confidence * self.num_bins, tf.int32), self.num_bins - 1)
    for variable, values in (
      (self._weight, weight),
      (self._confidence, weight * confidence),
      (self._correct, weight * hit),
    ):
      variable.assign_add(tf.math.unsorted_segment_sum(values, bins, self.num_bins))

  def reset_state(self) -> None:
    """Forgets all targets."""
    for variable in (self._weight, self._confidence, self._correct):
      variable.assign(tf.zeros([self.num_bins]))

  def result(self) -> tf.Tensor:
    """The error in [0, 1], scalar; 0 without targets."""
    gaps = tf.abs(tf.convert_to_tensor(self._correct) - tf.convert_to_tensor(self._confidence))
    return tf.math.divide_no_nan(
      tf.reduce_sum(gaps), tf.reduce_sum(tf.convert_to_tensor(self._weight))
    )

  def get_config(self) -> dict[str, Any]:
    """Constructor arguments as plain JSON."""
    return {**super().get_config(), 'num_bins': self.num_bins}
