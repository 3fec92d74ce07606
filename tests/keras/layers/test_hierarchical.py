"""Tests of one layer on a shared and a private path."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability import distributions as tfd

import tffpers.keras as bayes
from tests.keras.layers.harness import policy
from tffpers.keras import layers
from tffpers.keras.backend import keras
from tffpers.keras.layers import BothPaths, Hierarchical

_RANDOM = np.random.default_rng(0)
ROWS, MORE_ROWS = _RANDOM.normal(size=(2, 4, 5)).astype(np.float32)
IMAGES, MORE_IMAGES = _RANDOM.normal(size=(2, 4, 6, 5, 2)).astype(np.float32)
STEPS, MORE_STEPS = _RANDOM.normal(size=(2, 4, 6, 3)).astype(np.float32)
IDS, MORE_IDS = _RANDOM.integers(0, 7, size=(2, 4, 6)).astype(np.int32)

# A layer without its last activation, that activation, and inputs of the two paths.
FORMULAS = {
  'dense': (lambda **kw: layers.BayesianDense(3, **kw), 'relu', ROWS, MORE_ROWS),
  'dense_rank_3': (lambda **kw: layers.BayesianDense(3, **kw), 'tanh', STEPS, MORE_STEPS),
  'conv': (lambda **kw: layers.BayesianConv2D(3, 2, **kw), 'relu', IMAGES, MORE_IMAGES),
  'embedding': (lambda **kw: layers.BayesianEmbedding(7, 3, **kw), None, IDS, MORE_IDS),
  'lstm': (lambda **kw: layers.BayesianLSTM(3, **kw), None, STEPS, MORE_STEPS),
  'lstm_sequences': (
    lambda **kw: layers.BayesianLSTM(3, return_sequences=True, **kw),
    None,
    STEPS,
    MORE_STEPS,
  ),
}
every_formula = pytest.mark.parametrize('name', FORMULAS)


def copy_posteriors(source, target):
  for a, b in zip(bayes.gaussian_weights(source), bayes.gaussian_weights(target), strict=True):
    for old, new in zip(a.variables, b.variables, strict=True):
      new.assign(tf.convert_to_tensor(old))


@every_formula
def test_private_outputs_enter_the_shared_layer_before_its_activation(name):
  make, activation, shared, private = FORMULAS[name]
  layer = Hierarchical(make() if activation is None else make(activation=activation))
  h_s, h_p = layer([tf.constant(shared), tf.constant(private)])
  linear = make()
  linear(shared)
  copy_posteriors(layer.shared, linear)
  np.testing.assert_array_equal(h_p, layer.private(private))
  act = keras.activations.get(activation)
  np.testing.assert_allclose(h_s, act(linear(shared) + layer.gate.gate * h_p), atol=1e-6)
  assert np.abs(h_s - act(linear(shared))).max() > 1e-4
  shapes = [shared.shape, private.shape]
  assert layer.compute_output_shape(shapes) == [tuple(h_s.shape), tuple(h_p.shape)]


@every_formula
def test_with_a_closed_gate_it_is_the_shared_layer_with_the_same_noise(name):
  make, activation, shared, private = FORMULAS[name]
  layer = Hierarchical(make() if activation is None else make(activation=activation))
  layer([shared, private])
  (gate,) = bayes.gates(layer)
  gate.assign(tf.zeros(gate.shape))
  for sample in (False, True):
    with bayes.noise.scope(tf.constant([1, 2]), sample=sample):
      h_s, _ = layer([shared, private])
      again, _ = layer([shared, private])
    with bayes.noise.scope(tf.constant([1, 2]), sample=sample):
      np.testing.assert_array_equal(h_s, layer.shared(shared))
      np.testing.assert_array_equal(again, layer.shared(shared))


def test_paths_of_equal_posteriors_have_different_noise():
  layer = Hierarchical(layers.BayesianDense(3, seed=5))
  layer([ROWS, ROWS])
  copy_posteriors(layer.shared, layer.private)
  layer.gate.gate.assign(tf.zeros([3]))
  for scope in (bayes.noise.scope(tf.constant([1, 2])), tf.name_scope('none')):
    with scope:
      h_s, h_p = layer([ROWS, ROWS], training=True)
    assert np.abs(h_s - h_p).min() > 0


def test_private_twin_has_weights_and_a_prior_of_its_own():
  shared = layers.BayesianDense(3, prior=0.5, kl_weight=0.1, initial_scale=0.3, seed=1)
  layer = Hierarchical(shared, private_prior=2.0)
  layer([ROWS, ROWS])
  assert layer.shared is shared
  assert not np.array_equal(shared.kernel.loc, layer.private.kernel.loc)
  assert [w.prior.scale.numpy() for w in (shared.kernel, layer.private.kernel)] == [0.5, 2.0]
  same = {'kl_weight', 'initial_scale', 'units', 'activation', 'estimator'}
  twin = layer.private.get_config()
  assert {key: twin[key] for key in same} == {key: shared.get_config()[key] for key in same}


@keras.utils.register_keras_serializable(package='tests')
def offset_prior(shape, dtype):
  return tfd.Normal(tf.ones(shape, dtype), tf.constant(0.5, dtype))


@pytest.mark.parametrize('prior', [None, 2.0, offset_prior])
def test_config_is_plain_json_and_round_trips(prior):
  layer = Hierarchical(layers.BayesianConv2D(3, 2, seed=4), private_prior=prior, name='both')
  clone = Hierarchical.from_config(layer.get_config())
  assert clone.get_config() == layer.get_config()
  assert clone.private.prior == (1.0 if prior is None else prior)
  pool = BothPaths(keras.layers.MaxPooling2D(2))
  assert BothPaths.from_config(pool.get_config()).get_config() == pool.get_config()


@pytest.mark.parametrize('name', ['mixed_bfloat16', 'mixed_float16', 'float64'])
def test_dtypes_follow_the_policy(name):
  with policy(name):
    layer = Hierarchical(layers.BayesianDense(3))
    inputs = tf.cast(ROWS, layer.compute_dtype)
    with tf.GradientTape() as tape:
      h_s, h_p = layer([inputs, inputs], training=True)
      loss = tf.reduce_sum(h_s)
    assert h_s.dtype == h_p.dtype == layer.compute_dtype
    gradients = tape.gradient(loss, layer.trainable_variables)
  wanted = tf.float64 if name == 'float64' else tf.float32
  assert all(tf.as_dtype(variable.dtype) == wanted for variable in layer.trainable_variables)
  assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


def test_ids_survive_a_half_precision_policy():
  ids = tf.constant([[2_999, 3_000]])
  with policy('mixed_bfloat16'):
    layer = Hierarchical(layers.BayesianEmbedding(3_001, 2))
    h_s, _ = layer([ids, ids])
    assert np.any(h_s[0, 0] != h_s[0, 1])


def test_masks_reach_each_path():
  layer = Hierarchical(layers.BayesianLSTM(3))
  lengths = tf.constant([3, 6, 2, 1])
  masks = [tf.sequence_mask(6 - lengths, 6), tf.sequence_mask(lengths, 6)]
  h_s, h_p = layer([STEPS, MORE_STEPS], mask=masks)
  np.testing.assert_array_equal(h_p, layer.private(MORE_STEPS, mask=masks[1]))
  expected = layer.shared(STEPS, mask=masks[0]) + layer.gate.gate * h_p
  np.testing.assert_allclose(h_s, expected, atol=1e-6)
  assert layer.compute_mask([STEPS, MORE_STEPS], masks) == [None, None]


def test_other_layers_are_refused():
  with pytest.raises(TypeError, match='Received: layer=Dense'):
    Hierarchical(keras.layers.Dense(3))
  with pytest.raises(TypeError, match='Received: layer=BayesianLSTMCell'):
    Hierarchical(layers.BayesianLSTMCell(3))
  with pytest.raises(ValueError, match='return_state'):
    Hierarchical(layers.BayesianLSTM(3, return_state=True))
  with pytest.raises(ValueError, match='has weights'):
    BothPaths(keras.layers.Dense(3))([tf.ones([2, 4]), tf.ones([2, 4])])
