"""Tests of the Gaussian posterior over one weight."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tffpers import gaussians
from tffpers.keras import scales_remembered
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense

tfd = tfp.distributions


@keras.utils.register_keras_serializable(package='tests')
def wide_prior(shape, dtype):
  return tfd.Normal(tf.fill(shape, tf.constant(0.3, dtype)), tf.constant(2.0, dtype))


def dense(units=4, features=3, **kwargs):
  layer = BayesianDense(units, **kwargs)
  layer.build((None, features))
  return layer


def randomise(weight, seed=0):
  random = np.random.default_rng(seed)
  weight.loc.assign(random.normal(size=weight.shape).astype(np.float32))
  weight.log_scale.assign(random.uniform(-4.0, 1.0, size=weight.shape).astype(np.float32))


@pytest.mark.parametrize('prior', [0.7, wide_prior])
def test_v7_divergence_equals_tfps_for_random_means_and_scales(prior):
  weight = dense(prior=prior).kernel
  for seed in range(5):
    randomise(weight, seed)
    expected = tf.reduce_sum(tfd.kl_divergence(weight.posterior, weight.prior))
    np.testing.assert_allclose(weight.kl_divergence(), expected, rtol=1e-5)


def test_divergence_of_the_prior_from_itself_is_zero():
  layer = dense(initial_scale=0.5, prior=0.5, kernel_initializer='zeros')
  np.testing.assert_allclose(layer.kl_divergence(), 0.0, atol=1e-6)


@pytest.mark.parametrize('log_scale', [-200.0, -40.0, 0.0, 40.0, 200.0])
@pytest.mark.parametrize('estimator', ['local_reparameterization', 'reparameterization'])
def test_b4_extreme_scales_keep_divergence_and_gradients_finite(log_scale, estimator):
  layer = dense(estimator=estimator)
  for weight in layer.gaussian_weights:
    weight.log_scale.assign(tf.fill(weight.shape, log_scale))
  with tf.GradientTape() as tape:
    divergence = layer.kl_divergence()
    loss = divergence + tf.reduce_sum(layer(tf.ones([2, 3]), training=True))
  assert np.isfinite(divergence)
  for weight in layer.gaussian_weights:
    assert np.isfinite(weight.natural().lam).all()
  gradients = tape.gradient(loss, layer.trainable_variables)
  assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients)
  if log_scale != 0.0:  # Straight through the clip: descent leads back into the range.
    assert np.all(np.sign(gradients[1]) == np.sign(log_scale))


def test_b4_a_scale_survives_the_round_trip_through_natural_parameters():
  weight = dense(units=1, features=10).kernel
  scale = np.logspace(-6, 3, 10).reshape(weight.shape)
  loc = np.linspace(-1.0, 1.0, 10).reshape(weight.shape)
  weight.set_natural(gaussians.from_moments(tf.constant(loc), tf.constant(scale)))
  np.testing.assert_allclose(weight.scale, scale, rtol=2e-6)
  np.testing.assert_allclose(weight.posterior.mean(), loc, rtol=1e-6)
  loc_back, scale_back = gaussians.to_moments(weight.natural(), tf.float64)
  np.testing.assert_allclose(scale_back, scale, rtol=2e-6)
  np.testing.assert_allclose(loc_back, loc, rtol=1e-6)


def test_set_natural_of_natural_changes_no_bit():
  weight = dense().kernel
  randomise(weight)
  before = [tf.identity(variable) for variable in weight.variables]
  weight.set_natural(weight.natural())
  for variable, value in zip(weight.variables, before, strict=True):
    np.testing.assert_array_equal(tf.convert_to_tensor(variable), value)


def test_v11_a_negative_precision_is_refused():
  weight = dense().kernel
  natural = weight.natural()
  with pytest.raises(tf.errors.InvalidArgumentError, match='kernel'):
    weight.set_natural(natural._replace(lam=-natural.lam))


def test_b12_sampled_weights_have_the_stated_mean_and_standard_deviation():
  weight = dense().kernel
  randomise(weight)
  draw = tf.function(lambda seed: weight.sample(tf.stack([0, seed]), tf.float32))
  drawn = tf.map_fn(draw, tf.range(8000), fn_output_signature=tf.float32).numpy()
  scale = weight.scale.numpy()
  np.testing.assert_allclose(drawn.std(axis=0), scale, rtol=0.03)
  assert np.all(np.abs(drawn.mean(axis=0) - weight.loc) < 5 * scale / np.sqrt(8000))


def test_a_registered_prior_is_saved_by_name_and_others_are_refused():
  config = dense(prior=wide_prior).get_config()
  assert config['prior'] == 'tests>wide_prior'
  copy = BayesianDense.from_config(config)
  copy.build((None, 3))
  np.testing.assert_allclose(copy.kernel.prior.mean(), np.full((3, 4), 0.3), rtol=1e-6)
  with pytest.raises(ValueError, match='register'):
    dense(prior=lambda shape, dtype: wide_prior(shape, dtype)).get_config()


@pytest.mark.parametrize(
  ('prior', 'error'),
  [
    (lambda shape, dtype: tfd.Laplace(tf.zeros(shape), 1.0), TypeError),
    (lambda shape, dtype: 1.0, TypeError),
    (lambda shape, dtype: tfd.Normal(tf.zeros([7, 9]), 1.0), ValueError),
  ],
)
def test_a_prior_must_return_a_normal_of_the_weights_shape(prior, error):
  with pytest.raises(error, match=r'kernel|[Ii]ncompatible'):
    dense(prior=prior)


def test_last_scale_is_the_layers_own_inside_scales_remembered_and_fresh_outside():
  layer = dense(2, initial_scale=0.3)
  with scales_remembered():
    used = layer.kernel.scale
    assert layer.kernel.last_scale is used
    assert layer.kernel.scale is not used
  layer.kernel.log_scale.assign(tf.zeros([3, 2]))
  np.testing.assert_array_equal(layer.kernel.last_scale, np.ones([3, 2]))


def test_scales_remembered_leaves_gradients_alone_even_if_they_compute_the_layer_again():
  layer = dense(2)
  again = tf.recompute_grad(lambda x: x * layer.kernel.scale)

  def gradient():
    with tf.GradientTape() as tape:
      value = tf.reduce_sum(again(tf.ones([3, 2])) + tf.square(layer.kernel.scale))
    return tape.gradient(value, layer.kernel.log_scale)

  apart = gradient()
  with scales_remembered():
    np.testing.assert_array_equal(gradient(), apart)


def test_scale_of_a_loops_body_is_not_remembered_outside_it():
  layer = dense(2, initial_scale=0.5)

  @tf.function
  def total():
    with scales_remembered():
      looped = tf.while_loop(
        lambda i, _: i < 2,
        lambda i, sum_: (i + 1, sum_ + tf.reduce_sum(layer.kernel.scale)),
        (0, 0.0),
      )[1]
      return looped + tf.reduce_sum(layer.kernel.last_scale)

  assert total() == 9.0
