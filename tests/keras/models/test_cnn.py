"""Tests of the convolutional network."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes


def test_default_network_is_the_papers():
  model = bayes.models.cnn(bayesian=True)
  assert model.input_shape == (None, 28, 28, 1)
  assert model.output_shape == (None, 10)
  shapes = [weight.shape for weight in bayes.gaussian_weights(model)]
  convolutions = [(5, 5, 1, 32), (32,), (5, 5, 32, 64), (64,)]
  assert shapes == [*convolutions, (1024, 100), (100,), (100, 100), (100,), (100, 10), (10,)]
  assert bayes.deterministic_weights(model) == []


def test_bayesian_model_at_the_mean_equals_the_plain_one():
  sizes = {'input_shape': (17, 18, 2), 'filters': (3, 4), 'hidden': (5,), 'num_classes': 2}
  model, plain = bayes.models.cnn(**sizes, bayesian=True), bayes.models.cnn(**sizes)
  plain.set_weights([tf.convert_to_tensor(w.loc).numpy() for w in bayes.gaussian_weights(model)])
  images = tf.constant(np.random.default_rng(0).normal(size=(3, 17, 18, 2)), tf.float32)
  np.testing.assert_allclose(model(images), plain(images), atol=1e-5)
  assert bayes.gaussian_weights(plain) == []


def test_inputs_that_are_no_images_are_refused():
  with pytest.raises(ValueError, match='Received: input_shape'):
    bayes.models.cnn(input_shape=(784,))
