"""IFCA against numbers worked by hand, FedAvg, and clients of two rotations."""

import functools

import linear
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import seeds
from tffpers.algorithms import build_fed_avg, build_ifca

ROW = [1.0, 0.0, 0.0]


@functools.cache
def two_models(**overrides):
  return build_ifca(num_models=2, **linear.settings(**overrides))


def start(process, weights, num_clients=3):
  """Model j has the weights (w_j, 0, 0), so on `ROW` it predicts w_j."""
  server, clients = toy.start(process, [1] * num_clients)
  kernel = np.zeros([len(weights), 3, 1], np.float32)
  kernel[:, 0, 0] = weights
  models = server.model.models._replace(trainable=[kernel])
  return server._replace(model=server.model._replace(models=models)), clients


def client(y, n=1):
  return linear.data(*[(ROW, y)] * n)


def first_weights(server):
  return server.model.models.trainable[0][:, 0, 0]


def picked(client_metrics):
  return [int(np.argmax(m['picked'])) if np.any(m['picked']) else -1 for m in client_metrics]


def test_b1_one_model_is_fed_avg_bit_for_bit():
  sizes, rounds = [10, 7, 5], [[0, 1], [2, 1]]
  one = build_ifca(num_models=1, model_fn=toy.plain_model, **toy.settings())
  server, clients, _, metrics = toy.run(one, sizes, rounds)
  reference = build_fed_avg(model_fn=toy.plain_model, **toy.settings())
  expected, expected_clients, _, expected_metrics = toy.run(reference, sizes, rounds)
  toy.assert_equal([t[0] for t in server.model.models.trainable], expected.model.weights.trainable)
  toy.assert_equal([c.weights for c in clients], [c.weights for c in expected_clients])
  assert [m['loss'] for m in metrics] == [m['loss'] for m in expected_metrics]


def test_every_client_trains_its_best_model_and_examples_weigh():
  """w ← w − 0.1 (w − y) on each client; model 1 gets three quarters of the longer one."""
  server, clients = start(two_models(), [0.0, 10.0])
  server, _, _, metrics = two_models().next(
    server, clients, [client(1.0), client(8.0), client(12.0, 3)]
  )
  assert picked(metrics) == [0, 1, 1]
  np.testing.assert_allclose(first_weights(server), [0.1, 10 + (-0.2 + 3 * 0.2) / 4], rtol=1e-6)
  assert server.model.picked.tolist() == [True, True]


def test_b5_the_choice_does_not_depend_on_the_batch_size():
  server, clients = start(two_models(), [0.0, 1.0], 1)
  data = [linear.data((ROW, -9.0), *[(ROW, 1.0)] * 9, *[(ROW, 0.2)] * 7)]
  by_batch_size = []
  for batch_size in (1, 3, 100):
    process = two_models(batch_size=batch_size)
    by_batch_size.append(picked(process.next(server, clients, data)[3]))
  # 81 + 9 + 0.28 against 100 + 0 + 4.48: the outlier decides, in one batch or in many.
  assert by_batch_size == [[0], [0], [0]]


def test_b6_an_unpicked_model_stays_bit_for_bit_even_under_server_momentum():
  process = two_models(server_optimizer=tff.learning.optimizers.build_sgdm(1.0, 0.9))
  server, clients = start(process, [0.1, 10.0], 2)
  server, clients, _, _ = process.next(server, clients, [client(1.0), client(12.0)])
  before = first_weights(server).copy()
  for _ in range(2):
    server, clients, _, metrics = process.next(server, clients, [client(1.0), client(1.1)])
    assert picked(metrics) == [0, 0]
  assert first_weights(server)[1] == before[1]
  assert first_weights(server)[0] != before[0]


def test_b6_clients_that_picked_another_model_contribute_nothing():
  server, clients = start(two_models(), [0.1, 10.0], 2)
  both, _, _, _ = two_models().next(server, clients, [client(1.0), client(12.0)])
  alone, _, _, _ = two_models().next(server, clients[:1], [client(1.0)])
  assert first_weights(both)[0] == first_weights(alone)[0]
  assert first_weights(alone)[1] == np.float32(10.0)


def test_b7_option_1_is_option_2_times_the_share_of_participants_that_picked_the_model():
  data = [client(1.0), client(2.0), client(12.0)]
  steps = []
  for averaging in ('models', 'gradients'):
    process = two_models(averaging=averaging)
    server, clients = start(process, [0.0, 10.0])
    server, _, _, _ = process.next(server, clients, data)
    steps.append(first_weights(server) - [0.0, 10.0])
  np.testing.assert_allclose(steps[0], [0.15, 0.2], rtol=1e-5)
  np.testing.assert_allclose(steps[1] / steps[0], [2 / 3, 1 / 3], rtol=1e-5)


def test_option_1_counts_neither_empty_nor_non_finite_clients_as_participants():
  process = two_models(averaging='gradients')
  server, clients = start(process, [0.0, 10.0])
  server, _, _, _ = process.next(server, clients, [client(1.0), client(0.0, 0), client(np.inf)])
  np.testing.assert_allclose(first_weights(server), [0.1, 10.0], rtol=1e-6)


def test_b16_clients_train_by_sgd_without_momentum_and_with_fresh_slots():
  """Two rounds of three steps from 0 towards 1: 1 − 0.9⁶."""
  process = two_models(epochs=3)
  server, clients = start(process, [0.0, 10.0], 1)
  for _ in range(2):
    server, clients, _, _ = process.next(server, clients, [client(1.0)])
  np.testing.assert_allclose(first_weights(server), [1 - 0.9**6, 10.0], rtol=1e-5)


def test_b4_identical_initial_models_are_refused():
  def constant():
    return tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([3]),
        tf.keras.layers.Dense(1, use_bias=False, kernel_initializer='ones'),
      ]
    )

  with pytest.raises(ValueError, match='initial models are identical.*num_models=2'):
    build_ifca(num_models=2, **linear.settings(model_fn=constant))
  build_ifca(num_models=1, **linear.settings(model_fn=constant))


def test_evaluation_takes_the_best_model_by_training_data_not_by_test_data():
  """A client that never took part has a model too."""
  server, clients = start(two_models(), [0.0, 10.0], 1)
  data = {**client(9.0), 'test': linear.examples([ROW], [0.0])}
  (result,) = two_models().evaluate(
    server, clients, [{name: data[name] for name in ('train', 'test', 'seed')}]
  )
  assert [result['client'][f'best_{j}'] for j in range(2)] == [0, 1]
  assert result['client']['output'] == 10.0
  assert result['client']['loss'] == 50.0


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('num_models', 0),
    ('num_models', True),
    ('batch_size', True),
    ('averaging', 'both'),
    ('initial_models', 'equal'),
  ],
)
def test_wrong_argument_is_refused_by_name(argument, value):
  with pytest.raises(ValueError, match=f'Received: {argument}={value!r}'):
    build_ifca(**{'num_models': 2, **linear.settings(**{argument: value})})


# Clients of two rotations: the label is the sign of the first feature, turned by 0° or 180°.


def rotated(number, n=40):
  random = np.random.default_rng([number, 5])
  x = random.normal(size=[n, 3]).astype(np.float32)
  x[:, 0] += np.sign(x[:, 0])
  y = (x[:, 0] > 0).astype(np.int32)
  return {'x': x * (1 if number % 2 == 0 else -1), 'y': y}


def linear_classifier():
  return tf.keras.Sequential([tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(2)])


@functools.cache
def balanced():
  arguments = toy.settings(batch_size=10)
  return build_ifca(
    num_models=2, model_fn=linear_classifier, initial_models='balanced', **arguments
  )


@pytest.fixture(scope='module', params=[1, 2, 3])
def split(request):
  """Six rounds of eight clients: every round's picks and server metrics, and the states."""
  seed, numbers = request.param, range(8)
  server, clients = toy.start(balanced(), [40] * 8, seed)
  initial, history = server, []
  for r in range(6):
    data = [{'train': rotated(k), 'seed': seeds.derive(seed, 'train', r, str(k))} for k in numbers]
    server, clients, metrics, client_metrics = balanced().next(server, clients, data)
    history.append((picked(client_metrics), metrics, client_metrics, server))
  return initial, history


def test_b18_two_rotations_split_the_clients(split):
  _, history = split
  choices = history[-1][0]
  assert choices in ([0, 1] * 4, [1, 0] * 4)


def test_the_first_round_of_a_balanced_start_votes_and_trains_nothing(split):
  initial, history = split
  choices, metrics, client_metrics, server = history[0]
  assert initial.model.voting and not server.model.voting
  assert choices == [-1] * 8
  assert metrics['balanced'] == 1
  assert [m['num_steps'] for m in client_metrics] == [0] * 8
  assert all(h[1]['balanced'] == 0 for h in history[1:])
  # The next round begins from it: each model is the best one of at least 35 %.
  assert 0.35 * 8 <= sum(history[1][0]) <= 0.65 * 8


def test_a_vote_without_voters_is_repeated():
  server, clients = toy.start(balanced(), [40] * 2)
  nobody = [toy.train_data(k, 0) for k in range(2)]
  after, _, metrics, _ = balanced().next(server, clients, nobody)
  assert after.model.voting
  assert metrics['balanced'] == 0
  toy.assert_equal(after.model.models, server.model.models)
