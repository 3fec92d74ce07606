"""One harness that every algorithm passes."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import keras as tk
from tffpers import runtime, seeds
from tffpers.algorithms import (
  build_adaptive_experts,
  build_apfl,
  build_apple,
  build_fed_amp,
  build_fed_avg,
  build_fed_per,
  build_fed_prox,
  build_ifca,
  build_local,
  build_virtual,
  template,
)

SIZES = [10, 7, 5]
BUILDERS = {
  'adaptive_experts': functools.partial(
    build_adaptive_experts,
    model_fn=toy.plain_model,
    gate_model_fn=toy.gate_model,
    num_models=2,
    epsilon=0.5,
    local_optimizer=tff.learning.optimizers.build_adamw(0.01),
    gate_optimizer=tff.learning.optimizers.build_adamw(0.01),
    personal_epochs=2,
  ),
  'apfl': functools.partial(build_apfl, model_fn=toy.plain_model),
  'apple': functools.partial(
    build_apple, model_fn=toy.plain_model, client_num_examples=SIZES, rounds=10
  ),
  'apple_limited': functools.partial(
    build_apple, model_fn=toy.plain_model, client_num_examples=SIZES, rounds=10, max_downloads=1
  ),
  'fed_amp': functools.partial(
    build_fed_amp, model_fn=toy.plain_model, num_clients=3, mu=0.1, sigma=1.0, self_weight=0.5
  ),
  'ifca': functools.partial(build_ifca, model_fn=toy.plain_model, num_models=2),
  'fed_avg': functools.partial(build_fed_avg, model_fn=toy.plain_model),
  'fed_prox': functools.partial(build_fed_prox, mu=0.1, model_fn=toy.plain_model),
  'fed_per': functools.partial(
    build_fed_per, model_fn=toy.plain_model, partition=tk.last_blocks(1), head_epochs=1
  ),
  'local': functools.partial(build_local, model_fn=toy.plain_model),
  'virtual_hierarchical': functools.partial(
    build_virtual,
    model_fn=lambda: tk.hierarchical(toy.bayesian_model()),
    client_num_examples=SIZES,
  ),
  'virtual': functools.partial(
    build_virtual, model_fn=toy.bayesian_model, client_num_examples=SIZES
  ),
}


@functools.cache
def built(name, **overrides):
  return BUILDERS[name](**toy.settings(**overrides))


@pytest.fixture(params=BUILDERS)
def name(request):
  return request.param


@pytest.fixture
def process(name):
  return built(name)


def test_same_seed_gives_the_same_bits(process):
  toy.assert_equal(
    toy.run(process, SIZES, [[0, 1], [2, 1]]), toy.run(process, SIZES, [[0, 1], [2, 1]])
  )


def test_another_seed_gives_other_weights(process):
  # Local training has nothing at the server.
  a, b = (toy.run(process, SIZES, [[0, 1]], seed) for seed in (1, 2))
  a, b = (a[0].model, a[1]), (b[0].model, b[1])
  assert any(np.any(x != y) for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True))


def test_order_of_clients_does_not_matter(process):
  server, clients, _, _ = toy.run(process, SIZES, [[0, 1, 2], [0, 2]])
  other, shuffled, _, _ = toy.run(process, SIZES, [[2, 0, 1], [2, 0]])
  toy.assert_close((server.model, clients), (other.model, shuffled), rtol=1e-5, atol=1e-6)


def test_noise_differs_between_equal_clients(name):
  """Equal data and state, other seeds: shuffles and noise must differ."""
  process = BUILDERS[name](**toy.settings(batch_size=1))
  server, clients = toy.start(process, [10, 10])
  data = [{'train': toy.examples(0, 10), 'seed': np.array([i, 5], np.int32)} for i in range(2)]
  _, (a, b), _, _ = process.next(server, [clients[0]] * 2, data)
  assert any(np.any(x != y) for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True))


def test_client_state_is_the_same_whenever_it_is_initialised(process):
  """A client that enters late gets what it would have had at the start."""
  server, _, _, _ = toy.run(process, SIZES, [[0, 1]])
  first = toy.start(process, SIZES)[1]
  late = process.initialize_client(
    server,
    [template.ClientInfo(i, n, seeds.derive(1, 'client', str(i))) for i, n in enumerate(SIZES)],
  )
  toy.assert_equal(late, first)


def test_evaluation_is_repeatable_and_changes_nothing(process):
  server, clients, _, _ = toy.run(process, SIZES, [[0, 1]])
  before = tf.nest.map_structure(np.copy, (server, clients))
  data = [toy.completed(process.evaluate, i, toy.held_out(i, 9)) for i in range(3)]
  toy.assert_equal(process.evaluate(server, clients, data), process.evaluate(server, clients, data))
  toy.assert_equal((server, clients), before)


def test_client_without_examples_has_no_influence_and_keeps_its_state(process):
  server, clients = toy.start(process, SIZES)
  data = [toy.train_data(0, 10), toy.train_data(1, 0)]
  with_empty = process.next(server, clients[:2], data)
  toy.assert_equal(with_empty[1][1], clients[1])
  assert with_empty[3][1]['num_examples'] == 0
  assert np.isnan(with_empty[3][1]['loss'])
  alone = process.next(server, clients[:1], data[:1])
  toy.assert_equal(with_empty[0].model, alone[0].model)
  toy.assert_equal(with_empty[1][0], alone[1][0])


def test_round_of_empty_clients_changes_nothing(process):
  server, clients = toy.start(process, SIZES)
  after, new, metrics, _ = process.next(server, clients, [toy.train_data(i, 0) for i in range(3)])
  toy.assert_equal((after.model, new), (server.model, clients))
  assert metrics['num_clients'] == 3


def test_round_without_clients_changes_nothing(process):
  server, _ = toy.start(process, SIZES)
  after, new, metrics, client_metrics = process.next(server, [], [])
  toy.assert_equal(after.model, server.model)
  assert metrics['num_clients'] == 0
  assert (new, client_metrics) == ([], [])


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_client_with_non_finite_data_is_masked_counted_and_keeps_its_state(name, value):
  # VIRTUAL's default damping counts the client before its result is known to be bad.
  process = built(name, **({'damping': 0.5} if name.startswith('virtual') else {}))
  server, clients = toy.start(process, SIZES)
  bad = toy.train_data(1, 7)
  bad['train']['x'][3, 1] = value
  after, new, metrics, client_metrics = process.next(
    server, clients[:2], [toy.train_data(0, 10), bad]
  )
  assert metrics['num_nonfinite'] == 1
  assert client_metrics[1]['nonfinite'] == 1
  toy.assert_equal(new[1], clients[1])
  empty, _, _, _ = process.next(server, clients[:2], [toy.train_data(0, 10), toy.train_data(1, 0)])
  toy.assert_equal(after.model, empty.model)


def test_one_example_trains(process):
  server, clients = toy.start(process, SIZES)
  after, new, _, (metrics,) = process.next(server, clients[:1], [toy.train_data(0, 1)])
  assert metrics['num_examples'] == 1
  assert any(
    np.any(x != y)
    for x, y in zip(tf.nest.flatten(new[0]), tf.nest.flatten(clients[0]), strict=True)
  )


def test_evaluation_of_no_data_is_missing_not_zero(process):
  server, clients = toy.start(process, SIZES)
  (result,) = process.evaluate(
    server, clients[:1], [toy.completed(process.evaluate, 0, toy.held_out(0, 0))]
  )
  for part in result.values():
    assert np.isnan(part['loss'])
    assert np.isnan(part['accuracy'])
    assert part['num_examples'] == 0


def test_evaluation_of_a_long_client_is_the_mean_over_all_examples(process):
  """More examples than one evaluation batch, against two halves recombined."""
  server, clients = toy.start(process, SIZES)
  whole = toy.held_out(0, 301)
  halves = [
    {'test': {k: v[part] for k, v in whole['test'].items()}, 'seed': whole['seed']}
    for part in (slice(0, 100), slice(100, None))
  ]
  all_, *parts = process.evaluate(
    server,
    [clients[0]] * 3,
    [toy.completed(process.evaluate, 0, data) for data in (whole, *halves)],
  )
  for model, measured in all_.items():
    for key in ('loss', 'accuracy'):
      mean = (100 * parts[0][model][key] + 201 * parts[1][model][key]) / 301
      np.testing.assert_allclose(measured[key], mean, rtol=1e-5)


def aggregations(computation):
  """Types of all values that go from CLIENTS to SERVER, by intrinsic."""
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(computation.to_building_block())
  block = tff.framework.to_call_dominant(block)
  found = []

  def visit(node):
    if isinstance(node, tff.framework.Call) and isinstance(node.function, tff.framework.Intrinsic):
      takes = node.argument is not None and tff.types.contains(
        node.argument.type_signature,
        lambda t: isinstance(t, tff.FederatedType) and t.placement is tff.CLIENTS,
      )
      gives = isinstance(node.type_signature, tff.FederatedType) and (
        node.type_signature.placement is tff.SERVER
      )
      if takes and gives:
        argument = node.argument
        if isinstance(argument, tff.framework.Struct):
          argument = argument[0]
        found.append((node.function.uri, argument.type_signature.member))
    return node, False

  tff.framework.transform_postorder(block, visit)
  return found


def own_model(server):
  """One client's model [d], whether it counts, and its place."""
  model = tff.TensorType(server.models.dtype, server.models.shape[1:])
  return tff.StructType([model, np.int32, np.int32])


def cluster_model(server):
  """The change of one of the models, its weight, and its place."""
  one = [tff.TensorType(t.dtype, t.shape[1:]) for t in tff.structure.flatten(server.models)]
  return tff.StructType([*one, np.float32, np.int32])


# What each algorithm declares to send: types of the server's own model, by name.
DECLARED = {
  'adaptive_experts': cluster_model,
  'apfl': lambda model: model.weights,
  'apple': own_model,
  'apple_limited': own_model,
  'fed_amp': own_model,
  'ifca': cluster_model,
  'fed_avg': lambda model: model.weights,
  'fed_prox': lambda model: model.weights,
  'fed_per': lambda model: model.weights,
  'local': lambda model: model.weights,
  'virtual': lambda model: model.posterior,
  'virtual_hierarchical': lambda model: model.posterior,
}


def leaf_types(type_):
  return sorted(str(t) for t in tff.structure.flatten(type_))


def test_v14_every_path_to_the_server_is_a_declared_aggregate_of_the_update(name):
  """Aggregates take the update's value, its weight and counts, and nothing else."""
  process = built(name)
  value = leaf_types(DECLARED[name](process.server_state_type.member.model))
  found = aggregations(process.next)
  assert {uri for uri, _ in found} <= {'federated_aggregate', 'federated_sum'}
  members = sorted((leaf_types(m) if isinstance(m, tff.StructType) else [str(m)]) for _, m in found)
  # The number of clients, their weights and how many withhold theirs; besides, VIRTUAL counts
  # the clients with data and a mean needs the sum of the weights.
  counts = [['float32', 'int32', 'int32']]
  if DECLARED[name] not in (own_model, cluster_model):
    counts.append(['int32' if name.startswith('virtual') else 'float32'])
  assert members == sorted([value, *counts])
  assert aggregations(process.evaluate) == []
  assert aggregations(process.initialize_client) == []
  if process.personalize is not None:
    assert aggregations(process.personalize) == []


def test_same_round_on_both_runtimes(process):
  here = toy.run(process, SIZES, [[0, 1], [2, 0]])
  with runtime.running('native'):
    there = toy.run(process, SIZES, [[0, 1], [2, 0]])
  toy.assert_close(here, there, rtol=1e-5, atol=1e-5)


def test_model_that_was_built_already_is_refused(name):
  model = toy.plain_model()
  arguments = {**BUILDERS[name].keywords, **toy.settings()}
  with pytest.raises(TypeError, match='new model at each call'):
    BUILDERS[name].func(**{**arguments, 'model_fn': lambda: model})
  with pytest.raises(TypeError, match='must be a function'):
    BUILDERS[name].func(**{**arguments, 'model_fn': model})


def test_model_without_weights_is_refused(name):
  arguments = {**BUILDERS[name].keywords, **toy.settings()}
  arguments['model_fn'] = lambda: tf.keras.Sequential(
    [tf.keras.layers.InputLayer([3]), tf.keras.layers.Flatten()]
  )
  with pytest.raises(ValueError, match='no trainable variables'):
    BUILDERS[name].func(**arguments)


@pytest.mark.parametrize(
  ('argument', 'value', 'error'),
  [
    ('epochs', -1, ValueError),
    ('epochs', 1.5, ValueError),
    ('batch_size', 0, ValueError),
    ('clip_norm', 0.0, ValueError),
    ('optimizer', tf.keras.optimizers.SGD(0.1), TypeError),
    ('element_spec', tf.TensorSpec([3]), TypeError),
  ],
)
def test_wrong_argument_is_refused_by_name(name, argument, value, error):
  with pytest.raises(error, match=f'{argument}.*Received'):
    BUILDERS[name](**toy.settings(**{argument: value}))


def test_unknown_argument_is_refused(name):
  with pytest.raises(TypeError, match='momentum'):
    BUILDERS[name](**toy.settings(momentum=0.9))


def test_hyper_parameters_are_plain_and_complete(process):
  text = json.dumps(process.hyper_parameters)
  assert '"epochs": 2' in text
  assert '"learning_rate": 0.1' in text.replace('0.10000000149011612', '0.1')
