"""Federated reconstruction against numbers worked by hand and the methods it turns into."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy
from test_every_algorithm import aggregations

from tffpers import datasets, runtime, simulation
from tffpers import keras as tk
from tffpers.algorithms import build_fed_avg, build_fed_recon
from tffpers.algorithms.fed_recon import reconstruction_model

SIZES = [10, 7, 5]
layers = tf.keras.layers


@functools.cache
def fed_recon(k=1, model_fn=toy.plain_model, **overrides):
  return build_fed_recon(
    model_fn=model_fn, partition=tk.last_blocks(k), **toy.settings(**overrides)
  )


def weights(server):
  return server.global_model_weights.trainable


def both_data(client, n):
  return {**toy.held_out(client, 9), 'train': toy.examples(client, n)}


def three_weights():
  """b·x, then h·(b·x) + c: b is shared, h = 2 and c = 0 are where heads start."""
  start = tf.keras.initializers.Constant(2.0)
  return tf.keras.Sequential(
    [
      layers.InputLayer([1]),
      layers.Dense(1, use_bias=False, kernel_initializer='ones'),
      layers.Dense(1, kernel_initializer=start),
    ]
  )


@functools.cache
def linear(**overrides):
  column = tf.TensorSpec([1], tf.float32)
  given = {
    'loss_fn': lambda y, p: 0.5 * tf.reduce_sum(tf.square(p - y), -1),
    'metrics_fn': lambda: [],
    'element_spec': (column, column),
    'epochs': 1,
    'batch_size': 10,
  }
  return fed_recon(1, three_weights, **{**given, **overrides})


def columns(x, y):
  return {name: np.asarray(v, np.float32)[:, None] for name, v in (('x', x), ('y', y))}


def linear_round(process):
  server, clients = toy.start(process, [1, 3])
  seed = np.array([1, 2], np.int32)
  data = [
    {'train': columns([1], [0]), 'seed': seed},
    {'train': columns([1, 1, 1], [3, 3, 3]), 'seed': seed},
  ]
  return process.next(server, clients, data)


def test_a_round_worked_by_hand():
  """The head steps with the base frozen, then the base with the head frozen."""
  # Client a: x = 1, y = 0. Prediction 2: h = 2 − 0.1·2 = 1.8, c = −0.2. Prediction 1.6: the
  # base's gradient is 1.6·1.8, so b = 1 − 0.288 = 0.712.
  # Client b: three times x = 1, y = 3. Prediction 2: h = 2.1, c = 0.1. Prediction 2.2: the
  # gradient is −0.8·2.1, so b = 1.168.
  server, clients, metrics, client_metrics = linear_round(linear())
  np.testing.assert_allclose(weights(server), [[[(0.712 + 3 * 1.168) / 4]]], rtol=1e-6)
  assert clients == [(), ()]
  assert metrics == {'num_clients': 2, 'weight': 4.0, 'num_nonfinite': 0}
  assert [m['num_examples'] for m in client_metrics] == [1, 3]
  assert [m['bytes_up'] for m in client_metrics] == [m['bytes_down'] for m in client_metrics]
  assert client_metrics[0]['bytes_up'] == 4


def test_passes_and_rate_of_the_reconstruction_are_its_own():
  process = linear(
    reconstruction_epochs=2, reconstruction_optimizer=tff.learning.optimizers.build_sgdm(0.2)
  )
  # a: (h, c) = (1.6, −0.4), prediction 1.2; (1.36, −0.64), prediction 0.72.
  # b: (2.2, 0.2), prediction 2.4; (2.32, 0.32), prediction 2.64.
  a, b = 1 - 0.1 * 0.72 * 1.36, 1 + 0.1 * 0.36 * 2.32
  np.testing.assert_allclose(weights(linear_round(process)[0]), [[[(a + 3 * b) / 4]]], rtol=1e-6)


def test_evaluation_reconstructs_on_training_data_and_measures_on_test_data():
  process = linear()
  server, clients = toy.start(process, [1, 1])
  data = [
    {'train': columns(*train), 'test': columns([2], [0]), 'seed': np.array([1, 2], np.int32)}
    for train in (([1], [0]), ([], []))
  ]
  # h = 1.8 and c = −0.2 predict 3.4; without training data h = 2 and c = 0 predict 4.
  results = process.evaluate(server, clients, data)
  losses = [result['client']['loss'] for result in results]
  np.testing.assert_allclose(losses, [0.5 * 3.4**2, 0.5 * 4.0**2], rtol=1e-6)
  assert set(results[0]) == {'client'}


def noisy_model():
  """Dropout, and a penalty on the weights."""
  return tf.keras.Sequential(
    [
      layers.InputLayer([toy.NUM_FEATURES]),
      layers.Dense(4, 'tanh', kernel_regularizer=tf.keras.regularizers.L2(0.1)),
      layers.Dropout(0.3),
      layers.Dense(toy.NUM_CLASSES),
    ]
  )


@pytest.mark.parametrize('clip_norm', [None, 0.05])
def test_nothing_personal_is_fed_avg_with_the_same_batches_noise_and_penalties(clip_norm):
  overrides = {'clip_norm': clip_norm, 'server_optimizer': None}
  rounds = [[0, 1], [2, 0]]
  ours = toy.run(fed_recon(0, noisy_model, **overrides), SIZES, rounds)[0]
  fed_avg = build_fed_avg(model_fn=noisy_model, **toy.settings(**overrides))
  theirs = toy.run(fed_avg, SIZES, rounds)[0]
  toy.assert_close(weights(ours), theirs.model.weights.trainable)


def constant_model():
  """Starts at the same values whoever draws them."""
  start = tf.keras.initializers.Constant(np.linspace(-0.5, 0.8, 12).reshape(3, 4))
  return tf.keras.Sequential(
    [
      layers.InputLayer([toy.NUM_FEATURES]),
      layers.Dense(4, 'tanh', kernel_initializer=start),
      layers.Dense(toy.NUM_CLASSES, kernel_initializer='ones'),
    ]
  )


@pytest.mark.parametrize('k', [0, 1])
def test_full_batches_give_what_tffs_process_gives_on_the_converted_partition(k):
  process = fed_recon(k, constant_model, batch_size=10)
  ours, _, _, _ = toy.run(process, SIZES, [[0, 1]])
  sgd = tff.learning.optimizers.build_sgdm(0.1)
  model = tff.learning.models.ReconstructionModel
  theirs = tff.learning.algorithms.build_fed_recon(
    lambda: reconstruction_model(constant_model, tk.last_blocks(k), toy.ELEMENT_SPEC),
    loss_fn=lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    client_optimizer_fn=sgd,
    reconstruction_optimizer_fn=sgd,
    dataset_split_fn=model.build_dataset_split_fn(post_recon_epochs=2),
  )
  data = [
    tf.data.Dataset.from_tensors(tuple(toy.examples(i, n).values())) for i, n in ((0, 10), (1, 7))
  ]
  # The state is TFF's own.
  state = theirs.next(toy.start(process, SIZES)[0], data).state
  toy.assert_close(weights(ours), weights(state), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  'rule',
  [
    tk.last_blocks(0),
    tk.last_blocks(1, normalization='personal_statistics'),
    tk.last_blocks(1, normalization='personal'),
    tk.named(lambda path: path == 'batch'),
    tk.named(lambda path: True),
  ],
)
def test_every_partition_converts_to_tffs_model(rule):
  def model_fn():
    dense = [layers.Dense(4), layers.BatchNormalization(name='batch'), layers.Dense(2)]
    return tf.keras.Sequential([layers.InputLayer([3]), *dense])

  expected = rule(model_fn())
  model = reconstruction_model(model_fn, rule, toy.ELEMENT_SPEC)
  sizes = [
    sum(int(tf.size(v)) for v in (*group.trainable, *group.non_trainable))
    for group in (model.get_global_variables(model), model.get_local_variables(model))
  ]
  assert sizes == [expected.num_shared, expected.num_personal]
  output = model.forward_pass((tf.zeros([5, 3]), tf.zeros([5], tf.int32)))
  assert output.predictions.shape == (5, 2) and output.num_examples == 5


def test_same_seed_gives_the_same_bits_and_another_one_others():
  a, b, other = (toy.run(fed_recon(), SIZES, [[0, 1], [2, 1]], seed) for seed in (1, 1, 2))
  toy.assert_equal(a, b)
  assert np.any(weights(a[0])[0] != weights(other[0])[0])


def test_order_of_clients_does_not_matter():
  server, _, _, _ = toy.run(fed_recon(), SIZES, [[0, 1, 2], [0, 2]])
  other, _, _, _ = toy.run(fed_recon(), SIZES, [[2, 0, 1], [2, 0]])
  toy.assert_close(server, other, rtol=1e-5, atol=1e-6)


def test_personal_variables_start_from_a_clients_seed():
  """With all examples in a batch nothing else is drawn."""
  process = fed_recon(batch_size=100)
  server, clients = toy.start(process, [10])
  results = [
    weights(process.next(server, clients, [{'train': toy.examples(0, 10), 'seed': seed}])[0])
    for seed in (np.array([i, 5], np.int32) for i in (0, 0, 1))
  ]
  toy.assert_equal(results[0], results[1])
  assert np.any(results[0][0] != results[2][0])


def test_evaluation_is_repeatable_and_changes_nothing():
  process = fed_recon()
  server, clients, _, _ = toy.run(process, SIZES, [[0, 1]])
  before = tf.nest.map_structure(np.copy, server)
  data = [both_data(i, n) for i, n in enumerate(SIZES)]
  toy.assert_equal(process.evaluate(server, clients, data), process.evaluate(server, clients, data))
  toy.assert_equal(server, before)
  assert process.evaluation_point == 'after'


def test_personal_variables_are_in_no_state_and_on_no_path_to_the_server():
  process = fed_recon()
  state = process.server_state_type.member
  assert str(state.global_model_weights) == (
    '<trainable=<float32[3,4],float32[4]>,non_trainable=<>>'
  )
  assert str(process.client_state_type.member) == '<>'
  found = aggregations(process.next)
  assert {uri for uri, _ in found} <= {'federated_aggregate', 'federated_sum'}
  shapes = (
    {str(t) for _, member in found for t in tff.structure.flatten(member)} if found else set()
  )
  # The change of the shared variables, weights and counts; of 2 classes there is no trace.
  assert shapes == {'float32[3,4]', 'float32[4]', 'float32', 'int32'}
  assert aggregations(process.evaluate) == aggregations(process.initialize_client) == []


@pytest.mark.parametrize('chosen', [[1], []])
def test_round_without_examples_or_clients_changes_nothing(chosen):
  process = fed_recon(server_optimizer=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9))
  server, clients, _, _ = toy.run(process, SIZES, [[0]])
  after, new, metrics, _ = process.next(
    server, [clients[i] for i in chosen], [toy.train_data(i, 0) for i in chosen]
  )
  toy.assert_equal(after, server)
  assert metrics == {'num_clients': len(chosen), 'weight': 0.0, 'num_nonfinite': 0}
  assert new == [()] * len(chosen)


@pytest.mark.parametrize('value', [np.nan, np.inf, None])
def test_client_that_is_not_finite_or_empty_has_no_influence(value):
  process = fed_recon()
  server, clients = toy.start(process, SIZES)
  bad = toy.train_data(1, 0 if value is None else 7)
  if value is not None:
    bad['train']['x'][3, 1] = value
  after, _, metrics, _ = process.next(server, clients[:2], [toy.train_data(0, 10), bad])
  alone, _, _, _ = process.next(server, clients[:1], [toy.train_data(0, 10)])
  toy.assert_equal(after, alone)
  assert metrics['num_nonfinite'] == (value is not None)


def test_same_round_on_both_runtimes():
  here = toy.run(fed_recon(), SIZES, [[0, 1], [2, 0]])
  with runtime.running('native'):
    there = toy.run(fed_recon(), SIZES, [[0, 1], [2, 0]])
  toy.assert_close(here, there, rtol=1e-5, atol=1e-5)


def test_run_evaluates_clients_that_have_no_training_data(tmp_path):
  examples = {str(i): tuple(toy.examples(i, 9).values()) for i in range(3)}
  train = datasets.FederatedDataset.from_arrays({key: examples[key] for key in '01'})
  test = datasets.FederatedDataset.from_arrays(examples)
  arguments = {'clients_per_round': None, 'seed': 1, 'test_data': test, 'progress': False}
  whole = simulation.run(fed_recon(), train, rounds=2, **arguments)
  for rounds in (1, 2):
    resumed = simulation.run(
      fed_recon(), train, rounds=rounds, output_dir=tmp_path, resume=True, **arguments
    )
  toy.assert_equal(whole.server_state, resumed.server_state)
  assert whole.history == resumed.history
  assert whole.clients['2']['num_train'] == 0
  assert np.isfinite(whole.clients['2']['client_loss'])


def with_statistics():
  return tf.keras.Sequential(
    [
      layers.InputLayer([toy.NUM_FEATURES]),
      layers.Dense(4, activation='tanh'),
      layers.BatchNormalization(name='norm'),
      layers.Dense(toy.NUM_CLASSES),
    ]
  )


def test_shared_moving_statistics_are_refused_and_personal_ones_are_reconstructed():
  with pytest.raises(ValueError, match=r"personal_statistics.*Received.*\['norm'\]"):
    fed_recon(1, with_statistics)
  process = build_fed_recon(
    model_fn=with_statistics,
    partition=tk.last_blocks(1, normalization='personal_statistics'),
    **toy.settings(),
  )
  server, clients = toy.start(process, SIZES)
  assert server.global_model_weights.non_trainable == []
  after, _, _, _ = process.next(server, clients[:1], [toy.train_data(0, 10)])
  (result,) = process.evaluate(after, clients[:1], [both_data(0, 10)])
  assert np.isfinite(result['client']['loss'])


@pytest.mark.parametrize(
  ('overrides', 'error', 'match'),
  [
    ({'partition': 1}, TypeError, 'partition=1'),
    ({'partition': lambda model: model}, TypeError, 'Partition.*Received'),
    ({'partition': tk.last_blocks(9)}, ValueError, '9'),
    ({'partition': tk.tagged()}, ValueError, 'personal'),
    ({'reconstruction_epochs': -1}, ValueError, 'reconstruction_epochs=-1'),
    ({'reconstruction_optimizer': 0.1}, TypeError, 'optimizer'),
    ({'epochs': 1.5}, ValueError, 'epochs.*Received'),
    ({'batch_size': 0}, ValueError, 'batch_size.*Received'),
    ({'clip_norm': 0.0}, ValueError, 'clip_norm.*Received'),
    ({'aggregator': tff.aggregators.SumFactory()}, TypeError, 'aggregator='),
    ({'momentum': 0.9}, TypeError, 'momentum'),
  ],
)
def test_wrong_arguments_are_refused(overrides, error, match):
  arguments = {'model_fn': toy.plain_model, 'partition': tk.last_blocks(1), **toy.settings()}
  with pytest.raises(error, match=match):
    build_fed_recon(**{**arguments, **overrides})


def test_hyper_parameters_are_plain_and_complete():
  values = json.loads(json.dumps(fed_recon().hyper_parameters))
  assert values['algorithm'] == 'fed_recon' and values['reconstruction_epochs'] == 1
  assert values['reconstruction_optimizer'] == values['optimizer']
  assert values['personal_trainable'] == [False, False, True, True]
