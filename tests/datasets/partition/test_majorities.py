"""Two majority classes per client."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets import FederatedDataset, partition
from tffpers.datasets.partition import majority_classes

CIFAR = labels_of([5000] * 10)


def cifar_counts(fraction, num_examples=500, seed=0):
  plan = majority_classes(num_classes=10, num_clients=20, fraction=fraction, seed=seed)
  parts = plan.deal(CIFAR, num_examples=num_examples)
  assert len(set(np.concatenate(parts).tolist())) == 20 * num_examples
  return plan, table(CIFAR, parts, 10)


def test_b17_p_of_a_fifth_gives_equal_class_margins():
  for num_examples in (100, 500):
    _, counts = cifar_counts(0.2, num_examples)
    assert (counts == num_examples // 10).all()
  _, counts = cifar_counts(0.2, 503)
  assert set(counts.sum(axis=1).tolist()) == {503}
  margins = counts.sum(axis=0)
  assert margins.max() - margins.min() <= 2


@pytest.mark.parametrize('seed', range(3))
def test_b17_p_of_1_gives_only_the_two_majority_classes_which_are_distinct(seed):
  plan, counts = cifar_counts(1.0, seed=seed)
  assert (plan.majorities[:, 0] != plan.majorities[:, 1]).all()
  for row, majority in zip(counts, plan.majorities, strict=True):
    assert set(np.flatnonzero(row).tolist()) == set(majority.tolist())
    assert (row[majority] == 250).all()


@pytest.mark.parametrize('fraction', [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
@pytest.mark.parametrize('num_examples', [100, 500])
def test_b17_counts_are_exact_without_float_truncation(fraction, num_examples):
  plan, counts = cifar_counts(fraction, num_examples)
  held = round(fraction * 100) * num_examples // 100
  for row, majority in zip(counts, plan.majorities, strict=True):
    assert row[majority].sum() == held and np.ptp(row[majority]) <= 1
    assert np.ptp(np.delete(row, majority)) <= 1 and row.sum() == num_examples


@pytest.mark.parametrize(
  'fraction, num_examples, held', [(0.29, 100, 29), (0.57, 100, 57), (0.35, 10, 4), (0.55, 10, 6)]
)
def test_b17_products_that_floats_miss_are_rounded_to_nearest(fraction, num_examples, held):
  plan, counts = cifar_counts(fraction, num_examples)
  assert {int(row[m].sum()) for row, m in zip(counts, plan.majorities, strict=True)} == {held}


@given(st.data())
def test_b17_any_shape_is_disjoint_with_equal_clients(data):
  num_classes, num_clients = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 15))
  plan = majority_classes(
    num_classes=num_classes,
    num_clients=num_clients,
    fraction=data.draw(st.floats(2 / num_classes, 1)),
    seed=data.draw(st.integers(0, 99)),
  )
  times = np.bincount(plan.majorities.ravel(), minlength=num_classes)
  assert times.max() - times.min() <= 1
  counts = data.draw(
    st.lists(st.integers(3 * num_clients, 90), min_size=num_classes, max_size=num_classes)
  )
  labels = labels_of(counts)
  parts = plan.deal(labels)
  assert len({len(part) for part in parts}) == 1 <= len(parts[0])
  assert len(set(np.concatenate(parts).tolist())) == sum(map(len, parts))
  n = len(parts[0])
  for row, majority in zip(table(labels, parts, num_classes), plan.majorities, strict=True):
    assert abs(row[majority].sum() - plan.fraction * n) <= 0.5 + 1e-6


def test_b17_without_a_number_as_many_as_the_scarcest_class_allows():
  plan = majority_classes(num_classes=10, num_clients=20, fraction=1.0, seed=0)
  # Every class is wanted by 4 clients.
  assert {len(part) for part in plan.deal(labels_of([400] * 9 + [200]))} == {100}


def test_b15_b17_train_validation_and_test_are_disjoint():
  x = np.arange(2000)
  y = labels_of([200] * 10)
  plan = majority_classes(num_classes=10, num_clients=5, fraction=0.6, seed=0)
  train, test = partition.federate(plan, x[:1500], y[:1500], x[1500:], y[1500:])
  train, validation = train.split(0.8, 0.2)
  rows = [
    row for part in (train, validation, test) for k in part.client_ids for row in part.load(k)[0]
  ]
  assert len(rows) == len(set(rows)) and all(isinstance(p, FederatedDataset) for p in (train, test))


@pytest.mark.parametrize(
  'arguments, words',
  [
    ({'fraction': 0.19}, r'from 2 / num_classes = 0.2.*Received: fraction=0.19'),
    ({'fraction': 1.01}, 'fraction=1.01'),
    ({'fraction': float('nan')}, 'fraction=nan'),
    ({'num_classes': 1}, 'num_classes must be an integer ≥ 2'),
  ],
)
def test_b17_arguments_are_checked(arguments, words):
  with pytest.raises(ValueError, match=words):
    majority_classes(
      **{'num_classes': 10, 'num_clients': 2, 'fraction': 0.5, 'seed': 0} | arguments
    )


def test_b17_more_rows_than_there_are_are_refused_by_class():
  plan = majority_classes(num_classes=2, num_clients=3, fraction=1.0, seed=0)
  with pytest.raises(ValueError, match='need 15 rows of class 1. Received: 14 labels of class 1'):
    plan.deal(labels_of([15, 14]), num_examples=10)
  with pytest.raises(ValueError, match='num_examples=0'):
    plan.deal(labels_of([15, 14]), num_examples=0)
