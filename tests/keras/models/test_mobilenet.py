"""Tests of MobileNet-v1."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras


def size(variables):
  return sum(math.prod(variable.shape) for variable in variables)


def test_published_network_has_the_published_number_of_parameters():
  model = bayes.models.mobilenet(
    input_shape=(224, 224, 3), num_classes=1000, stem='imagenet', normalization='batch'
  )
  assert size(model.trainable_variables) == 4_231_976
  assert model.output_shape == (None, 1000)
  assert model.get_layer('stem_conv').output.shape[1:] == (112, 112, 32)
  assert model.get_layer('block13_pointwise_relu').output.shape[1:] == (7, 7, 1024)


@pytest.fixture(scope='module', params=[11, 13])
def network(request):
  return bayes.models.mobilenet(num_blocks=request.param), request.param


def test_two_of_the_five_equal_blocks_are_left_out_of_eleven(network):
  model, blocks = network
  shapes = [
    model.get_layer(f'block{i:02d}_pointwise').output.shape[2:] for i in range(1, blocks + 1)
  ]
  middle = [(8 // 2, 512)] * (blocks - 8)
  ends = [(32, 64), (16, 128), (16, 128), (8, 256), (8, 256), (4, 512)], [(2, 1024)] * 2
  assert shapes == [*ends[0], *middle, *ends[1]]
  # An equal block: 9·512 and 512² weights, and two norms.
  left_out = (13 - blocks) * (9 * 512 + 512**2 + 4 * 512)
  assert size(model.trainable_variables) == 4_231_976 - 990 * 1025 - left_out


@pytest.mark.parametrize('k', [1, 2, 4])
def test_p10_personal_are_the_dense_layer_and_the_last_blocks(network, k):
  model, blocks = network
  partition = bayes.last_blocks(k)(model)
  labels = {name.split('_')[0].split('/')[0] for name in partition.personal_names}
  last = range(blocks + 2 - k, blocks + 1)
  assert labels == {'classifier', *(f'block{number:02d}' for number in last)}
  assert partition.num_shared + partition.num_personal == model.count_params()


def test_p10_more_units_than_blocks_and_classifier_are_refused(network):
  model, blocks = network
  assert [label for label, _ in bayes.blocks(model)][::blocks] == ['stem', f'block{blocks}']
  with pytest.raises(ValueError, match=f'at most {blocks + 1}. Received: k={blocks + 2}'):
    bayes.last_blocks(blocks + 2)(model)


@pytest.mark.parametrize('stem, strides', [('imagenet', 2), ('cifar', 1)])
def test_network_equals_keras_own(stem, strides):
  sizes = {'input_shape': (64, 32, 3)}
  model = bayes.models.mobilenet(
    **sizes, width_multiplier=0.25, num_classes=7, stem=stem, normalization='batch'
  )
  theirs = keras.applications.MobileNet(
    **sizes, alpha=0.25, weights=None, classes=7, classifier_activation=None
  )
  theirs.get_layer('conv1').strides = (strides, strides)
  for layer in theirs.layers:
    if isinstance(layer, keras.layers.BatchNormalization):
      layer.epsilon = 1e-5
    elif isinstance(layer, keras.layers.ReLU):
      layer.max_value = None
  random = np.random.default_rng(0)
  weights = [random.uniform(0.5, 1.0, w.shape) for w in model.get_weights()]
  weights = [w - 0.75 if w.ndim > 1 else w for w in weights]
  model.set_weights(weights)
  theirs.set_weights([w.reshape(v.shape) for w, v in zip(weights, theirs.weights, strict=True)])
  x = tf.constant(random.normal(size=(3, 64, 32, 3)), tf.float32)
  np.testing.assert_allclose(model(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('num_blocks', [7, 14])
def test_a_number_of_blocks_that_no_network_has_is_refused(num_blocks):
  with pytest.raises(ValueError, match=f'Received: num_blocks={num_blocks}'):
    bayes.models.mobilenet(num_blocks=num_blocks)


def test_depthwise_kernels_start_from_their_own_nine_inputs():
  model = bayes.models.mobilenet(width_multiplier=0.5)
  kernels = model.get_layer('block13_depthwise').get_weights()[0]
  assert kernels.std() == pytest.approx(math.sqrt(2 / 9), rel=0.05)


@pytest.mark.parametrize('width_multiplier', [0.0, 0.03, math.nan])
def test_a_network_without_channels_is_refused(width_multiplier):
  with pytest.raises(ValueError, match='Received: width_multiplier='):
    bayes.models.mobilenet(width_multiplier=width_multiplier)
