"""Numerical tests of BayesianEmbedding."""

import numpy as np
import pytest
import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianEmbedding


def test_an_id_that_occurs_twice_has_one_sampled_vector():
  outputs = BayesianEmbedding(5, 4)(tf.constant([[1, 3], [3, 1]]), training=True).numpy()
  np.testing.assert_array_equal(outputs[0, 0], outputs[1, 1])
  np.testing.assert_array_equal(outputs[0, 1], outputs[1, 0])


@pytest.mark.parametrize('training', [False, True])
def test_d9_ids_outside_the_table_raise_on_a_cpu(training):
  layer = BayesianEmbedding(5, 4)
  assert np.isfinite(layer(tf.constant([0, 4]), training=training)).all()
  for index in (5, -1):
    with tf.device('CPU'), pytest.raises(tf.errors.InvalidArgumentError):
      layer(tf.constant([index]), training=training)


def test_mean_equals_keras_embedding():
  layer, plain = BayesianEmbedding(5, 4), keras.layers.Embedding(5, 4)
  ids = tf.constant([[1, 0, 4]])
  layer(ids), plain(ids)
  plain.set_weights([tf.convert_to_tensor(layer.embeddings.loc).numpy()])
  np.testing.assert_array_equal(layer(ids), plain(ids))


def test_mask_zero_masks_id_zero_and_reaches_the_next_layer():
  ids = tf.constant([[1, 0, 4]])
  mask = BayesianEmbedding(5, 4, mask_zero=True).compute_mask(ids)
  np.testing.assert_array_equal(mask, [[True, False, True]])
  assert BayesianEmbedding(5, 4).compute_mask(ids) is None
  inputs = keras.Input((4,), dtype='int32')
  embedded = BayesianEmbedding(5, 4, mask_zero=True)(inputs)
  model = keras.Model(inputs, keras.layers.LSTM(2)(embedded))
  np.testing.assert_allclose(
    model(tf.constant([[1, 2, 0, 0]])), model(tf.constant([[1, 0, 0, 2]])), atol=1e-6
  )


def test_ids_beyond_half_precision_keep_their_value():
  layer = BayesianEmbedding(3000, 2, dtype='mixed_float16')
  outputs = layer(tf.constant([2049]))
  expected = tf.cast(tf.convert_to_tensor(layer.embeddings.loc)[2049], tf.float16)
  np.testing.assert_array_equal(outputs[0], expected)
