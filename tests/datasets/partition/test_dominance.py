"""80 %, 10 % and the rest of every class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets.partition import practical


def test_a17_twelve_clients_hold_80_10_and_ten_times_1_percent():
  plan = practical(num_classes=10, num_clients=12, seed=4)
  expected = np.broadcast_to([0.01] * 10 + [0.1, 0.8], [10, 12])
  np.testing.assert_allclose(np.sort(plan.shares.T), expected, rtol=1e-12)
  for size in (1000, 5000):  # One matrix for train and test.
    counts = table(y := labels_of([size] * 10), plan.deal(y), 10)
    np.testing.assert_array_equal(counts, np.rint(plan.shares * size))


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**40))
def test_a17_shares_sum_to_1_for_any_number_of_classes_and_clients(num_classes, num_clients, seed):
  shares = practical(num_classes=num_classes, num_clients=num_clients, seed=seed).shares
  np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-12)
  if num_clients > 3:
    ordered = np.sort(shares, axis=0)
    np.testing.assert_allclose(ordered[-2:], [[0.1] * num_classes, [0.8] * num_classes])
    np.testing.assert_allclose(ordered[:-2], 0.1 / (num_clients - 2))
    for role in (0.8, 0.1):  # Everybody's turn comes before anybody's second.
      turns = np.isclose(shares, role).sum(axis=1)
      assert turns.max() - turns.min() <= 1


@pytest.mark.parametrize(
  'num_clients, expected', [(1, [1]), (2, [1 / 9, 8 / 9]), (3, [0.1, 0.1, 0.8])]
)
def test_a17_few_clients_share_by_the_same_rule(num_clients, expected):
  shares = practical(num_classes=5, num_clients=num_clients, seed=0).shares
  np.testing.assert_allclose(np.sort(shares.T), [expected] * 5, rtol=1e-12)
