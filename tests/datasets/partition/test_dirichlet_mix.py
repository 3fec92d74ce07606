"""Dirichlet shares of every class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets.partition import dirichlet


def mixes(alpha, seed):
  """Each client's label shares: ten clients, 10,000 rows."""
  labels = labels_of([1000] * 10)
  plan = dirichlet(num_classes=10, num_clients=10, alpha=alpha, seed=seed)
  counts = table(labels, plan.deal(labels), 10)
  return counts / counts.sum(axis=1, keepdims=True)


def entropy(shares):
  return -np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=1).mean()


@pytest.mark.parametrize('seed', range(5))
def test_d16_large_alpha_gives_the_global_mix_and_small_alpha_a_skewed_one(seed):
  assert np.abs(mixes(1000, seed) - 0.1).max() < 0.03
  entropies = [entropy(mixes(alpha, seed)) for alpha in (0.1, 1, 1000)]
  assert entropies[0] < 0.6 * np.log(10) < entropies[1] < entropies[2]
  assert entropies[2] == pytest.approx(np.log(10), abs=0.01)


def test_shares_have_the_moments_of_a_dirichlet_distribution():
  alpha, num_clients = 0.7, 4
  draws = np.concatenate(
    [
      dirichlet(num_classes=50, num_clients=num_clients, alpha=alpha, seed=seed).shares.T
      for seed in range(80)
    ]
  )
  mean = 1 / num_clients
  variance = mean * (1 - mean) / (alpha * num_clients + 1)
  np.testing.assert_allclose(draws.mean(axis=0), mean, atol=6 * np.sqrt(variance / len(draws)))
  np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.1)


@given(st.data())
def test_every_client_has_its_minimum_in_every_split(data):
  num_classes, num_clients = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 12))
  minimum = data.draw(st.integers(0, 6))
  alpha = data.draw(st.sampled_from([1e-6, 0.01, 0.5, 1e3, 1e12]))
  plan = dirichlet(
    num_classes=num_classes,
    num_clients=num_clients,
    alpha=alpha,
    seed=data.draw(st.integers(0, 99)),
    min_examples=minimum,
  )
  n = num_clients * minimum + data.draw(st.integers(0, 40))
  labels = np.random.default_rng(n).integers(0, num_classes, n)
  parts = plan.deal(labels)
  assert min(map(len, parts)) >= minimum
  assert sorted(np.concatenate(parts).tolist()) == list(range(n))


@pytest.mark.parametrize('seed', range(5))
def test_p9_filling_up_gives_train_and_test_the_class_of_largest_share(seed):
  plan = dirichlet(num_classes=5, num_clients=8, alpha=0.02, seed=seed, min_examples=6)
  tables = [table(y := labels_of([n] * 5), plan.deal(y), 5) for n in (400, 100)]
  for counts in tables:
    poor = np.flatnonzero(counts.sum(axis=1) == 6)
    assert len(poor) > 0
    np.testing.assert_array_equal(counts[poor].argmax(axis=1), plan.shares[poor].argmax(axis=1))


@pytest.mark.parametrize(
  'arguments, words',
  [
    ({'alpha': 0.0}, 'alpha must be finite and above 0. Received: alpha=0.0'),
    ({'alpha': -1.0}, 'alpha=-1.0'),
    ({'alpha': float('nan')}, 'alpha=nan'),
    ({'alpha': float('inf')}, 'alpha=inf'),
    ({'num_classes': 0}, 'num_classes=0'),
    ({'min_examples': -1}, 'min_examples=-1'),
  ],
)
def test_arguments_are_checked(arguments, words):
  with pytest.raises(ValueError, match=words):
    dirichlet(**{'num_classes': 2, 'num_clients': 2, 'alpha': 1.0, 'seed': 0} | arguments)


def test_fewer_rows_than_the_minimum_needs_are_refused():
  plan = dirichlet(num_classes=2, num_clients=4, alpha=1.0, seed=0, min_examples=3)
  with pytest.raises(ValueError, match='min_examples=3 need 12 rows. Received: 11 labels'):
    plan.deal(np.zeros([11], int))
