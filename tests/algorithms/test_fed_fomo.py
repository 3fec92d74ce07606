"""FedFomo against numbers worked by hand and local training."""

import functools

import linear
import numpy as np
import pytest
import tensorflow as tf
import toy

from tffpers import datasets, modelling, seeds, simulation
from tffpers.algorithms import build_fed_avg, build_fed_fomo, fed_fomo
from tffpers.algorithms.fed_fomo import Exploration, FomoClient

MODELS = np.array([[2, 0, 0], [0, 0, 0], [1, 0, 0], [5, 0, 0]], np.float32)


@functools.cache
def three_weights(**overrides):
  return build_fed_fomo(num_clients=4, **linear.settings(**overrides))


@functools.cache
def network(num_clients=3, **overrides):
  return build_fed_fomo(
    num_clients=num_clients, **toy.settings(model_fn=toy.plain_model, **overrides)
  )


def train_data(client, n, round_=0, num_validation=4):
  """Training data with validation data of the same client."""
  data = toy.train_data(client, n, round_)
  return {
    'train': data['train'],
    'validation': toy.examples(200 + client, num_validation),
    'seed': data['seed'],
  }


def one_round(process, models, theta, affinity=(0, 0, 0, 0)):
  """A round of the first client, whose validation loss is half the first weight's square."""
  server, clients = toy.start(process, [1] * 4)
  server = server._replace(model=server.model._replace(models=models))
  weights = clients[0].weights._replace(trainable=[models[0][:, None]])
  client = clients[0]._replace(
    weights=weights, start=np.float32(theta), affinity=np.float32(affinity)
  )
  data = {**linear.data(([0, 1, 0], 1)), 'validation': linear.examples([[1, 0, 0]], [0])}
  after, (new,), _, (metrics,) = process.next(server, [client], [data])
  return after, new, metrics


def test_mixing_and_one_step_worked_by_hand():
  after, new, metrics = one_round(three_weights(), MODELS, [4, 0, 0], [0, 0.5, 0, 2])
  # Validation losses ½ (4, 2, 0, 1, 5)²: 8 at θ, then 2, 0, ½, 12.5; distances 2, 4, 3, 1.
  # Slopes 6/2 = 3, 8/4 = 2, 7.5/3 = 2.5, negative; their sum 7.5: ω = 6/15, 4/15, 5/15, 0.
  # θ = (6 · 2 + 4 · 0 + 5 · 1)/15 = 17/15; the step adds 0.1 to the second weight.
  np.testing.assert_allclose(new.start, [17 / 15, 0, 0], rtol=1e-6)
  np.testing.assert_allclose(new.weights.trainable[0][:, 0], [17 / 15, 0.1, 0], rtol=1e-6)
  np.testing.assert_allclose(new.affinity, [0, 0.5 + 4 / 15, 5 / 15, 2], rtol=1e-6)
  np.testing.assert_array_equal(after.model.models[0], new.weights.trainable[0][:, 0])
  np.testing.assert_array_equal(after.model.models[1:], MODELS[1:])
  assert metrics['num_gaining'] == 2
  assert (metrics['models_up'], metrics['models_down'], metrics['bytes_down']) == (1, 3, 36 + 4)


@pytest.mark.parametrize('theta', [[2.5, 0, 0], [1, 0, 0]])
def test_own_model_is_kept_bit_for_bit_where_no_other_gains(theta):
  """Whether or not it is better than θ itself."""
  own = np.array([2, 0.3, 0.7], np.float32)
  _, new, metrics = one_round(three_weights(), np.stack([own, *MODELS[[3, 3, 3]]]), theta)
  np.testing.assert_array_equal(new.start, own)
  assert metrics['num_gaining'] == 0
  assert not np.any(new.affinity)


def weights_of(start, candidates, validation):
  """ω of models of three weights."""
  spec = modelling.ModelSpec(
    linear.model, linear.half_squared_error, list, linear.SPEC, None, 1, (1,), ''
  )

  @tf.function(autograph=False)
  def compute(start, candidates):
    return fed_fomo.weights_of(spec, bound, start, candidates, batch)

  batch = tf.nest.map_structure(tf.constant, validation)
  bound = modelling.BoundModel(model := linear.model(), model.trainable_variables, [], None)
  return compute(tf.constant(start, tf.float32), tf.constant(candidates, tf.float32)).numpy()


def test_equal_models_and_missing_validation_data_have_no_weight():
  validation = linear.examples([[1, 0, 0]], [0])
  equal = [[2.0, 0, 0], [1, 0, 0]]
  np.testing.assert_array_equal(weights_of([2, 0, 0], equal, validation), [0, 1])
  np.testing.assert_array_equal(weights_of([0, 0, 0], equal, validation), [0, 0])
  nothing = linear.examples([], [])
  np.testing.assert_array_equal(weights_of([2, 0, 0], equal, nothing), [0, 0])


def test_without_any_gain_it_is_local_training_bit_for_bit():
  """No validation data, no ω. Beside FedAvg whose server is set to the client's model."""
  process = network()
  local = build_fed_avg(**toy.settings(model_fn=toy.plain_model))
  server, clients = toy.start(process, [10, 7, 5])
  alone, others = toy.start(local, [10])
  for r in range(2):
    data = [train_data(i, n, r, num_validation=0) for i, n in enumerate([10, 7, 5])]
    server, clients, _, metrics = process.next(server, clients, data)
    assert metrics[0]['num_gaining'] == 0
    alone = alone._replace(model=alone.model._replace(weights=others[0].weights))
    _, others, _, _ = local.next(alone, others, [toy.train_data(0, 10, r)])
    toy.assert_equal(clients[0].weights, others[0].weights)


def requests(exploration, index, affinity, count, finished=0):
  """Keys of `count` independent requests."""
  client = FomoClient(tf.constant(index), None, None, tf.constant(affinity, tf.float32))

  @tf.function
  def draw(numbers):
    return tf.map_fn(
      lambda i: fed_fomo.request(
        exploration, tf.constant(finished), client, seeds.fold(linear.SEED, i)
      ),
      numbers,
    )

  return draw(tf.range(count)).numpy()


def test_requests_are_the_largest_affinities_except_when_exploring():
  affinity = [0.5, 0.1, 0.9, 0.4, 0.0]
  greedy = requests(Exploration(5, 2, 0.0, 0.0), 2, affinity, 20)
  assert set(map(tuple, greedy.tolist())) == {(0, 3)}
  exploring = requests(Exploration(5, 2, 1.0, 0.0), 2, affinity, 400)
  assert all(len(set(k)) == 2 for k in exploring.tolist())
  np.testing.assert_allclose(
    np.bincount(exploring.ravel(), minlength=5) / 400, [0.5, 0.5, 0, 0.5, 0.5], atol=0.1
  )
  some = requests(Exploration(5, 2, 0.6, 0.1), 2, affinity, 3000, finished=2)
  # ε = 0.4 each time: the first is 0 with 0.6 + 0.4/4, the second then 3 with 0.6 + 0.4/3.
  for pair, share in (((0, 3), 0.7 * (0.6 + 0.4 / 3)), ((1, 0), 0.1 * (0.6 + 0.4 / 3))):
    assert abs(np.mean([tuple(k) == pair for k in some.tolist()]) - share) < 0.025
  decayed = requests(Exploration(5, 2, 0.4, 0.1), 2, affinity, 20, finished=9)
  assert set(map(tuple, decayed.tolist())) == {(0, 3)}


def test_ties_of_affinity_are_broken_at_random():
  keys = requests(Exploration(5, 1, 0.0, 0.0), 1, [0.0] * 5, 400)
  np.testing.assert_allclose(
    np.bincount(keys[:, 0], minlength=5) / 400, [0.25, 0, 0.25, 0.25, 0.25], atol=0.08
  )


@pytest.mark.parametrize(('limit', 'down'), [(None, 2), (1, 1), (9, 2)])
def test_traffic_is_one_model_up_and_the_downloads_down(limit, down):
  _, _, _, metrics = toy.run(network(max_downloads=limit), [10, 7, 5], [[0, 1, 2]])
  for numbers in metrics:
    assert (numbers['models_up'], numbers['models_down']) == (1, down)
    assert numbers['bytes_down'] == down * 26 * 4 + 4
    assert numbers['bytes_up'] == 26 * 4 + 8 + 4 * down


@pytest.mark.parametrize('field', ['train', 'validation'])
def test_non_finite_data_change_neither_the_server_nor_another_client(field):
  process = network()
  server, clients, _, _ = toy.run(process, [10, 7, 5], [[0, 1, 2]])
  data = [train_data(0, 10, 1), train_data(1, 7, 1)]
  data[1][field]['x'][2, 1] = np.nan
  after, new, totals, _ = process.next(server, clients[:2], data)
  alone, one, _, _ = process.next(server, clients[:1], data[:1])
  toy.assert_equal(new[0], one[0])
  if field == 'train':
    assert totals['num_nonfinite'] == 1
    toy.assert_equal((after.model, new[1]), (alone.model, clients[1]))
  else:
    # Nothing can be said of the others, so the client trains alone.
    assert totals['num_nonfinite'] == 0
    toy.assert_equal(new[1].affinity, clients[1].affinity)
    assert np.all(np.isfinite(after.model.models))


def test_simulation_gives_clients_their_validation_data():
  def data(offset):
    return datasets.FederatedDataset.from_arrays(
      {f'c{i}': tuple(toy.examples(offset + i, 6).values()) for i in range(3)}
    )

  result = simulation.run(
    network(),
    data(0),
    rounds=2,
    clients_per_round=3,
    seed=1,
    test_data=data(100),
    validation_data=data(200),
    progress=False,
  )
  assert 0 <= result.history[-1]['clients_accuracy_mean'] <= 1
  assert result.client_state('c0').affinity.shape == (3,)
  with pytest.raises(ValueError, match='needs validation_data'):
    simulation.run(network(), data(0), rounds=1, clients_per_round=3, seed=1, progress=False)


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('max_downloads', 0),
    ('epsilon', 1.5),
    ('epsilon_decay', -0.1),
    ('num_clients', 1),
  ],
)
def test_hyper_parameter_out_of_range_is_refused(argument, value):
  arguments = {'num_clients': 3, **linear.settings()}
  with pytest.raises(ValueError, match=f'{argument} must.*Received'):
    build_fed_fomo(**{**arguments, argument: value})
