"""A model of three weights whose steps can be worked by hand."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import toy

SPEC = (tf.TensorSpec([3], tf.float32), tf.TensorSpec([1], tf.float32))
SEED = np.array([1, 2], np.int32)


def model() -> tf.keras.Model:
  return tf.keras.Sequential(
    [tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(1, use_bias=False)]
  )


def half_squared_error(y, prediction):
  """F = ½ (x·w − y)², so that ∇F = (x·w − y) x."""
  return 0.5 * tf.reduce_sum(tf.square(prediction - y), -1)


def output(y, prediction):
  """As a metric: the mean prediction, which at x = e_k is weight k."""
  del y
  return prediction[:, 0]


def settings(**overrides) -> dict[str, object]:
  """One step of rate 0.1 on all examples."""
  return toy.settings(
    **{
      'model_fn': model,
      'loss_fn': half_squared_error,
      'metrics_fn': lambda: [output],
      'element_spec': SPEC,
      'epochs': 1,
      'batch_size': 100,
      **overrides,
    }
  )


def examples(x: Sequence[Sequence[float]], y: Sequence[float]) -> dict[str, np.ndarray]:
  """Rows x and their targets."""
  return {
    'x': np.asarray(x, np.float32).reshape([-1, 3]),
    'y': np.asarray(y, np.float32).reshape([-1, 1]),
  }


def data(*rows: tuple[Sequence[float], float]) -> dict[str, object]:
  """Training data of one client."""
  return {'train': examples([x for x, _ in rows], [y for _, y in rows]), 'seed': SEED}


def evaluated_weights(process, server, client, name='client') -> np.ndarray:
  """The three weights of the model that `evaluate` calls the client's, or by another name."""
  unit = [{'test': examples([row], [0]), 'seed': SEED} for row in np.eye(3)]
  results = process.evaluate(server, [client] * 3, unit)
  return np.array([result[name]['output'] for result in results])
