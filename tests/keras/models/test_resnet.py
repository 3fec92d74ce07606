"""Tests of the residual network."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes


def size(variables):
  return sum(math.prod(variable.shape) for variable in variables)


def test_published_network_has_the_published_number_of_parameters():
  model = bayes.models.resnet(
    input_shape=(224, 224, 3), num_classes=1000, stem='imagenet', normalization='batch'
  )
  assert size(model.trainable_variables) == 21_797_672
  assert model.output_shape == (None, 1000)
  assert model.get_layer('stem_conv').output.shape[1:] == (112, 112, 64)
  assert model.get_layer('stem_pool').output.shape[1:] == (56, 56, 64)
  assert model.get_layer('block16_relu2').output.shape[1:] == (7, 7, 512)


@pytest.fixture(scope='module')
def resnet34():
  return bayes.models.resnet()


def test_default_network_keeps_small_images_large(resnet34):
  sizes = [resnet34.get_layer(f'block{i:02d}_relu2').output.shape[1] for i in range(1, 17)]
  assert sizes == [32] * 3 + [16] * 4 + [8] * 6 + [4] * 3


@pytest.mark.parametrize('k, block', [(1, 17), (2, 16), (4, 14), (17, 1)])
def test_p10_personal_are_the_dense_layer_and_the_last_blocks(resnet34, k, block):
  partition = bayes.last_blocks(k)(resnet34)
  labels = {name.split('_')[0].split('/')[0] for name in partition.personal_names}
  assert labels == {'classifier', *(f'block{number:02d}' for number in range(block, 17))}
  assert partition.num_shared + partition.num_personal == resnet34.count_params()


def test_p10_numbers_of_personal_parameters_are_those_worked_by_hand(resnet34):
  dense, equal = 513 * 10, 2 * (9 * 512**2 + 2 * 512)
  first = equal - 9 * 256 * 512 + 256 * 512 + 2 * 512
  personal = [bayes.last_blocks(k)(resnet34).num_personal for k in range(5)]
  assert personal == [0, dense, dense + equal, dense + 2 * equal, dense + 2 * equal + first]


def test_p10_more_units_than_blocks_and_classifier_are_refused(resnet34):
  assert len(bayes.blocks(resnet34)) == 18
  with pytest.raises(ValueError, match='at most 17. Received: k=18'):
    bayes.last_blocks(18)(resnet34)


def reference(model, x):
  """The network written out, in inference, for two stages of one and two blocks."""

  def convolve(x, name, strides, padding):
    ends = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
    return tf.nn.conv2d(x, model.get_layer(name).kernel, strides, ends)

  def normalize(x, name):
    norm = model.get_layer(name)
    scale = norm.gamma / tf.sqrt(norm.moving_variance + 1e-5)
    return (x - norm.moving_mean) * scale + norm.beta

  def block(x, name, strides, projected):
    y = tf.nn.relu(normalize(convolve(x, name + 'conv1', strides, 1), name + 'norm1'))
    y = normalize(convolve(y, name + 'conv2', 1, 1), name + 'norm2')
    if projected:
      x = normalize(convolve(x, name + 'shortcut', strides, 0), name + 'shortcut_norm')
    return tf.nn.relu(x + y)

  x = tf.nn.relu(normalize(convolve(x, 'stem_conv', 2, 3), 'stem_norm'))
  x = tf.nn.max_pool2d(x, 3, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])
  x = block(x, 'block01_', 1, False)
  x = block(x, 'block02_', 2, True)
  x = block(x, 'block03_', 1, False)
  last = model.get_layer('classifier')
  return tf.reduce_mean(x, axis=(1, 2)) @ last.kernel + last.bias


@pytest.mark.parametrize('height, width', [(32, 32), (29, 30)])
def test_network_equals_the_papers_formulas(height, width):
  model = bayes.models.resnet(
    input_shape=(height, width, 2),
    blocks_per_stage=(1, 2),
    filters=(3, 5),
    num_classes=4,
    stem='imagenet',
    normalization='batch',
  )
  random = np.random.default_rng(0)
  model.set_weights([random.uniform(0.1, 1.0, w.shape) for w in model.get_weights()])
  x = tf.constant(random.normal(size=(3, height, width, 2)), tf.float32)
  np.testing.assert_allclose(model(x), reference(model, x), rtol=1e-5)


@pytest.mark.parametrize(
  'stages',
  [
    {'blocks_per_stage': (), 'filters': ()},
    {'blocks_per_stage': (1, 1), 'filters': (4,)},
    {'blocks_per_stage': (1, 0), 'filters': (4, 8)},
    {'blocks_per_stage': (1, 1), 'filters': (4, 0)},
  ],
)
def test_stages_without_blocks_or_channels_are_refused(stages):
  with pytest.raises(ValueError, match='Received: blocks_per_stage='):
    bayes.models.resnet(**stages)
