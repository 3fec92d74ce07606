"""APFL against numbers worked by hand, FedAvg and local training."""

import functools

import linear
import numpy as np
import pytest
import tensorflow as tf
import toy

from tffpers.algorithms import build_apfl, build_fed_avg


@functools.cache
def three_weights(**overrides):
  return build_apfl(**linear.settings(**{'alpha_learning_rate': 0.02, **overrides}))


@functools.cache
def network(**overrides):
  return build_apfl(**toy.settings(model_fn=toy.plain_model, **overrides))


def start(process, shared, own, alpha):
  """Server with w, one client with v and α."""
  column = lambda w: [np.array(w, np.float32)[:, None]]  # noqa: E731
  server, (client,) = toy.start(process, [1])
  weights = server.model.weights._replace(trainable=column(shared))
  server = server._replace(model=server.model._replace(weights=weights))
  weights = client.weights._replace(trainable=column(own))
  return server, client._replace(weights=weights, alpha=np.float32(alpha))


def test_one_step_worked_by_hand():
  process = three_weights()
  server, client = start(process, [1, 2, 0], [3, 0, 4], 0.25)
  # v̄ = ¼ (3, 0, 4) + ¾ (1, 2, 0) = (1.5, 1.5, 1); x = (1, 1, 0), y = 1.
  # ∇F(w) = 2 (1, 1, 0), ∇F(v̄) = 2 (1, 1, 0); ⟨∇F(v̄), v − w⟩ = 2 (2 − 2) = 0.
  row = linear.data(([1, 1, 0], 1))
  after, (new,), _, _ = process.next(server, [client], [row])
  np.testing.assert_allclose(after.model.weights.trainable[0][:, 0], [0.8, 1.8, 0], rtol=1e-6)
  np.testing.assert_allclose(new.weights.trainable[0][:, 0], [2.95, -0.05, 4], rtol=1e-6)
  assert new.alpha == 0.25
  # x = (0, 0, 1), y = 0: ∇F(w) = 0, ∇F(v̄) = (0, 0, 1), slope 1 · (4 − 0).
  row = linear.data(([0, 0, 1], 0))
  after, (new,), _, (metrics,) = process.next(server, [client], [row])
  np.testing.assert_array_equal(after.model.weights.trainable[0][:, 0], [1, 2, 0])
  np.testing.assert_allclose(new.weights.trainable[0][:, 0], [3, 0, 4 - 0.025], rtol=1e-6)
  np.testing.assert_allclose(new.alpha, 0.25 - 0.02 * 4, rtol=1e-6)
  assert metrics['alpha'] == new.alpha
  np.testing.assert_allclose(metrics['loss'], 0.5, rtol=1e-6)


@pytest.mark.parametrize(('y', 'bound'), [(-100, 0), (100, 1)])
def test_alpha_stays_between_zero_and_one(y, bound):
  process = three_weights()
  server, client = start(process, [1, 2, 0], [3, 0, 4], 0.25)
  _, (new,), _, _ = process.next(server, [client], [linear.data(([0, 0, 1], y))])
  assert new.alpha == bound


def test_evaluation_mixes_the_own_model_with_the_servers_current_one():
  process = three_weights()
  server, client = start(process, [1, 2, 0], [3, 0, 4], 0.25)
  np.testing.assert_array_equal(linear.evaluated_weights(process, server, client), [1.5, 1.5, 1])


def test_global_model_is_fed_avg_bit_for_bit():
  fed_avg = build_fed_avg(**toy.settings(model_fn=toy.plain_model))
  rounds = [[0, 1, 2], [2, 0]]
  server, _, _, _ = toy.run(network(), [10, 7, 5], rounds)
  other, _, _, _ = toy.run(fed_avg, [10, 7, 5], rounds)
  toy.assert_equal(server.model, other.model)


def test_alpha_one_is_local_training_bit_for_bit():
  """Beside FedAvg whose server is set to the client's own model before each round."""
  process = network(alpha=1.0, alpha_learning_rate=0.0)
  local = build_fed_avg(**toy.settings(model_fn=toy.plain_model))
  server, clients = toy.start(process, [10, 7])
  alone, others = toy.start(local, [10, 7])
  for r in range(2):
    data = [toy.train_data(0, 10, r), toy.train_data(1, 7, r)]
    server, clients, _, _ = process.next(server, clients, data)
    alone = alone._replace(model=alone.model._replace(weights=others[0].weights))
    _, others[:1], _, _ = local.next(alone, others[:1], data[:1])
    toy.assert_equal(clients[0].weights, others[0].weights)
  assert clients[0].alpha == 1


def test_alpha_zero_is_the_global_model():
  process = network(alpha=0.0, alpha_learning_rate=0.0)
  server, clients, _, _ = toy.run(process, [10, 7], [[0, 1]])
  (result,) = process.evaluate(server, clients[:1], [toy.held_out(0, 9)])
  assert result['client'] == result['server']


def test_statistics_of_the_personal_model_stay_on_the_client():
  def model():
    return tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([3]),
        tf.keras.layers.BatchNormalization(momentum=0.5),
        tf.keras.layers.Dense(1),
      ]
    )

  process = three_weights(model_fn=model)
  server, clients = toy.start(process, [1, 1])
  data = [linear.data(([0, 0, 0], 0)), linear.data(([10, 10, 10], 0))]
  server, (a, b), _, _ = process.next(server, clients, data)
  # Each moves halfway from 0 to its batch; the global model has the average.
  np.testing.assert_allclose(a.weights.non_trainable[0], [0] * 3)
  np.testing.assert_allclose(b.weights.non_trainable[0], [5] * 3)
  np.testing.assert_allclose(server.model.weights.non_trainable[0], [2.5] * 3)


@pytest.mark.parametrize(
  ('argument', 'value'),
  [('alpha', 1.5), ('alpha', float('nan')), ('alpha_learning_rate', -0.1)],
)
def test_hyper_parameter_out_of_range_is_refused(argument, value):
  with pytest.raises(ValueError, match=f'{argument} must.*Received'):
    build_apfl(**linear.settings(**{argument: value}))
