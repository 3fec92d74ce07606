"""Numerical tests of BayesianConv2D."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianConv2D
from tffpers.keras.layers.affine import ESTIMATORS

DRAWS = 8_000
IMAGES = np.random.default_rng(3).normal(size=(2, 3, 4, 2)).astype(np.float32)

every_estimator = pytest.mark.parametrize('estimator', ESTIMATORS)
with_and_without_bias = pytest.mark.parametrize('use_bias', [True, False])


def value(variable):
  return tf.convert_to_tensor(variable).numpy()


def wide_layer(estimator, use_bias=True):
  layer = BayesianConv2D(3, 2, estimator=estimator, use_bias=use_bias)
  layer.build((None, 3, 4, 2))
  random = np.random.default_rng(1)
  for weight in layer.gaussian_weights:
    weight.loc.assign(random.normal(size=weight.shape).astype(np.float32))
    weight.log_scale.assign(random.uniform(-1.0, 0.5, size=weight.shape).astype(np.float32))
  return layer


def convolve(images, kernel, bias):
  """A 2×2 convolution written out."""
  outputs = np.zeros((*np.subtract(images.shape[:3], (0, 1, 1)), kernel.shape[-1])) + bias
  for row in range(2):
    for column in range(2):
      patch = images[:, row : row + outputs.shape[1], column : column + outputs.shape[2]]
      outputs += patch @ kernel[row, column]
  return outputs


@with_and_without_bias
@every_estimator
def test_v18_pre_activation_moments_match_monte_carlo(estimator, use_bias):
  layer = wide_layer(estimator, use_bias)

  @tf.function
  def draw(number):
    with bayes.noise.scope(tf.stack([9, number])):
      return layer(tf.constant(IMAGES), training=True)

  drawn = tf.function(
    lambda: tf.map_fn(draw, tf.range(DRAWS), fn_output_signature=tf.float32)
  )().numpy()
  bias = (value(layer.bias.loc), layer.bias.scale.numpy() ** 2) if use_bias else (0.0, 0.0)
  mean = convolve(IMAGES, value(layer.kernel.loc), bias[0])
  variance = convolve(IMAGES**2, layer.kernel.scale.numpy() ** 2, bias[1])
  assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(variance / DRAWS))
  np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.1)


@with_and_without_bias
@every_estimator
def test_v18_gradients_are_finite_on_an_all_zero_image(estimator, use_bias):
  layer = wide_layer(estimator, use_bias)
  images = tf.concat([tf.zeros([1, 3, 4, 2]), IMAGES], axis=0)
  with tf.GradientTape() as tape:
    tape.watch(images)
    loss = tf.reduce_sum(tf.square(layer(images, training=True)))
  for gradient in tape.gradient(loss, [images, *layer.trainable_variables]):
    assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize('padding', ['valid', 'same'])
@pytest.mark.parametrize('strides', [1, 2, (1, 3)])
def test_equals_keras_at_the_mean(padding, strides):
  arguments = (5, (3, 2), strides, padding)
  layer = BayesianConv2D(*arguments, activation='relu', bias_initializer='normal')
  plain = keras.layers.Conv2D(*arguments, activation='relu')
  images = tf.constant(np.random.default_rng(0).normal(size=(2, 7, 8, 3)), tf.float32)
  outputs = layer(images)
  plain.build(images.shape)
  plain.set_weights([value(weight.loc) for weight in layer.gaussian_weights])
  np.testing.assert_allclose(outputs, plain(images), atol=1e-5)
  assert layer.compute_output_shape(images.shape) == tuple(plain.compute_output_shape(images.shape))
  free = (None, None, 8, 3)
  assert layer.compute_output_shape(free)[:2] == (None, None)


@every_estimator
def test_weight_estimators_use_one_kernel_at_all_positions(estimator):
  layer = wide_layer(estimator)
  outputs = layer(tf.ones([2, 3, 4, 2]), training=True).numpy()
  same_everywhere = np.allclose(outputs, outputs[:, :1, :1], atol=1e-5)
  assert same_everywhere == (estimator != 'local_reparameterization')
  same_in_all_examples = np.allclose(outputs[0], outputs[1], atol=1e-5)
  assert same_in_all_examples == (estimator == 'reparameterization')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((0, 3), 'filters'),
    ((2, 0), 'kernel_size'),
    ((2, (1, 2, 3)), 'kernel_size'),
    ((2, 3, (1, 0)), 'strides'),
    ((2, 3, 1, 'full'), 'padding'),
  ],
)
def test_wrong_sizes_are_refused(arguments, message):
  with pytest.raises(ValueError, match=f'{message}.*Received'):
    BayesianConv2D(*arguments)


@pytest.mark.parametrize('shape', [(None, 8, 8), (None, 8, 8, None)])
def test_inputs_that_are_no_images_are_refused(shape):
  with pytest.raises(ValueError, match='channels'):
    BayesianConv2D(2, 3).build(shape)
