"""Random parts of equal and unequal sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tffpers.datasets import partition
from tffpers.datasets.partition import SizePlan, dirichlet_sizes, equal_sizes, power_law_sizes


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_d15_iid_uses_every_row_once_and_sizes_differ_by_one(data):
  n = data.draw(st.integers(1, 300))
  num_clients = data.draw(st.integers(1, n))
  parts = partition.iid(np.zeros([n]), num_clients, seed=data.draw(st.integers(0, 2**40)))
  assert len(parts) == num_clients
  assert sorted(np.concatenate(parts).tolist()) == list(range(n))
  assert {len(part) for part in parts} <= {n // num_clients, n // num_clients + 1}
  assert all((np.diff(part) > 0).all() for part in parts)


@given(st.integers(1, 3000), st.integers(1, 200), st.integers(0, 9))
def test_iid_is_a_shuffle_cut_into_pieces(n, num_clients, seed):
  """The draw of earlier releases, on which the published runs rest."""
  num_clients = min(num_clients, n)
  order = np.random.default_rng(seed).permutation(n)
  expected = [np.sort(part).tolist() for part in np.array_split(order, num_clients)]
  parts = partition.iid(np.zeros([n]), num_clients, seed=seed)
  assert [part.tolist() for part in parts] == expected


def test_d15_iid_of_a_seed_stays_what_it_was():
  parts = partition.iid(np.zeros([7]), 3, seed=0)
  assert [part.tolist() for part in parts] == [[2, 3, 4], [5, 6], [0, 1]]


def test_d15_iid_depends_on_its_seed_and_not_on_the_global_generator():
  labels = np.arange(100) % 10
  draws = []
  for global_seed, seed in ((1, 5), (2, 5), (1, 6)):
    np.random.seed(global_seed)  # noqa: NPY002
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    draws.append(np.concatenate(partition.iid(labels, 7, seed=seed)).tolist())
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
  assert draws[0] == draws[1] != draws[2]


def test_iid_mixes_the_labels_of_sorted_data():
  labels = np.repeat(np.arange(10), 600)
  for part in partition.iid(labels, 6, seed=0):
    shares = np.bincount(labels[part], minlength=10) / len(part)
    # Six standard deviations of a draw without replacement of 1000 from 6000.
    assert np.abs(shares - 0.1).max() < 6 * np.sqrt(0.1 * 0.9 / 1000 * 5 / 6)


@pytest.mark.parametrize(
  'num_clients, seed, words',
  [
    (0, 0, r'in \[1, 3\]. Received: num_clients=0'),
    (4, 0, 'num_clients=4'),
    (2, -1, 'seed=-1'),
  ],
)
def test_iid_arguments_are_checked(num_clients, seed, words):
  with pytest.raises(ValueError, match=words):
    partition.iid(np.zeros([3]), num_clients, seed=seed)


def sizes_of(plan, n):
  return [len(part) for part in plan.deal(np.zeros([n, 2]))]


def test_power_law_sizes_fall_with_their_rank():
  plan = power_law_sizes(num_clients=4, exponent=1.0, seed=0, min_examples=0)
  assert sorted(sizes_of(plan, 2500)) == [300, 400, 600, 1200]
  orders = {
    tuple(sizes_of(power_law_sizes(num_clients=4, exponent=1.0, seed=s), 99)) for s in range(9)
  }
  assert len(orders) > 3


def test_dirichlet_sizes_have_the_variance_of_a_dirichlet_distribution():
  first = [dirichlet_sizes(num_clients=4, alpha=2.0, seed=s).shares[0] for s in range(2000)]
  assert np.mean(first) == pytest.approx(1 / 4, abs=0.02)
  assert np.var(first) == pytest.approx((1 / 4) * (3 / 4) / 9, rel=0.1)


@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 50), st.integers(0, 99))
def test_every_client_has_its_minimum(num_clients, minimum, extra, seed):
  for plan in (
    dirichlet_sizes(num_clients=num_clients, alpha=0.01, seed=seed, min_examples=minimum),
    power_law_sizes(num_clients=num_clients, exponent=3.0, seed=seed, min_examples=minimum),
  ):
    sizes = sizes_of(plan, num_clients * minimum + extra)
    assert min(sizes) >= minimum and sum(sizes) == num_clients * minimum + extra


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.integers(0, 10**6))
def test_sizes_are_shares_up_to_rounding(weights, n):
  shares = np.array(weights) / sum(weights)
  sizes = SizePlan(shares, seed=0).deal(np.broadcast_to(0, [n]))
  assert all(abs(len(part) - share * n) < 1 for part, share in zip(sizes, shares, strict=True))


@pytest.mark.parametrize(
  'make, words',
  [
    (lambda: SizePlan([0.5, 0.4], 0), 'add up to 1 over clients. Received: shares='),
    (lambda: SizePlan([1.5, -0.5], 0), 'at least 0'),
    (lambda: SizePlan([[1.0]], 0), r'shares must have 1 axes. Received: shares of shape \(1, 1\)'),
    (lambda: SizePlan([], 0), r'shape \(0,\)'),
    (lambda: SizePlan([np.nan, 1], 0), 'at least 0'),
    (lambda: power_law_sizes(num_clients=2, exponent=0.0, seed=0), 'exponent=0.0'),
    (lambda: dirichlet_sizes(num_clients=2, alpha=-1.0, seed=0), 'alpha=-1.0'),
    (lambda: equal_sizes(num_clients=3, seed=0).deal([0, 1]), 'need 3 rows. Received: 2 labels'),
  ],
)
def test_arguments_are_checked(make, words):
  with pytest.raises(ValueError, match=words):
    make()
