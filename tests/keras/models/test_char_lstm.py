"""Tests of the character model."""

import numpy as np
import tensorflow as tf

import tffpers.keras as bayes

SMALL = {'vocabulary_size': 9, 'embedding_size': 3, 'lstm_units': 4, 'sequence_length': 6}


def test_default_network_is_the_papers():
  model = bayes.models.char_lstm()
  assert model.output_shape == (None, 80, 87)
  shapes = [weight.shape for weight in bayes.gaussian_weights(model)]
  lstm = [(8, 400), (100, 400), (400,), (100, 400), (100, 400), (400,)]
  assert shapes == [(87, 8), *lstm, (100, 87), (87,)]
  assert bayes.deterministic_weights(model) == []


def test_bayesian_model_at_the_mean_equals_the_plain_one():
  model = bayes.models.char_lstm(**SMALL)
  plain = bayes.models.char_lstm(**SMALL, bayesian=False)
  means = [tf.convert_to_tensor(w.loc).numpy() for w in bayes.gaussian_weights(model)]
  plain.set_weights(means)
  ids = tf.constant([[1, 2, 0, 9, 4, 5], [3, 3, 3, 0, 0, 0]])
  np.testing.assert_allclose(model(ids), plain(ids), atol=1e-6)


def test_padding_on_the_right_does_not_reach_earlier_logits_but_unknowns_do():
  model = bayes.models.char_lstm(**SMALL)
  text = model(tf.constant([[1, 2, 3, 4, 5, 6]])).numpy()
  padded = model(tf.constant([[1, 2, 3, 0, 0, 0]])).numpy()
  np.testing.assert_array_equal(text[:, :3], padded[:, :3])
  unknown = model(tf.constant([[1, 0, 3, 4, 5, 6]])).numpy()
  assert np.all(np.abs(unknown[0, 1:] - text[0, 1:]).max(axis=-1) > 0)
