"""Tests of the convolutional network."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras


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


def parameters(model):
  return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def test_arguments_give_the_network_of_apple():
  model = bayes.models.cnn(filters=(20, 50), hidden=(500,))
  convolutions = 20 * (5 * 5 + 1) + 50 * (5 * 5 * 20 + 1)
  assert parameters(model) == convolutions + 500 * (4 * 4 * 50 + 1) + 10 * 501 == 431_080


def test_arguments_give_the_network_of_the_experts():
  model = bayes.models.cnn(input_shape=(32, 32, 3), hidden=(512,), dropout=0.42)
  convolutions = 32 * (5 * 5 * 3 + 1) + 64 * (5 * 5 * 32 + 1)
  assert parameters(model) == convolutions + 512 * (5 * 5 * 64 + 1) + 10 * 513


@pytest.mark.parametrize('bayesian', [False, True])
def test_dropout_follows_each_hidden_layer_in_training_only(bayesian):
  sizes = {'input_shape': (17, 18, 2), 'filters': (3, 4), 'hidden': (400, 300)}
  model = bayes.models.cnn(**sizes, bayesian=bayesian, dropout=0.3)
  names = [type(layer).__name__.removeprefix('Bayesian') for layer in model.layers]
  assert names[-5:] == ['Dense', 'Dropout', 'Dense', 'Dropout', 'Dense']
  hidden = keras.Sequential(model.layers[:-1])
  images = tf.constant(np.random.default_rng(0).normal(size=(40, 17, 18, 2)), tf.float32)
  kept, thinned = hidden(images, training=False).numpy(), hidden(images, training=True).numpy()
  without = bayes.models.cnn(**sizes, bayesian=bayesian)
  without.set_weights(model.get_weights())
  np.testing.assert_array_equal(without(images), model(images))
  assert np.mean(kept == 0) < np.mean(thinned == 0) < 1


def test_p10_each_layer_with_weights_is_a_unit():
  model = bayes.models.cnn(hidden=(512,), dropout=0.42)
  sizes = [sum(layer.count_params() for layer in layers) for _, layers in bayes.blocks(model)]
  assert sizes == [32 * 26, 64 * 801, 512 * 1025, 10 * 513]
  personal = [bayes.last_blocks(k)(model).num_personal for k in (0, 1, 2, 3)]
  assert personal == [0, sizes[3], sizes[2] + sizes[3], sum(sizes[1:])]


@pytest.mark.parametrize('dropout', [-0.1, 1.0, math.nan])
def test_a_share_of_dropped_outputs_outside_zero_to_one_is_refused(dropout):
  with pytest.raises(ValueError, match=f'Received: dropout={dropout}'):
    bayes.models.cnn(dropout=dropout)


def test_inputs_that_are_no_images_are_refused():
  with pytest.raises(ValueError, match='Received: input_shape'):
    bayes.models.cnn(input_shape=(784,))
