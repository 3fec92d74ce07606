"""One harness that every algorithm passes."""

import functools
import json

import linear
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import algorithms, runtime, seeds
from tffpers import keras as tk
from tffpers.algorithms import (
  build_adaptive_experts,
  build_apfl,
  build_apple,
  build_fed_amp,
  build_fed_avg,
  build_fed_fomo,
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
  'fed_fomo': functools.partial(
    build_fed_fomo, model_fn=toy.plain_model, num_clients=3, max_downloads=1
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


def round_data(process, client, n):
  return toy.completed(process.next, client, toy.train_data(client, n))


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
  data = [{**round_data(process, 0, 10), 'seed': np.array([i, 5], np.int32)} for i in range(2)]
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
  data = [round_data(process, 0, 10), round_data(process, 1, 0)]
  with_empty = process.next(server, clients[:2], data)
  toy.assert_equal(with_empty[1][1], clients[1])
  assert with_empty[3][1]['num_examples'] == 0
  assert np.isnan(with_empty[3][1]['loss'])
  alone = process.next(server, clients[:1], data[:1])
  toy.assert_equal(with_empty[0].model, alone[0].model)
  toy.assert_equal(with_empty[1][0], alone[1][0])


def test_round_of_empty_clients_changes_nothing(process):
  server, clients = toy.start(process, SIZES)
  data = [round_data(process, i, 0) for i in range(3)]
  after, new, metrics, _ = process.next(server, clients, data)
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
  good, bad, nothing = (round_data(process, i, n) for i, n in ((0, 10), (1, 7), (1, 0)))
  bad['train']['x'][3, 1] = value
  after, new, metrics, client_metrics = process.next(server, clients[:2], [good, bad])
  assert metrics['num_nonfinite'] == 1
  assert client_metrics[1]['nonfinite'] == 1
  toy.assert_equal(new[1], clients[1])
  empty, _, _, _ = process.next(server, clients[:2], [good, nothing])
  toy.assert_equal(after.model, empty.model)


def test_one_example_trains(process):
  server, clients = toy.start(process, SIZES)
  _, new, _, (metrics,) = process.next(server, clients[:1], [round_data(process, 0, 1)])
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


def calls(computation):
  """Intrinsics that a computation calls, with the types of what they take and give."""
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(computation.to_building_block())
  block = tff.framework.to_call_dominant(block)
  found = []

  def visit(node):
    if isinstance(node, tff.framework.Call) and isinstance(node.function, tff.framework.Intrinsic):
      taken = node.argument.type_signature
      taken = list(taken) if isinstance(taken, tff.StructType) else [taken]
      found.append((node.function.uri, taken, node.type_signature))
    return node, False

  tff.framework.transform_postorder(block, visit)
  return found


def aggregations(computation):
  """Types of all values that go from CLIENTS to SERVER, by intrinsic."""

  def at(type_, placement):
    return isinstance(type_, tff.FederatedType) and type_.placement is placement

  return [
    (uri, taken[0].member)
    for uri, taken, given in calls(computation)
    if at(given, tff.SERVER) and any(at(type_, tff.CLIENTS) for type_ in taken)
  ]


def own_model(server):
  """One client's model [d], whether it counts, and its place."""
  model = tff.TensorType(server.models.dtype, server.models.shape[1:])
  return tff.StructType([model, np.int32, np.int32])


def natural_parameters(server):
  """Changes of both of the posterior's, which travel as float32."""
  leaves = tff.structure.flatten(server.posterior)
  return tff.StructType([tff.TensorType(np.float32, t.shape) for t in leaves])


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
  'fed_fomo': own_model,
  'ifca': cluster_model,
  'fed_avg': lambda model: model.weights,
  'fed_prox': lambda model: model.weights,
  'fed_per': lambda model: model.weights,
  'local': lambda model: model.weights,
  'virtual': natural_parameters,
  'virtual_hierarchical': natural_parameters,
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


def test_traffic_is_that_of_every_client_with_or_without_data_and_result(process):
  """What a client withholds goes up as zeros, and it receives what all receive."""
  server, clients = toy.start(process, SIZES)
  data = [round_data(process, i, n) for i, n in enumerate((10, 0, 5))]
  data[2]['train']['x'][3, 1] = np.nan
  _, _, _, metrics = process.next(server, clients, data)
  assert [m['num_examples'] for m in metrics] == [10, 0, 5]
  first, *others = ({name: int(m[name]) for name in TRAFFIC} for m in metrics)
  assert others == [first, first]


def base_and_head(dense=tf.keras.layers.Dense):
  """Three weights, then one and its bias: 12 + 8 bytes."""
  return tf.keras.Sequential(
    [tf.keras.layers.InputLayer([3]), dense(1, use_bias=False), dense(1, name='head')]
  )


def two_logits():
  """Three weights, then two: as many bytes, and two classes."""
  dense = functools.partial(tf.keras.layers.Dense, use_bias=False)
  return tf.keras.Sequential([tf.keras.layers.InputLayer([3]), dense(1), dense(2)])


def cross_entropy(y, logits):
  return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y[:, 0], tf.int32), logits)


def two_clusters(build, **overrides):
  return functools.partial(build, num_models=2, **overrides)


TRAFFIC = ('models_up', 'models_down', 'bytes_up', 'bytes_down')
# Of three clients: how it is built, bytes up by which the server only counts clients, and
# `TRAFFIC` of a client in each round. The counts are clients, weight and non-finite ones, 12
# bytes; a mean needs the sum of the weights, VIRTUAL the clients with data, 4 bytes more.
WORKED = {
  'fed_avg': (build_fed_avg, 16, [(1, 1, 20, 20)]),
  'fed_prox': (functools.partial(build_fed_prox, mu=0.1), 16, [(1, 1, 20, 20)]),
  'apfl': (build_apfl, 16, [(1, 1, 20, 20)]),
  'fed_per': (functools.partial(build_fed_per, partition=tk.last_blocks(1)), 16, [(1, 1, 12, 12)]),
  # TFF sums the weight twice here, and those that count instead of those that do not.
  'fed_recon': (
    functools.partial(algorithms.build_fed_recon, partition=tk.last_blocks(1)),
    20,
    [(1, 1, 12, 12)],
  ),
  'local': (build_local, 16, [(0, 0, 0, 0)]),
  # Two numbers a weight: float32 up; float64 down, with the round's clients and ρ.
  'virtual': (
    functools.partial(
      build_virtual,
      model_fn=lambda: base_and_head(tk.layers.BayesianDense),
      client_num_examples=[2, 1, 0],
    ),
    16,
    [(1, 1, 5 * 8, 5 * 16 + 4 + 8)],
  ),
  # Up the place and the weight; down which models are active, seed, voting and check.
  'ifca': (two_clusters(build_ifca), 12, [(1, 2, 20 + 8, 2 * 20 + 2 + 8 + 2)]),
  # Besides the ballot on 50 starts, for either model or none; candidates come down as a seed.
  'ifca_balanced': (
    two_clusters(build_ifca, initial_models='balanced'),
    12,
    [(1, 0, 28 + 50 * 3 * 4, 12), (1, 2, 28 + 50 * 3 * 4, 2 * 20 + 12)],
  ),
  # Besides the sum and the number of validation losses.
  'adaptive_experts': (
    two_clusters(
      build_adaptive_experts,
      model_fn=two_logits,
      loss_fn=cross_entropy,
      metrics_fn=list,
      gate_model_fn=toy.gate_model,
      local_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      gate_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      personal_epochs=1,
      patience=9,
    ),
    12,
    [(1, 2, 28 + 8, 2 * 20 + 12)],
  ),
  # Up the place, the count and what is asked for.
  'fed_amp': (
    functools.partial(build_fed_amp, num_clients=3, mu=0.1, sigma=1.0, self_weight=0.5),
    12,
    [(1, 1, 20 + 8 + 4, 20)],
  ),
  # Down the number of the round too.
  'fed_fomo': (
    functools.partial(build_fed_fomo, num_clients=3),
    12,
    [(1, 2, 20 + 8 + 2 * 4, 2 * 20 + 4)],
  ),
  'apple_limited': (
    functools.partial(build_apple, client_num_examples=[2, 1, 0], rounds=9, max_downloads=1),
    12,
    [(1, 1, 20 + 8 + 4, 20 + 4)],
  ),
  # All cores are broadcast, though a client has its own.
  'apple': (
    functools.partial(build_apple, client_num_examples=[2, 1, 0], rounds=9),
    12,
    [(1, 2, 20 + 8, 3 * 20 + 4)],
  ),
}


def linear_data(computation, n):
  rows = linear.examples([[1, 2, 3]] * n, [1] * n)
  fields = [name for name, _ in tff.structure.iter_elements(toy.data_type(computation))]
  return {name: linear.SEED if name == 'seed' else rows for name in fields}


def size(type_, length):
  """Bytes of a value; sequences have the given length."""
  if isinstance(type_, tff.FederatedType):
    return size(type_.member, length)
  if isinstance(type_, tff.SequenceType):
    return length * size(type_.element, length)
  if isinstance(type_, tff.StructType):
    return sum(size(part, length) for part in type_)
  return int(np.prod(type_.shape)) * np.dtype(type_.dtype).itemsize


@pytest.mark.parametrize('name', WORKED)
def test_traffic_worked_by_hand_is_what_the_computation_sends(name):
  build, counts, rounds = WORKED[name]
  process = build(**{**linear.settings(model_fn=base_and_head), **keywords_of(build)})
  server, clients = toy.start(process, [2, 1, 0])
  sent = calls(process.next)
  for models_up, models_down, bytes_up, bytes_down in rounds:
    data = [linear_data(process.next, n) for n in (2, 1, 0)]
    server, clients, _, metrics = process.next(server, clients, data)
    expected = dict(zip(TRAFFIC, (models_up, models_down, bytes_up, bytes_down), strict=True))
    assert [{key: m[key] for key in TRAFFIC} for m in metrics] == [expected] * 3
    up = sum(size(type_, 0) for _, type_ in aggregations(process.next))
    # A client gets as many slices as it asks for.
    up += sum(size(taken[0], 0) for uri, taken, _ in sent if uri == 'federated_select')
    down = [
      size(given, models_down)
      for uri, _, given in sent
      if uri in ('federated_broadcast', 'federated_select')
    ]
    assert (up - counts, sum(down)) == (bytes_up, bytes_down)


def keywords_of(build):
  return getattr(build, 'keywords', {})


def test_every_algorithm_has_its_traffic_worked():
  built_by = {getattr(build, 'func', build) for build, _, _ in WORKED.values()}
  assert built_by == {getattr(algorithms, name) for name in algorithms.__all__}


@pytest.mark.parametrize(
  ('name', 'overrides', 'expected'),
  [
    # All models and whether each was ever picked.
    ('adaptive_experts', {}, (0, 2, 0, 2 * 20 + 2)),
    ('fed_avg', {'fine_tune_epochs': 1}, (0, 1, 0, 20)),
  ],
)
def test_personal_phase_tells_what_it_downloads(name, overrides, expected):
  build = WORKED[name][0]
  arguments = linear.settings(model_fn=base_and_head, **overrides)
  process = build(**{**arguments, **keywords_of(build)})
  server, clients = toy.start(process, [2])
  _, (metrics,) = process.personalize(server, clients, [linear_data(process.personalize, 2)])
  assert tuple(int(metrics[key]) for key in TRAFFIC) == expected
  (down,) = (given for uri, _, given in calls(process.personalize) if uri == 'federated_broadcast')
  assert size(down, 0) == expected[-1]


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
