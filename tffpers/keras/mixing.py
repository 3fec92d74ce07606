"""Mixtures of class probabilities, in log space."""

import tensorflow as tf


def log_mixture(gate_logits: tf.Tensor, expert_logits: tf.Tensor) -> tf.Tensor:
  """log Σ_e g_e softmax(f_e) with g = softmax(gate_logits).

  Nothing is exponentiated and multiplied, so the result is finite wherever one expert with
  a positive gate is, even where another gives a class the probability 0. It may be used as
  logits: a further softmax leaves the probabilities as they are.

  Args:
    gate_logits: [..., experts]; -inf gives an expert no part.
    expert_logits: [..., experts, classes].

  Returns:
    Log probabilities, [..., classes].

  >>> gate, experts = tf.zeros([2]), tf.math.log([[0.1, 0.9], [0.5, 0.5]])
  >>> tf.exp(log_mixture(gate, experts)).numpy().round(3).tolist()
  [0.30000001192092896, 0.699999988079071]
  """
  log_gate = tf.nn.log_softmax(gate_logits)[..., tf.newaxis]
  return tf.reduce_logsumexp(log_gate + tf.nn.log_softmax(expert_logits), axis=-2)
