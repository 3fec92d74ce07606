"""FedProx against numbers worked by hand and against FedAvg."""

import numpy as np
import pytest
import tensorflow_federated as tff
import test_fed_avg
import toy

from tffpers.algorithms import build_fed_avg, build_fed_prox


def test_mu_zero_equals_fed_avg_bit_for_bit():
  settings = toy.settings(model_fn=toy.plain_model)
  runs = [
    toy.run(process, [10, 7, 5], [[0, 1, 2], [2, 0]])
    for process in (build_fed_avg(**settings), build_fed_prox(mu=0.0, **settings))
  ]
  toy.assert_equal(*runs)


def test_two_steps_worked_by_hand():
  process = build_fed_prox(
    mu=0.5,
    model_fn=test_fed_avg.one_weight,
    **toy.settings(
      loss_fn=test_fed_avg.half_squared_error,
      metrics_fn=list,
      element_spec=test_fed_avg.LINEAR_SPEC,
      batch_size=10,
    ),
  )
  server, clients = test_fed_avg.start(process, 1.0)
  server, _, _, _ = process.next(server, clients[:1], [test_fed_avg.client([1], [0])])
  # w₁ = 1 − 0.1·1 = 0.9; w₂ = 0.9 − 0.1·(0.9 + 0.5·(0.9 − 1)) = 0.815.
  np.testing.assert_allclose(server.model.weights.trainable[0], 0.815, rtol=1e-6)


def test_larger_mu_stays_closer_to_the_server():
  moves = []
  for mu in (0.0, 1.0, 5.0):
    process = build_fed_prox(
      mu=mu,
      **toy.settings(
        model_fn=toy.plain_model, epochs=10, optimizer=tff.learning.optimizers.build_sgdm(0.1)
      ),
    )
    server, clients = toy.start(process, [10])
    after, _, _, _ = process.next(server, clients, [toy.train_data(0, 10)])
    moves.append(
      sum(
        np.sum((a - b) ** 2)
        for a, b in zip(after.model.weights.trainable, server.model.weights.trainable, strict=True)
      )
    )
  assert moves[0] > moves[1] > moves[2] > 0


@pytest.mark.parametrize('mu', [-1.0, float('nan'), float('inf')])
def test_mu_out_of_range_is_refused(mu):
  with pytest.raises(ValueError, match='mu must be'):
    build_fed_prox(mu=mu, **toy.settings(model_fn=toy.plain_model))
