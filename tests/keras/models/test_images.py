"""What holds for the residual network and for MobileNet alike."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.models import images

RESNET = functools.partial(bayes.models.resnet, blocks_per_stage=(1, 1, 1), filters=(4, 8, 16))
MOBILENET = functools.partial(bayes.models.mobilenet, width_multiplier=0.125, num_blocks=8)

every_network = pytest.mark.parametrize('network', [RESNET, MOBILENET], ids=['resnet', 'mobilenet'])
every_normalization = pytest.mark.parametrize('normalization', ['group', 'batch'])


def examples(count=6, size=32):
  pixels = np.random.default_rng(0).normal(size=(count, size, size, 3))
  return tf.constant(pixels, tf.float32), tf.constant(np.arange(count) % 3)


def loss_and_gradients(model, x, y):
  with tf.GradientTape() as tape:
    logits = model(x, training=True)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
  return loss.numpy(), tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize('stem', ['cifar', 'imagenet'])
@every_normalization
@every_network
def test_gradients_reach_every_variable_and_lower_the_loss(network, normalization, stem):
  keras.utils.set_random_seed(1)
  model, (x, y) = network(stem=stem, normalization=normalization), examples()
  losses = []
  for _ in range(3):
    loss, gradients = loss_and_gradients(model, x, y)
    losses.append(loss)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
      assert np.all(np.isfinite(gradient))
      variable.assign_sub(0.05 * gradient)
  assert all(np.any(gradient) for gradient in gradients)
  assert losses[-1] < losses[0]


@every_network
def test_both_normalizations_have_the_same_trainable_variables_and_group_is_the_default(network):
  group, batch = network(), network(normalization='batch')
  for mine, other in zip(group.trainable_variables, batch.trainable_variables, strict=True):
    assert mine.shape == other.shape
  assert group.non_trainable_variables == []


@every_network
def test_group_normalization_treats_an_example_alike_in_any_batch_and_in_training(network):
  model, (x, _) = network(), examples()
  together = model(x, training=True)
  alone = tf.concat([model(x[i : i + 1], training=False) for i in range(len(x))], axis=0)
  np.testing.assert_allclose(together, alone, atol=1e-5)


@every_normalization
@every_network
def test_d2_one_example_trains_nothing_below_a_batch_norm_of_one_pixel(network, normalization):
  size = 4 if network is RESNET else 16
  model = network(input_shape=(size, size, 3), normalization=normalization)
  x, y = examples(1, size)
  assert model.get_layer('pool').input.shape[1:3] == (1, 1)
  _, gradients = loss_and_gradients(model, x, y)
  moved = [bool(np.any(gradient)) for gradient in gradients]
  logits = model(x, training=True).numpy()
  if normalization == 'batch':
    np.testing.assert_array_equal(logits, 0.0)
    assert moved == [False] * (len(moved) - 1) + [True]
  else:
    assert np.all(logits != 0.0) and moved[0]


@every_network
def test_moving_statistics_take_a_tenth_of_each_batch(network):
  model, (x, _) = network(normalization='batch'), examples()
  norm = model.get_layer('stem_norm')
  mean = tf.reduce_mean(model.get_layer('stem_conv')(x), axis=(0, 1, 2))
  model(x, training=True)
  np.testing.assert_allclose(norm.moving_mean, 0.1 * mean, atol=1e-6)


def test_groups_divide_the_channels_and_have_sixteen_or_more():
  for channels in range(1, 1025):
    size, rest = divmod(channels, images.groups(channels))
    assert rest == 0 and size >= min(16, channels)
  assert [images.groups(channels) for channels in (32, 64, 1024)] == [2, 4, 64]


@pytest.mark.parametrize('name', ['stem', 'normalization'])
@every_network
def test_a_setting_that_is_no_choice_is_refused(network, name):
  with pytest.raises(ValueError, match=f"Received: {name}='layer'"):
    network(**{name: 'layer'})


@every_network
def test_inputs_that_are_no_images_are_refused(network):
  with pytest.raises(ValueError, match='Received: input_shape'):
    network(input_shape=(32, 32))


SMALL = {
  'cnn': lambda **kwargs: bayes.models.cnn(
    input_shape=(16, 17, 2), filters=(3, 16), hidden=(6,), **kwargs
  ),
  'mlp': lambda **kwargs: bayes.models.mlp(input_shape=(8,), hidden=(6, 32), **kwargs),
}


@pytest.mark.parametrize('network', SMALL)
@pytest.mark.parametrize('normalization', ['group', 'batch'])
def test_small_networks_take_normalisation_which_belongs_to_the_unit_before_it(
  network, normalization
):
  plain, model = SMALL[network](), SMALL[network](normalization=normalization)
  kind = 'GroupNormalization' if normalization == 'group' else 'BatchNormalization'
  found = [layer for layer in model.layers if type(layer).__name__ == kind]
  hidden = len(bayes.blocks(plain)) - 1
  assert len(found) == hidden and len(bayes.blocks(model)) == hidden + 1
  assert all(kind in [type(x).__name__ for x in unit] for _, unit in bayes.blocks(model)[:-1])
  outputs = model(tf.random.stateless_normal([5, *model.input_shape[1:]], [1, 2]), training=True)
  assert outputs.shape == (5, 10) and np.isfinite(outputs).all()


@pytest.mark.parametrize('network', SMALL)
@pytest.mark.parametrize(
  'wrong', [{'normalization': 'layer'}, {'normalization': 'batch', 'bayesian': True}]
)
def test_normalisation_that_there_is_not_is_refused(network, wrong):
  with pytest.raises(ValueError, match='normalization must be'):
    SMALL[network](**wrong)
