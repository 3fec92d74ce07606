"""k classes per client, with equal and with random shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets.partition import k_classes, pathological

seeds = st.integers(0, 2**40)


@st.composite
def shapes(draw):
  """N, k, C with N·k ≥ C."""
  num_clients, num_classes = draw(st.integers(1, 30)), draw(st.integers(1, 30))
  fewest = -(-num_classes // num_clients)
  return num_clients, draw(st.integers(fewest, num_classes)), num_classes


def holds_of(make, shape, seed):
  num_clients, k, num_classes = shape
  plan = make(num_classes=num_classes, num_clients=num_clients, classes_per_client=k, seed=seed)
  return plan.shares > 0


@pytest.mark.parametrize('make', [k_classes, pathological])
@given(shapes(), seeds)
def test_p9_a17_each_client_has_k_classes_and_each_class_its_number_of_holders(make, shape, seed):
  num_clients, k, num_classes = shape
  holds = holds_of(make, shape, seed)
  assert (holds.sum(axis=1) == k).all()
  low = num_clients * k // num_classes
  holders = holds.sum(axis=0)
  assert low >= 1 and set(holders.tolist()) <= {low, low + 1}
  assert holders.sum() == num_clients * k


@given(shapes(), seeds, st.data())
def test_p9_holders_of_a_class_are_within_one_example(shape, seed, data):
  num_clients, k, num_classes = shape
  sizes = st.lists(st.integers(0, 60), min_size=num_classes, max_size=num_classes)
  labels = labels_of(data.draw(sizes))
  plan = k_classes(
    num_classes=num_classes, num_clients=num_clients, classes_per_client=k, seed=seed
  )
  counts = table(labels, plan.deal(labels), num_classes)
  for class_id in range(num_classes):
    held = counts[plan.shares[:, class_id] > 0, class_id]
    assert held.max() - held.min() <= 1 and held.sum() == counts[:, class_id].sum()
  # What rounding takes from a client in one class it gets back in another.
  quotas = (plan.shares * counts.sum(axis=0)).sum(axis=1)
  assert np.abs(counts.sum(axis=1) - quotas).max() < 2


@pytest.mark.parametrize(
  'num_classes, k, size', [(10, 4, 5000), (10, 8, 5000), (10, 10, 5000), (100, 40, 500)]
)
def test_p9_cifar_clients_have_equal_numbers_of_examples(num_classes, k, size):
  plan = k_classes(num_classes=num_classes, num_clients=10, classes_per_client=k, seed=1)
  labels = labels_of([size] * num_classes)
  assert {len(part) for part in plan.deal(labels)} == {num_classes * size // 10}


@given(shapes(), seeds)
def test_p9_clients_have_classes_of_many_holders_alike(shape, seed):
  holds = holds_of(k_classes, shape, seed)
  fewer = holds.sum(axis=0) == holds.sum(axis=0).min()
  numbers = holds[:, fewer].sum(axis=1)
  assert numbers.max() - numbers.min() <= 1


def test_p9_sets_of_classes_are_drawn():
  """Pairs of classes meet at clients in every way, not in blocks."""
  meet = np.zeros([6, 6])
  for seed in range(200):
    holds = holds_of(k_classes, (6, 2, 6), seed).astype(int)
    meet += holds.T @ holds
  pairs = meet[np.triu_indices(6, 1)]
  # 6 clients with a pair each, 15 pairs.
  assert pairs.min() > 0.5 * 200 * 6 / 15 and pairs.max() < 1.5 * 200 * 6 / 15


@pytest.mark.parametrize('make', [k_classes, pathological])
@pytest.mark.parametrize(
  'num_clients, k, words',
  [
    (4, 2, 'Infeasible.*num_classes=9. Received: num_clients=4, classes_per_client=2'),
    (8, 1, 'Infeasible'),
    (9, 10, '9 classes only. Received: classes_per_client=10'),
    (9, 0, 'classes_per_client must be an integer ≥ 1. Received: classes_per_client=0'),
  ],
)
def test_p9_a_class_without_holder_is_refused(make, num_clients, k, words):
  with pytest.raises(ValueError, match=words):
    make(num_classes=9, num_clients=num_clients, classes_per_client=k, seed=0)


@pytest.mark.parametrize('num_classes', [9, 10, 11])
@given(seed=seeds)
def test_a17_twelve_clients_have_exactly_two_classes_in_every_split(num_classes, seed):
  plan = pathological(num_classes=num_classes, num_clients=12, seed=seed)
  held = plan.shares > 0
  for size in (held.sum(axis=0), 5, 700):
    labels = labels_of(np.broadcast_to(size, [num_classes]))
    counts = table(labels, plan.deal(labels), num_classes)
    np.testing.assert_array_equal(counts > 0, held)
    assert ((counts > 0).sum(axis=1) == 2).all()


def test_a17_shares_of_a_class_among_its_holders_are_random():
  shares = [
    plan.shares[plan.shares[:, c] > 0, c]
    for seed in range(300)
    for plan in [pathological(num_classes=3, num_clients=3, seed=seed)]
    for c in range(3)
  ]
  first = np.array([pair[0] for pair in shares])
  # Two holders: uniform between 5 % and 95 %.
  assert 0.05 <= first.min() < 0.08 and 0.92 < first.max() <= 0.95
  np.testing.assert_allclose(np.histogram(first, 3, (0.05, 0.95))[0] / len(first), 1 / 3, atol=0.06)


def test_a17_a_class_with_fewer_rows_than_holders_is_refused():
  plan = pathological(num_classes=3, num_clients=6, seed=0)
  with pytest.raises(ValueError, match='Class 1 needs 4 rows, 1 .* Received: 3 labels of class 1'):
    plan.deal(labels_of([4, 3, 4]))
