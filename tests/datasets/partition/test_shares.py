"""Shares of one's own, and how they become whole rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets.partition import SharePlan, _rounding

weights = st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any)


@given(weights, st.integers(0, 10**7), st.booleans(), st.integers(0, 9))
def test_apportioned_numbers_are_quotas_rounded_up_or_down(weights, total, carried, seed):
  shares = np.array(weights) / sum(weights)
  carry = np.random.default_rng(seed).normal(size=len(weights)) if carried else None
  counts = _rounding.apportion(shares, total, carry)
  assert counts.sum() == total and (counts[shares == 0] == 0).all()
  assert np.abs(counts - shares * total).max() < 1


def test_apportioning_is_by_largest_remainder_and_then_by_what_is_owed():
  shares = np.array([0.45, 0.35, 0.2])
  assert _rounding.apportion(shares, 9).tolist() == [4, 3, 2]  # 4.05, 3.15, 1.8
  assert _rounding.apportion(shares, 9, np.array([0, 0.7, 0])).tolist() == [4, 4, 1]


@given(st.data())
def test_a_clients_rows_are_its_shares_in_every_class_and_together(data):
  num_clients, num_classes = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
  rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
  shares = rng.dirichlet(np.full(num_clients, 0.5), size=num_classes).T
  labels = labels_of(rng.integers(0, 80, num_classes))
  counts = table(labels, SharePlan(shares, 0).deal(labels), num_classes)
  away = counts - shares * np.bincount(labels, minlength=num_classes)
  assert np.abs(away).max() < 1 and np.abs(away.sum(axis=1)).max() < 2


def test_rows_of_a_class_are_drawn_and_do_not_depend_on_other_classes():
  shares = np.full([2, 2], 0.5)
  labels = np.repeat([0, 1], 400)
  parts = SharePlan(shares, 7).deal(labels)
  assert 70 < np.sum(parts[0] < 200) < 130
  first, second = parts[0][parts[0] < 400], parts[0][parts[0] >= 400] - 400
  assert first.tolist() != second.tolist()
  others = SharePlan([[0.5, 0.9], [0.5, 0.1]], 7).deal(np.concatenate([labels, [1] * 50]))
  np.testing.assert_array_equal(parts[0][parts[0] < 400], others[0][others[0] < 400])


def test_shares_are_copied_and_cannot_be_changed():
  shares = np.array([[0.5], [0.5]])
  plan = SharePlan(shares, 0)
  shares[:] = 9
  assert plan.shares.tolist() == [[0.5], [0.5]]
  with pytest.raises(ValueError, match='read-only'):
    plan.shares[0] = 1


@pytest.mark.parametrize(
  'shares, words',
  [
    ([[0.5, 1], [0.5, 0.5]], 'add up to 1'),
    ([[-0.5], [1.5]], 'at least 0'),
    ([0.5, 0.5], r'shares must have 2 axes. Received: shares of shape \(2,\)'),
    (np.zeros([0, 3]), r'shape \(0, 3\)'),
  ],
)
def test_shares_are_checked(shares, words):
  with pytest.raises(ValueError, match=words):
    SharePlan(shares, 0)


@pytest.mark.parametrize('name', ['seed', 'min_examples', 'rows_per_holder'])
@pytest.mark.parametrize('value', [-1, 0.5, True])
def test_whole_numbers_are_checked(name, value):
  with pytest.raises(ValueError, match=f'{name} must be an integer ≥ 0. Received: {name}={value}'):
    SharePlan(**{'shares': np.ones([1, 1]), 'seed': 0, name: value})


def test_large_partitions_are_dealt_in_one_pass():
  labels = np.random.default_rng(0).integers(0, 62, 200_000)
  rng = np.random.default_rng(1)
  parts = SharePlan(rng.dirichlet(np.full(3500, 0.3), size=62).T, 0, min_examples=5).deal(labels)
  assert min(map(len, parts)) >= 5 and sum(map(len, parts)) == 200_000
