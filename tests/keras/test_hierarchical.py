"""Tests of VIRTUAL's hierarchical network."""

import json
import os
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense, BayesianEmbedding, BayesianLSTM

ROOT = pathlib.Path(__file__).parents[2]
_RANDOM = np.random.default_rng(0)
IMAGES = _RANDOM.normal(size=(4, 16, 16, 1)).astype(np.float32)
TEXT = _RANDOM.integers(0, 10, size=(4, 6)).astype(np.int32)
CNN = {'input_shape': (16, 16, 1), 'filters': (3, 4), 'hidden': (5,), 'num_classes': 2}
LSTM = {'vocabulary_size': 9, 'embedding_size': 3, 'lstm_units': 4, 'sequence_length': 6}

# Builder, its arguments, inputs, widths of the gates.
NETWORKS = {
  'mlp': (
    bayes.models.mlp,
    {'input_shape': (16, 16, 1), 'hidden': (6, 5), 'num_classes': 2},
    IMAGES,
    [6, 5, 2],
  ),
  'cnn': (bayes.models.cnn, CNN, IMAGES, [3, 4, 5, 2]),
  'char_lstm': (bayes.models.char_lstm, LSTM, TEXT, [3, 4, 4, 10]),
}
every_network = pytest.mark.parametrize('name', NETWORKS)


def make(name, **kwargs):
  builder, arguments, inputs, _ = NETWORKS[name]
  return builder(**arguments, bayesian=True, **kwargs), inputs


def set_gates(model, value):
  for gate in bayes.gates(model):
    gate.assign(tf.fill(gate.shape, value))


def with_kl(weight):
  """A small network whose layers add their own divergence."""
  return bayes.hierarchical(
    [
      keras.Input((16, 16, 1)),
      keras.layers.Flatten(),
      BayesianDense(4, 'relu', kl_weight=weight),
      keras.layers.Dropout(0.25),
      BayesianDense(1, kl_weight=weight),
    ],
    private_prior=0.5,
  )


def test_two_units_by_hand():
  """x = 2: h_p = relu(2, −1.5) = (2, 0), h_s = relu((−1.75, 3) + (½, 3) ⊙ h_p) = (0, 3)."""
  model = bayes.hierarchical([keras.Input((1,)), BayesianDense(2, 'relu'), BayesianDense(1)])
  shared = [[[-1.0, 2.0]], [0.25, -1.0], [[5.0], [2.0]], [0.0]]
  private = [[[1.0, -1.0]], [0.0, 0.5], [[1.0], [1.0]], [0.5]]
  for weights, values in (
    (bayes.shared_gaussian_weights(model), shared),
    (bayes.private_gaussian_weights(model), private),
  ):
    for weight, value in zip(weights, values, strict=True):
      weight.loc.assign(value)
  for gate, value in zip(bayes.gates(model), ([0.5, 3.0], [0.1]), strict=True):
    gate.assign(value)
  # Logits: h_p = 2 + 0 + ½, h_s = 5·0 + 2·3 + 0.1·h_p.
  np.testing.assert_allclose(model(tf.constant([[2.0]])), [[6.25]], rtol=1e-6)
  bayes.gates(model)[0].assign([1.0, 3.0])  # −1.75 + 2 opens the first unit.
  np.testing.assert_allclose(model(tf.constant([[2.0]])), [[5 * 0.25 + 6.25]], rtol=1e-6)


@every_network
def test_with_all_gates_0_it_is_the_shared_only_network_bit_for_bit(name):
  model, inputs = make(name, hierarchical=True)
  alone, _ = make(name)
  for a, b in zip(bayes.shared_gaussian_weights(model), bayes.gaussian_weights(alone), strict=True):
    b.loc.assign(tf.convert_to_tensor(a.loc))
  opened = model(inputs).numpy()
  set_gates(model, 0.0)
  np.testing.assert_array_equal(model(inputs), alone(inputs))
  assert np.abs(opened - alone(inputs)).max() > 1e-5
  with bayes.noise.scope(tf.constant([1, 2])):
    sample = model(inputs, training=True)
  with bayes.noise.scope(tf.constant([1, 2])):
    np.testing.assert_array_equal(sample, alone(inputs, training=True))


def test_a_given_sequential_stays_the_shared_only_network():
  alone = bayes.models.cnn(**CNN, bayesian=True)
  before = alone(IMAGES)
  model = bayes.hierarchical(alone)
  assert bayes.shared_gaussian_weights(model) == bayes.gaussian_weights(alone)
  set_gates(model, 0.0)
  np.testing.assert_array_equal(model(IMAGES), before)
  np.testing.assert_array_equal(alone(IMAGES), before)


@every_network
def test_every_variable_is_shared_private_or_a_gate(name):
  model, inputs = make(name, hierarchical=True)
  groups = [
    [v for weight in bayes.shared_gaussian_weights(model) for v in weight.variables],
    [v for weight in bayes.private_gaussian_weights(model) for v in weight.variables],
    bayes.gates(model),
  ]
  ids = [id(variable) for group in groups for variable in group]
  assert len(set(ids)) == len(ids)
  assert set(ids) == {id(variable) for variable in model.trainable_variables}
  assert [id(v) for v in bayes.deterministic_weights(model)] == [id(v) for v in groups[2]]
  assert [tuple(gate.shape) for gate in groups[2]] == [(n,) for n in NETWORKS[name][3]]
  alone, _ = make(name)
  assert bayes.private_gaussian_weights(alone) == bayes.gates(alone) == []
  assert bayes.shared_gaussian_weights(alone) == bayes.gaussian_weights(alone)
  shapes = [weight.shape for weight in bayes.gaussian_weights(alone)]
  for weights in (bayes.shared_gaussian_weights(model), bayes.private_gaussian_weights(model)):
    assert [weight.shape for weight in weights] == shapes
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.square(model(inputs, training=True)))
  for variable, gradient in zip(
    model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
  ):
    assert gradient is not None, variable.name


@pytest.mark.parametrize(
  ('builder', 'weights', 'units'),
  [
    (bayes.models.mlp, 784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10, 100 + 100 + 10),
    (
      bayes.models.cnn,
      (25 * 32 + 32) + (25 * 32 * 64 + 64) + (4 * 4 * 64 * 100 + 100) + 10_100 + 1_010,
      32 + 64 + 100 + 100 + 10,
    ),
    (
      bayes.models.char_lstm,
      87 * 8 + (8 + 100 + 1) * 400 + (100 + 100 + 1) * 400 + 101 * 87,
      8 + 100 + 100 + 87,
    ),
  ],
)
def test_default_networks_have_the_papers_sizes(builder, weights, units):
  model = builder(bayesian=True, hierarchical=True)
  for group in (bayes.shared_gaussian_weights(model), bayes.private_gaussian_weights(model)):
    assert sum(np.prod(weight.shape) for weight in group) == weights
  assert sum(gate.shape[0] for gate in bayes.gates(model)) == units
  trainable = sum(np.prod(variable.shape) for variable in model.trainable_variables)
  assert trainable == 4 * weights + units


def test_the_divergence_counts_both_paths_once():
  model = with_kl(0.25)
  groups = bayes.shared_gaussian_weights(model), bayes.private_gaussian_weights(model)
  scales = [{float(weight.prior.scale) for weight in group} for group in groups]
  assert scales == [{1.0}, {0.5}]
  expected = sum(weight.kl_divergence() for group in groups for weight in group)
  np.testing.assert_allclose(bayes.kl_divergence(model), expected, rtol=1e-6)
  for _ in range(2):
    model(IMAGES, training=True)
    np.testing.assert_allclose(sum(model.losses), 0.25 * expected, rtol=1e-6)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_fits_with_and_without_xla_and_keeps_gates_non_negative(jit_compile):
  keras.utils.set_random_seed(0)
  model = with_kl(1e-5)
  set_gates(model, 1e-3)
  start = [tf.convert_to_tensor(v).numpy() for v in model.trainable_variables]
  model.compile(keras.optimizers.SGD(0.02), 'mse', jit_compile=jit_compile)
  targets = np.array([[-1.0], [1.0], [2.0], [0.5]])
  losses = model.fit(IMAGES, targets, epochs=20, verbose=0).history['loss']
  assert losses[-1] < losses[0]
  end = [tf.convert_to_tensor(v).numpy() for v in model.trainable_variables]
  assert all(np.any(a != b) for a, b in zip(start, end, strict=True))
  gates = [tf.convert_to_tensor(gate).numpy() for gate in bayes.gates(model)]
  assert min(gate.min() for gate in gates) == 0.0  # Some gate was pushed below and stopped.


def test_padding_is_masked_on_both_paths():
  model = bayes.hierarchical(
    [keras.Input((None,), dtype='int32'), BayesianEmbedding(9, 3, mask_zero=True), BayesianLSTM(4)]
  )
  ids = tf.constant([[1, 2, 3], [4, 5, 6]])
  padded = tf.pad(ids, [[0, 0], [2, 1]])
  np.testing.assert_allclose(model(padded), model(ids), atol=1e-6)


def test_clone_has_the_same_parts_and_new_weights():
  model = with_kl(0.1)
  clone = keras.models.clone_model(model)
  assert [w.path for w in bayes.private_gaussian_weights(clone)] == [
    w.path for w in bayes.private_gaussian_weights(model)
  ]
  assert not set(map(id, clone.variables)) & set(map(id, model.variables))
  clone.set_weights(model.get_weights())
  np.testing.assert_array_equal(clone(IMAGES), model(IMAGES))


_LOAD = """
import json, sys
import numpy as np
import tensorflow as tf
import tffpers.keras as bayes
from tffpers.keras.backend import keras

folder = sys.argv[1]
for name in ('mlp', 'cnn', 'char_lstm', 'with_kl'):
  data = np.load(f'{folder}/{name}.npz')
  rebuilt = keras.models.model_from_json(open(f'{folder}/{name}.json').read())
  rebuilt.load_weights(f'{folder}/{name}.weights.h5')
  stored = [keras.models.load_model(f'{folder}/{name}.{ext}') for ext in ('keras', 'h5')]
  for model in (*stored, rebuilt):
    np.testing.assert_allclose(model(data['inputs']), data['outputs'], atol=1e-6)
    np.testing.assert_allclose(bayes.kl_divergence(model), data['divergence'], rtol=1e-6)
    for weight, loc in zip(bayes.private_gaussian_weights(model), data['private'], strict=True):
      assert tf.reduce_sum(weight.loc) == loc
    model.compile('sgd', 'mse')
    model.fit(data['inputs'], np.zeros_like(data['outputs']), verbose=0)
    assert min(np.min(gate) for gate in bayes.gates(model)) >= 0
print('loaded')
"""


def test_loads_and_trains_in_a_new_process_without_custom_objects(tmp_path):
  networks = {name: make(name, hierarchical=True) for name in NETWORKS}
  for name, (model, inputs) in (networks | {'with_kl': (with_kl(0.1), IMAGES)}).items():
    model.compile('sgd', 'mean_squared_error')
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # Keras calls .h5 a legacy format.
      for extension in ('keras', 'h5'):
        model.save(tmp_path / f'{name}.{extension}')
    model.save_weights(tmp_path / f'{name}.weights.h5')
    (tmp_path / f'{name}.json').write_text(json.dumps(json.loads(model.to_json())))
    np.savez(
      tmp_path / f'{name}.npz',
      inputs=inputs,
      outputs=model(inputs),
      divergence=bayes.kl_divergence(model),
      private=[tf.reduce_sum(w.loc) for w in bayes.private_gaussian_weights(model)],
    )
  done = subprocess.run(
    [sys.executable, '-c', _LOAD, str(tmp_path)],
    env=os.environ | {'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': '-1'},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.stdout.strip().endswith('loaded'), done.stderr[-3000:]


def test_trains_in_a_federated_computation_from_the_shared_only_networks_start():
  tff = pytest.importorskip('tensorflow_federated')
  from tffpers import inspection, modelling, runtime, seeds

  element = (tf.TensorSpec([16, 16, 1]), tf.TensorSpec([2]))

  def spec(**kwargs):
    return inspection.inspect_model(
      lambda: make('cnn', **kwargs)[0], keras.losses.MeanSquaredError(), list, element
    )

  def initial_shared(bound):
    return [bound.initial_value(w.loc) for w in bayes.shared_gaussian_weights(bound.model)]

  @tff.tensorflow.computation
  def initial_alone():
    return initial_shared(modelling.bind(spec(), tf.constant([7, 8])))

  @tff.tensorflow.computation(tff.TensorType(np.int32))
  def trained(steps):
    bound = modelling.bind(spec(hierarchical=True), tf.constant([7, 8]))

    def step(count):
      seed = seeds.fold(tf.constant([1, 2]), count)
      with seeds.keras_randomness(seed), tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(bound.model(IMAGES, training=True) - 3.0))
      gradients = tape.gradient(loss, bound.trainable)
      for variable, gradient in zip(bound.trainable, gradients, strict=True):
        variable.assign(variable - 0.05 * gradient)
      bayes.project_gates(bound.model)
      return count + 1

    @tf.function
    def run():
      bound.assign(bound.initial)
      tf.while_loop(lambda count: count < steps, step, [0], parallel_iterations=1)
      gates = [gate.read_value() for gate in bayes.gates(bound.model)]
      return gates, bound.model(IMAGES, training=False)

    return initial_shared(bound), *run()

  with runtime.running('in_process'):
    alone = initial_alone()
    initial, start, before = trained(0)
    again = trained(20)
  for a, b in zip(alone, initial, strict=True):
    np.testing.assert_array_equal(a, b)
  assert np.square(again[2] - 3.0).mean() < 0.1 * np.square(before - 3.0).mean()
  assert all(np.any(a != b) and b.min() >= 0 for a, b in zip(start, again[1], strict=True))


def test_what_cannot_be_split_is_refused():
  stack = [keras.Input((3,)), BayesianDense(2)]
  with pytest.raises(ValueError, match='has weights'):
    bayes.hierarchical([*stack, keras.layers.BatchNormalization()])
  with pytest.raises(ValueError, match='keras.Input'):
    bayes.hierarchical(stack[1:])
  for builder, arguments, *_ in NETWORKS.values():
    with pytest.raises(ValueError, match='Received: hierarchical=True'):
      builder(**arguments, bayesian=False, hierarchical=True)


def seconds(model, images, steps=10):
  variables = model.trainable_variables

  @tf.function
  def train(count):
    for step in tf.range(count):
      with bayes.noise.scope(tf.stack([1, step])), tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(images, training=True)))
      for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(1e-3 * gradient)

  train(tf.constant(2))
  durations = []
  for _ in range(5):
    start = time.process_time()  # Counts no work of other processes.
    train(tf.constant(steps))
    durations.append(time.process_time() - start)
  return min(durations)


def test_a_step_costs_about_two_shared_only_steps():
  images = tf.ones([20, 28, 28, 1])
  alone = seconds(bayes.models.cnn(bayesian=True), images)
  assert seconds(bayes.models.cnn(bayesian=True, hierarchical=True), images) < 3 * alone
