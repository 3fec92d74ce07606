"""HeurFedAMP against numbers worked by hand and a proximal local method."""

import functools

import linear
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers.algorithms import build_fed_amp, build_fed_avg, build_fed_prox, by_client, fed_amp

MODELS = np.array([[3, 4, 0], [6, 8, 0], [0, 0, 2]], np.float32)
CLOUD = {'mu': 0.5, 'sigma': np.log(3.0), 'self_weight': 0.5}


@functools.cache
def three_weights(**overrides):
  return build_fed_amp(num_clients=3, **linear.settings(**{**CLOUD, **overrides}))


@functools.cache
def network(**overrides):
  settings = {'mu': 0.1, 'sigma': 2.0, 'self_weight': 0.5, **overrides}
  return build_fed_amp(num_clients=3, **toy.settings(model_fn=toy.plain_model, **settings))


def test_mixtures_worked_by_hand():
  server = by_client.Models(tf.constant(MODELS))
  # Cosines with the first: 1 (parallel) and 0, so the attention is 3/4 and 1/4.
  cloud = fed_amp.mix(CLOUD['sigma'], 0.5, server, tf.constant(0))
  expected = 0.5 * MODELS[0] + 0.5 * (0.75 * MODELS[1] + 0.25 * MODELS[2])
  np.testing.assert_allclose(cloud, expected, rtol=1e-6)
  # The third is orthogonal to both: half and half.
  cloud = fed_amp.mix(CLOUD['sigma'], 0.2, server, tf.constant(2))
  np.testing.assert_allclose(cloud, 0.2 * MODELS[2] + 0.4 * (MODELS[0] + MODELS[1]), rtol=1e-6)


def start(process):
  """Server and clients with the given models."""
  server, clients = toy.start(process, [1, 1, 1])
  server = server._replace(model=server.model._replace(models=MODELS))
  models = [
    c.weights._replace(trainable=[w[:, None]]) for c, w in zip(clients, MODELS, strict=True)
  ]
  return server, [c._replace(weights=w) for c, w in zip(clients, models, strict=True)]


def test_two_steps_from_the_mixture_worked_by_hand():
  process = three_weights(epochs=2)
  server, clients = start(process)
  row = linear.data(([0, 0, 1], 1))
  after, (new,), _, (metrics,) = process.next(server, clients[:1], [row])
  # u = (3.75, 5, 0.25): x·u − y = −0.75. Step 1: third weight 0.25 + 0.075 = 0.325.
  # Step 2: gradient 0.325 − 1 + 0.5 (0.325 − 0.25) = −0.6375: 0.38875.
  np.testing.assert_allclose(after.model.models[0], [3.75, 5, 0.38875], rtol=1e-6)
  np.testing.assert_array_equal(after.model.models[1:], MODELS[1:])
  np.testing.assert_array_equal(new.weights.trainable[0][:, 0], after.model.models[0])
  np.testing.assert_array_equal(
    linear.evaluated_weights(process, after, new), after.model.models[0]
  )
  assert (metrics['models_up'], metrics['models_down'], metrics['bytes_down']) == (1, 1, 12)


@pytest.mark.parametrize('dtype', [np.float16, np.float64])
def test_mixture_is_of_the_models_dtype(dtype):
  cloud = fed_amp.mix(CLOUD['sigma'], 0.5, by_client.Models(tf.constant(MODELS, dtype)), 0)
  assert cloud.dtype == dtype
  np.testing.assert_allclose(cloud, [3.75, 5, 0.25], rtol=1e-3)


def test_more_alike_models_get_more_weight_with_a_larger_sigma():
  server = by_client.Models(tf.constant([[1.0, 0, 0], [1, 0.1, 0], [-1, 0, 1]]))
  shares = [float(fed_amp.mix(s, 0.0, server, tf.constant(0))[0]) for s in (0.0, 1.0, 5.0)]
  assert shares[0] == 0
  assert shares[0] < shares[1] < shares[2]


def test_self_weight_one_is_a_proximal_local_method_bit_for_bit():
  """FedProx whose server is set to the client's own model before each round."""
  process = network(self_weight=1.0)
  local = build_fed_prox(mu=0.1, **toy.settings(model_fn=toy.plain_model))
  server, clients = toy.start(process, [10, 7, 5])
  alone, others = toy.start(local, [10])
  for r in range(2):
    data = [toy.train_data(i, n, r) for i, n in enumerate([10, 7, 5])]
    server, clients, _, _ = process.next(server, clients, data)
    alone = alone._replace(model=alone.model._replace(weights=others[0].weights))
    _, others, _, _ = local.next(alone, others, data[:1])
    toy.assert_equal(clients[0].weights, others[0].weights)


def test_first_round_is_fed_avgs_local_training():
  """All models are equal, so is each mixture; the term's gradient is 0 in one step."""
  one_step = {'batch_size': 100, 'epochs': 1}
  _, clients, _, _ = toy.run(network(**one_step), [10, 7, 5], [[0, 1, 2]])
  fed_avg = build_fed_avg(**toy.settings(model_fn=toy.plain_model, **one_step))
  _, others, _, _ = toy.run(fed_avg, [10, 7, 5], [[0, 1, 2]])
  toy.assert_close([c.weights for c in clients], [c.weights for c in others], rtol=1e-5, atol=1e-6)


def test_larger_mu_stays_closer_to_the_mixture():
  moves = []
  for mu in (0.0, 5.0):
    process = network(mu=mu, epochs=10, optimizer=tff.learning.optimizers.build_sgdm(0.1))
    server, clients = toy.start(process, [10, 7, 5])
    after, _, _, _ = process.next(server, clients[:1], [toy.train_data(0, 10)])
    moves.append(np.linalg.norm(after.model.models[0] - server.model.models[0]))
  assert moves[0] > moves[1] > 0


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('mu', -1.0),
    ('sigma', float('nan')),
    ('self_weight', 1.1),
    ('num_clients', 1),
  ],
)
def test_hyper_parameter_out_of_range_is_refused(argument, value):
  arguments = {'num_clients': 3, **CLOUD, **linear.settings()}
  with pytest.raises(ValueError, match=f'{argument} must.*Received'):
    build_fed_amp(**{**arguments, argument: value})
