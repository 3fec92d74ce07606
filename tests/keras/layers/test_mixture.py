"""Tests of the mixture of experts and its gate."""

import numpy as np
import pytest
import tensorflow as tf

from tests.keras.layers.harness import policy
from tffpers.keras import mixing
from tffpers.keras.backend import keras
from tffpers.keras.layers import MixtureOfExperts, SoftmaxGate

FEATURES, CLASSES = 5, 4
INPUTS = np.random.default_rng(0).normal(size=(7, FEATURES)).astype(np.float32)


def dense(units=CLASSES, **kwargs):
  return keras.layers.Dense(units, bias_initializer='random_normal', **kwargs)


def constant(values):
  """A layer that returns the same logits for each example."""
  return keras.layers.Dense(
    len(values), kernel_initializer='zeros', bias_initializer=keras.initializers.Constant(values)
  )


def mixture(num_experts=3, **kwargs):
  experts = [dense(name=f'expert_{e}') for e in range(num_experts)]
  return MixtureOfExperts(experts, SoftmaxGate(num_experts, name='gate'), **kwargs)


def model():
  """A dropout model among the experts, and a gate with a network of its own."""
  inputs = keras.Input((FEATURES,))
  inner = keras.Sequential(
    [keras.Input((FEATURES,)), keras.layers.Dropout(0.5), dense()], name='expert_b'
  )
  network = keras.Sequential([keras.Input((FEATURES,)), dense(6, activation='relu')], name='net')
  layer = MixtureOfExperts(
    [dense(name='expert_a'), inner, dense(name='expert_c')],
    SoftmaxGate(3, network, name='gate'),
    name='mixture',
  )
  return keras.Model(inputs, layer(inputs))


def probabilities(logits):
  return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def test_b10_gate_is_positive_and_sums_to_1_whatever_its_logits():
  gate = SoftmaxGate(3)
  gate(INPUTS)
  gate.set_weights([100 * np.ones((FEATURES, 3)), np.array([0.0, -50.0, 1.0])])
  g = tf.exp(gate(INPUTS)).numpy()
  assert (g >= 0).all()
  np.testing.assert_allclose(g.sum(-1), np.ones(7), rtol=1e-6)


@pytest.mark.parametrize('num_experts', [1, 2, 5])
def test_b10_mixture_sums_to_1_and_is_the_sum_over_experts(num_experts):
  layer = mixture(num_experts)
  p = tf.exp(layer(INPUTS)).numpy()
  np.testing.assert_allclose(p.sum(-1), np.ones(7), rtol=1e-5)
  g = tf.exp(layer.gate(INPUTS)).numpy()
  expected = sum(
    g[:, [e]] * probabilities(expert(INPUTS).numpy()) for e, expert in enumerate(layer.experts)
  )
  np.testing.assert_allclose(p, expected, rtol=1e-5)


def test_b10_finite_with_finite_gradients_where_an_expert_gives_probability_0():
  gate = tf.Variable([[0.3, -0.2]])
  experts = tf.Variable([[[-np.inf, 0.0, 1.0], [2.0, 0.0, -1e30]]])
  with tf.GradientTape() as tape:
    log_p = mixing.log_mixture(gate, experts)
    loss = -tf.reduce_sum(log_p)
  assert np.isfinite(log_p.numpy()).all()
  assert all(np.isfinite(g.numpy()).all() for g in tape.gradient(loss, [gate, experts]))


def test_b11_one_hot_gate_returns_that_expert_exactly():
  logits = np.random.default_rng(1).normal(size=(6, 3, CLASSES)).astype(np.float32)
  for gate in ([0.0, -np.inf, -np.inf], [0.0, -1e9, -1e9]):
    log_p = mixing.log_mixture(tf.constant([gate] * 6), logits)
    np.testing.assert_allclose(log_p, tf.nn.log_softmax(logits[:, 0]), rtol=1e-6)


def test_b11_equal_gates_are_the_mean_of_probabilities():
  logits = np.random.default_rng(1).normal(size=(6, 3, CLASSES)).astype(np.float32)
  p = tf.exp(mixing.log_mixture(tf.zeros([6, 3]), logits))
  np.testing.assert_allclose(p, probabilities(logits).mean(1), rtol=1e-5)


def test_b11_permuting_experts_with_the_gates_columns_changes_nothing():
  layer = mixture()
  outputs = layer(INPUTS)
  gate_kernel, gate_bias = layer.gate.get_weights()
  order = [2, 0, 1]
  permuted = MixtureOfExperts([layer.experts[e] for e in order], SoftmaxGate(3))
  permuted(INPUTS)
  permuted.gate.set_weights([gate_kernel[:, order], gate_bias[order]])
  np.testing.assert_allclose(permuted(INPUTS), outputs, rtol=1e-5)


def test_b11_negative_gate_logits_act():
  """A ReLU on them would give equal gates."""
  experts = [constant([1.0, 0.0]), constant([0.0, 1.0])]
  layer = MixtureOfExperts(experts, constant([-3.0, -1.0]))
  g = probabilities(np.array([-3.0, -1.0]))
  p = probabilities(np.array([1.0, 0.0]))
  np.testing.assert_allclose(tf.exp(layer(INPUTS))[0], g[0] * p + g[1] * p[::-1], rtol=1e-5)


@pytest.mark.parametrize('batch', [1, 2, CLASSES, 7])
def test_b12_a_batch_equals_its_stacked_examples(batch):
  """Also where the batch is as large as the number of classes, or of experts."""
  layer = mixture(CLASSES)
  together = layer(INPUTS[:batch])
  alone = tf.concat([layer(INPUTS[i : i + 1]) for i in range(batch)], 0)
  np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_one_gate_per_example_or_one_per_step_of_a_sequence():
  steps = np.random.default_rng(2).normal(size=(3, 6, FEATURES)).astype(np.float32)
  per_step = mixture(2)(steps)
  assert per_step.shape == (3, 6, CLASSES)
  pooled = keras.Sequential([keras.layers.GlobalAveragePooling1D(), dense(2)])
  layer = MixtureOfExperts([dense(), dense()], pooled)
  log_p = layer(steps)
  g = probabilities(pooled(steps).numpy())[:, None]
  first, second = (probabilities(expert(steps).numpy()) for expert in layer.experts)
  np.testing.assert_allclose(tf.exp(log_p), g[..., :1] * first + g[..., 1:] * second, rtol=1e-5)


def test_a_further_softmax_leaves_the_probabilities():
  log_p = mixture()(INPUTS)
  np.testing.assert_allclose(tf.nn.softmax(log_p), tf.exp(log_p), rtol=1e-5)


# Keras 3 has no folder format.
FORMATS = ['.keras', '.weights.h5', *([] if hasattr(keras, 'ops') else [''])]


@pytest.mark.parametrize('suffix', FORMATS)
def test_saved_and_loaded_model_predicts_the_same_and_trains_on(suffix, tmp_path):
  saved, path = model(), str(tmp_path / f'mixture{suffix}')
  if suffix != '.weights.h5':
    saved.save(path)
    loaded = keras.models.load_model(path)
  else:
    saved.save_weights(path)
    loaded = model()
    loaded.load_weights(path)
  np.testing.assert_array_equal(loaded(INPUTS), saved(INPUTS))
  loaded.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))
  history = loaded.fit(INPUTS, np.arange(7) % CLASSES, epochs=1, verbose=0).history
  assert np.isfinite(history['loss'][0])


def test_config_rebuilds_the_layer():
  layer = mixture(name='mine')
  layer(INPUTS)
  again = MixtureOfExperts.from_config(layer.get_config())
  again(INPUTS)
  again.set_weights(layer.get_weights())
  assert again.name == 'mine'
  np.testing.assert_array_equal(again(INPUTS), layer(INPUTS))


@pytest.mark.parametrize('frozen', [0, 1, 2])
def test_m6_freezing_one_of_equal_experts_swaps_no_weights(frozen):
  original, other = model(), model()
  other.get_layer('mixture').experts[frozen].trainable = False
  other.set_weights(original.get_weights())
  np.testing.assert_array_equal(other(INPUTS), original(INPUTS))
  for a, b in zip(
    original.get_layer('mixture').experts, other.get_layer('mixture').experts, strict=True
  ):
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
      np.testing.assert_array_equal(x, y)


def test_frozen_expert_stays_and_the_gate_learns():
  trained = model()
  layer = trained.get_layer('mixture')
  for expert in layer.experts:
    expert.trainable = False
  before = [w.copy() for expert in layer.experts for w in expert.get_weights()]
  gate = [w.copy() for w in layer.gate.get_weights()]
  trained.compile(
    keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  )
  trained.fit(INPUTS, np.arange(7) % CLASSES, epochs=2, verbose=0)
  after = [w for expert in layer.experts for w in expert.get_weights()]
  assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
  assert any(np.any(a != b) for a, b in zip(gate, layer.gate.get_weights(), strict=True))


@pytest.mark.parametrize('name', ['mixed_bfloat16', 'mixed_float16', 'float64'])
def test_outputs_of_half_precision_experts_are_float32(name):
  with policy(name):
    outputs = mixture()(tf.cast(INPUTS, 'float64' if name == 'float64' else 'float32'))
  assert outputs.dtype == (tf.float64 if name == 'float64' else tf.float32)
  np.testing.assert_allclose(tf.reduce_sum(tf.exp(outputs), -1), np.ones(7), rtol=1e-5)


def test_gate_with_another_number_of_outputs_is_refused():
  with pytest.raises(ValueError, match='one logit per expert, 2'):
    MixtureOfExperts([dense(), dense()], dense(3))(INPUTS)


def test_gate_of_more_targets_than_experts_have_is_refused():
  crossed = keras.Sequential([keras.layers.RepeatVector(4), dense(2)])
  with pytest.raises(ValueError, match='one gate per target'):
    MixtureOfExperts([dense(), dense()], crossed)(INPUTS[:4])


def test_experts_of_different_classes_are_refused():
  with pytest.raises(ValueError, match='as many logits'):
    MixtureOfExperts([dense(2), dense(3)], dense(2))(INPUTS)


def test_no_experts_or_one_layer_twice_are_refused():
  with pytest.raises(ValueError, match='at least one expert'):
    MixtureOfExperts([], dense(1))
  same = dense()
  with pytest.raises(ValueError, match='must be different layers'):
    MixtureOfExperts([same, same], dense(2))
