"""Models as vectors."""

import linear
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import inspection, seeds
from tffpers.algorithms import flat


def inspect(model_fn):
  settings = toy.settings()
  return inspection.inspect_model(
    model_fn, settings['loss_fn'], settings['metrics_fn'], toy.ELEMENT_SPEC
  )


def test_split_undoes_join_in_the_order_of_the_weights():
  values = [tf.reshape(tf.range(6.0), [2, 3]), tf.constant(6.0), tf.constant([7.0])]
  vector = flat.join(values)
  np.testing.assert_array_equal(vector, np.arange(8))
  toy.assert_equal(flat.split(vector, values), values)


def test_mixed_is_the_weighted_sum():
  models = tf.constant([[1.0, 2], [10, 20], [100, 200]])
  np.testing.assert_array_equal(flat.mixed(tf.constant([1.0, -2, 0.5]), models), [31, 62])


def test_initial_models_differ_and_repeat():
  spec = inspect(toy.plain_model)

  @tff.tensorflow.computation(tff.types.tensorflow_to_type(seeds.SEED_SPEC))
  def draw(seed):
    return flat.initial_models(spec, seed, 3)

  models = draw(linear.SEED)
  assert models.shape == (3, 26)
  # Kernels are drawn, biases are zero.
  assert np.all(np.any(models[:, np.newaxis] != models, -1) == ~np.eye(3, dtype=bool))
  np.testing.assert_array_equal(models, draw(linear.SEED))


def test_weights_of_two_dtypes_are_refused():
  def model():
    return tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([3]),
        tf.keras.layers.Dense(4, dtype='float64'),
        tf.keras.layers.Dense(2),
      ]
    )

  with pytest.raises(ValueError, match=r"one dtype.*\['float32', 'float64'\]"):
    flat.check(inspect(model))
