"""Early stopping of the server's models, worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tffpers import modelling
from tffpers.algorithms import cluster_stopping


def models(*values):
  return modelling.ModelWeights([tf.constant([[v] for v in values], tf.float32)], [])


def check(before, broadcast, sums, weights, patience=2):
  return cluster_stopping.check(
    patience,
    before,
    broadcast,
    tf.constant(sums, tf.float32),
    tf.constant(weights, tf.float32),
  )


def snapshot(stopping):
  return stopping.snapshot.trainable[0].numpy()[:, 0].tolist()


def test_b9_a_model_stops_after_patience_checks_with_the_weights_that_were_scored_best():
  state = cluster_stopping.initialize(models(0, 0), 2)
  # Mean losses 0.5 and 1.0 of the weights 1 and 10.
  state = check(state, models(1, 10), [1.0, 3.0], [2.0, 3.0])
  np.testing.assert_allclose(state.score, [0.5, 1.0])
  # Worse and better; then worse again: the first one has waited twice.
  state = check(state, models(2, 20), [2.0, 2.7], [2.0, 3.0])
  assert state.active.numpy().tolist() == [True, True]
  assert snapshot(state) == [1, 20]
  state = check(state, models(3, 30), [1.0, 2.4], [2.0, 3.0])
  assert state.active.numpy().tolist() == [False, True]
  assert snapshot(state) == [1, 30]


def test_an_equal_loss_is_no_improvement():
  state = check(cluster_stopping.initialize(models(0), 1), models(1), [1.0], [2.0])
  state = check(state, models(2), [1.0], [2.0])
  assert (state.waited, snapshot(state)) == ([1], [1])


def test_a_check_without_pickers_does_not_count():
  state = check(cluster_stopping.initialize(models(0, 0), 2), models(1, 1), [1.0, 1.0], [1.0, 1.0])
  for _ in range(5):
    state = check(state, models(2, 2), [0.0, 0.0], [0.0, 0.0], patience=1)
  assert state.active.numpy().all()
  assert state.waited.numpy().tolist() == [0, 0]


def test_a_stopped_model_stays_stopped():
  state = check(cluster_stopping.initialize(models(0), 1), models(1), [1.0], [1.0], patience=1)
  state = check(state, models(2), [2.0], [1.0], patience=1)
  state = check(state, models(3), [0.1], [1.0], patience=1)
  assert not state.active.numpy().any()
  assert snapshot(state) == [1]


@pytest.mark.parametrize('name', ['check_every', 'patience'])
@pytest.mark.parametrize('value', [0, 1.5])
def test_wrong_numbers_are_refused_by_name(name, value):
  with pytest.raises(ValueError, match=f'{name}={value}'):
    cluster_stopping.StoppingRule(**{'check_every': 1, 'patience': 1, name: value})
