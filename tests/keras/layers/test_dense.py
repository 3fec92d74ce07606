"""Numerical tests of BayesianDense."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense

ESTIMATORS = ('local_reparameterization', 'reparameterization', 'flipout')
DRAWS = 20_000


def wide_layer(estimator, use_bias=True):
  layer = BayesianDense(2, estimator=estimator, use_bias=use_bias)
  layer.build((None, 3))
  random = np.random.default_rng(1)
  for weight in layer.gaussian_weights:
    weight.loc.assign(random.normal(size=weight.shape).astype(np.float32))
    weight.log_scale.assign(random.uniform(-1.0, 0.5, size=weight.shape).astype(np.float32))
  return layer


def samples(layer, rows):
  """Outputs [DRAWS, rows, units] of separate calls."""

  @tf.function
  def draw(number):
    with bayes.noise.scope(tf.stack([9, number])):
      return layer(rows, training=True)

  return tf.function(
    lambda: tf.map_fn(draw, tf.range(DRAWS), fn_output_signature=tf.float32)
  )().numpy()


def check_moments(layer, drawn, rows):
  mean = layer(rows).numpy()
  variance = np.square(rows) @ layer.kernel.variance(tf.float32).numpy()
  if layer.bias is not None:
    variance = variance + layer.bias.variance(tf.float32).numpy()
  standard_error = np.sqrt(variance / DRAWS)
  assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * standard_error)
  np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.05)


@pytest.mark.parametrize('use_bias', [True, False])
@pytest.mark.parametrize('estimator', ESTIMATORS)
def test_estimators_have_the_exact_mean_and_variance(estimator, use_bias):
  layer = wide_layer(estimator, use_bias)
  rows = np.array([[1.0, -2.0, 0.5], [0.1, 0.0, 3.0]], np.float32)
  check_moments(layer, samples(layer, tf.constant(rows)), rows)


def test_v18_local_reparameterization_moments_match_monte_carlo():
  layer = wide_layer('local_reparameterization')
  row = np.array([[1.0, -2.0, 0.5]], np.float32)
  with bayes.noise.scope(tf.constant([3, 4])):
    local = layer(tf.tile(tf.constant(row), [DRAWS, 1]), training=True).numpy()
  random = np.random.default_rng(0)

  def draw(weight):
    noise = random.normal(size=(DRAWS, *weight.shape))
    return tf.convert_to_tensor(weight.loc).numpy() + weight.scale.numpy() * noise

  monte_carlo = np.einsum('i,nio->no', row[0], draw(layer.kernel)) + draw(layer.bias)
  deviation = monte_carlo.std(axis=0)
  error = np.sqrt(2 / DRAWS) * deviation
  assert np.all(np.abs(local.mean(axis=0) - monte_carlo.mean(axis=0)) < 5 * error)
  np.testing.assert_allclose(local.std(axis=0), deviation, rtol=0.03)


@pytest.mark.parametrize('use_bias', [True, False])
def test_v18_local_reparameterization_gradients_finite_on_zero_row(use_bias):
  layer = wide_layer('local_reparameterization', use_bias)
  rows = tf.constant([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    loss = tf.reduce_sum(tf.square(layer(rows, training=True)))
  for gradient in tape.gradient(loss, [rows, *layer.trainable_variables]):
    assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize('estimator', ESTIMATORS)
def test_gradients_equal_finite_differences_at_fixed_noise(estimator):
  keras.mixed_precision.set_global_policy('float64')
  try:
    layer = BayesianDense(2, estimator=estimator, initial_scale=0.3)
    rows = tf.constant(np.random.default_rng(2).normal(size=(4, 3)))
    layer(rows)

    def loss(kernel, log_scale):
      layer.kernel.loc.assign(kernel)
      layer.kernel.log_scale.assign(log_scale)
      with bayes.noise.scope(tf.constant([1, 2])), tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.sin(layer(rows, training=True)))
      return value.numpy(), tape.gradient(value, layer.kernel.variables)

    start = [tf.convert_to_tensor(variable).numpy() for variable in layer.kernel.variables]
    gradients = loss(*start)[1]
    for which in range(2):
      step = [np.zeros((3, 2)), np.zeros((3, 2))]
      step[which][1, 1] = 1e-6
      up = loss(start[0] + step[0], start[1] + step[1])[0]
      down = loss(start[0] - step[0], start[1] - step[1])[0]
      np.testing.assert_allclose(gradients[which][1, 1], (up - down) / 2e-6, rtol=1e-6)
  finally:
    keras.mixed_precision.set_global_policy('float32')


def test_linear_regression_recovers_the_exact_posterior():
  """Orthogonal design and known noise: the exact posterior is a mean-field Gaussian."""
  random = np.random.default_rng(0)
  design = np.linalg.qr(random.normal(size=(40, 3)))[0] * np.array([3.0, 5.0, 8.0])
  noise_variance = 0.25
  targets = design @ [1.0, -0.5, 0.3] + np.sqrt(noise_variance) * random.normal(size=40)
  precision = np.sum(design**2, axis=0) / noise_variance + 1.0
  mean = design.T @ targets / noise_variance / precision

  # The start is inside the region where a step on μ of size σ² is stable.
  layer = BayesianDense(1, use_bias=False, initial_scale=0.05, kernel_initializer='zeros')
  copies = 50  # Rows get independent noise: averages the gradient over as many samples.
  x = tf.constant(np.tile(design, (copies, 1)), tf.float32)
  y = tf.constant(np.tile(targets, copies)[:, np.newaxis], tf.float32)
  layer(x)
  loc, log_scale = layer.kernel.variables

  @tf.function
  def train(steps):
    for step in tf.range(steps):
      with bayes.noise.scope(tf.stack([7, step])), tf.GradientTape() as tape:
        squares = tf.reduce_sum(tf.square(y - layer(x, training=True))) / copies
        loss = 0.5 * squares / noise_variance + layer.kl_divergence()
      by_loc, by_log_scale = tape.gradient(loss, [loc, log_scale])
      rate = 1.0 / (1.0 + tf.cast(step, tf.float32) / 20.0)
      loc.assign_sub(rate * tf.square(layer.kernel.scale) * by_loc)
      log_scale.assign_sub(0.3 * rate * by_log_scale)

  train(tf.constant(1500))
  np.testing.assert_allclose(layer.kernel.scale.numpy()[:, 0], precision**-0.5, rtol=0.02)
  error = (tf.convert_to_tensor(loc).numpy()[:, 0] - mean) * np.sqrt(precision)
  np.testing.assert_allclose(error, 0.0, atol=0.05)


def test_reported_loss_is_mean_nll_plus_weighted_divergence():
  model = keras.Sequential(
    [
      keras.Input((3,)),
      BayesianDense(4, 'relu', initial_scale=1e-8, kl_weight=0.01),
      BayesianDense(2, initial_scale=1e-8, kl_weight=0.01),
    ]
  )
  random = np.random.default_rng(0)
  x = random.normal(size=(12, 3)).astype(np.float32)
  y = random.integers(0, 2, size=12)
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(keras.optimizers.SGD(0.0), loss)
  expected = float(loss(y, model(x))) + 0.01 * float(bayes.kl_divergence(model))
  for batch_size in (1, 5, 12):  # Whatever the batch, the divergence keeps its share.
    history = model.fit(x, y, batch_size=batch_size, verbose=0).history['loss']
    np.testing.assert_allclose(history, [expected], rtol=1e-5)


def test_b2_loss_reaches_tffs_keras_wrapper():
  tff = pytest.importorskip('tensorflow_federated')
  loss = keras.losses.MeanSquaredError()
  models = []

  def model_fn():
    network = keras.Sequential(
      [keras.Input((3,)), BayesianDense(1, initial_scale=1e-8, kl_weight=0.01)]
    )
    models.append(network)
    spec = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1]))
    return tff.learning.models.from_keras_model(network, loss, spec)

  wrapped = model_fn()
  x, y = tf.ones([5, 3]), tf.zeros([5, 1])
  expected = loss(y, models[0](x)) + 0.01 * bayes.kl_divergence(models[0])
  with tf.GradientTape() as tape:
    output = wrapped.forward_pass((x, y), training=True)
  np.testing.assert_allclose(output.loss, expected, rtol=1e-5)
  gradients = tape.gradient(output.loss, wrapped.trainable_variables)
  assert all(gradient is not None for gradient in gradients)


def test_unknown_estimator_and_bad_units_are_refused():
  with pytest.raises(ValueError, match='estimator'):
    BayesianDense(2, estimator='exact')
  with pytest.raises(ValueError, match='units'):
    BayesianDense(0)
