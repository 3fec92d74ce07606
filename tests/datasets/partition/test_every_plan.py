"""What every partitioner holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import CASES, labels_of, table
from tffpers.datasets import label_counts, label_csv, label_markdown, partition

every = pytest.mark.parametrize('name', CASES)
seeds = st.integers(0, 2**40)


@st.composite
def shapes(draw, any_size=False):
  """Numbers of classes and clients, and labels; at least two rows a client of every class."""
  num_classes, num_clients = draw(st.integers(2, 12)), draw(st.integers(1, 15))
  sizes = st.integers(0, 20) if any_size else st.integers(2 * num_clients, 2 * num_clients + 30)
  counts = draw(st.lists(sizes, min_size=num_classes, max_size=num_classes))
  return num_classes, num_clients, labels_of(counts, draw(st.integers(0, 9)))


def check_rows(case, plan, labels):
  parts = plan.deal(labels)
  assert len(parts) == plan.num_clients
  assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
  used = np.bincount(np.concatenate(parts), minlength=len(labels))
  assert len(used) == len(labels)
  assert (used == case.uses).all() if case.exhaustive else (used <= case.uses).all()


@every
@given(st.data())
def test_p9_d15_rows_are_disjoint_and_exhaustive(name, data):
  case = CASES[name]
  num_classes, num_clients, labels = data.draw(shapes())
  check_rows(case, case.make(num_classes, num_clients, data.draw(seeds)), labels)


@pytest.mark.parametrize('name', [name for name in CASES if CASES[name].any_size])
@given(st.data())
def test_p9_few_rows_and_missing_classes_are_dealt_too(name, data):
  case = CASES[name]
  num_classes, num_clients, labels = data.draw(shapes(any_size=True))
  check_rows(case, case.make(num_classes, num_clients, data.draw(seeds)), labels)


@pytest.mark.parametrize('name', [name for name in CASES if not CASES[name].any_size])
def test_too_few_rows_are_refused_with_their_number(name):
  plan = CASES[name].make(3, 4, 0)
  with pytest.raises(ValueError, match=r'Received: [012] labels'):
    plan.deal(np.array([0, 1]))


@every
def test_d15_parts_depend_on_the_seed_and_not_on_the_global_generator(name):
  labels = labels_of([30] * 5)
  draws = []
  for global_seed, seed in ((1, 5), (2, 5), (1, 6)):
    np.random.seed(global_seed)  # noqa: NPY002
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    draws.append([part.tolist() for part in CASES[name].make(5, 4, seed).deal(labels)])
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
  assert draws[0] == draws[1] != draws[2]


@every
def test_a_plan_deals_alike_again_whatever_kind_of_integers(name):
  labels = labels_of([30] * 5)
  plan = CASES[name].make(5, 4, 3)
  first = [part.tolist() for part in plan.deal(labels)]
  plan.deal(labels[:70])
  for again in (labels, labels.astype(np.uint8), labels.astype(np.uint64), labels.tolist()):
    assert [part.tolist() for part in plan.deal(again)] == first


@every
@pytest.mark.parametrize('num_classes, num_clients', [(4, 5), (9, 12), (11, 6)])
@pytest.mark.parametrize('seed', [0, 1])
def test_p9_train_and_test_of_a_client_are_alike(name, num_classes, num_clients, seed):
  case = CASES[name]
  plan = case.make(num_classes, num_clients, seed)
  small = np.arange(num_classes) * 40 + 100
  train, test = labels_of(10 * small, 1), labels_of(small, 2)
  expected = table(train, plan.deal(train), num_classes) / 10
  received = table(test, plan.deal(test), num_classes)
  # Moving so many rows from client to client would make them equal.
  moved = np.abs(received - expected).sum() / 2
  assert moved < 0.1 * received.sum()


@pytest.mark.parametrize('name', [name for name in CASES if CASES[name].by_label])
def test_plans_of_other_seeds_are_not_alike(name):
  """So the bound above tells clients of one plan from others."""
  labels = labels_of([400] * 6)
  first, other = (table(labels, CASES[name].make(6, 8, seed).deal(labels), 6) for seed in (0, 1))
  assert np.abs(first - other).sum() / 2 > 0.2 * first.sum()


@pytest.mark.parametrize('name', [name for name in CASES if name != 'own_shares'])
@pytest.mark.parametrize('seed', [-1, 0.5, True, '0', None])
def test_d15_seeds_are_checked(name, seed):
  with pytest.raises(ValueError, match='seed must be an integer ≥ 0. Received: seed='):
    CASES[name].make(3, 3, seed)


@pytest.mark.parametrize('name', [name for name in CASES if name not in ('own_shares', 'groups')])
@pytest.mark.parametrize('num_clients', [0, -1, 2.0])
def test_numbers_of_clients_are_checked(name, num_clients):
  with pytest.raises(
    ValueError, match='num_clients must be an integer ≥ 1. Received: num_clients='
  ):
    CASES[name].make(3, num_clients, 0)


@pytest.mark.parametrize('name', [name for name in CASES if CASES[name].by_label])
@pytest.mark.parametrize(
  'labels, words',
  [
    (np.zeros([200, 14], int), r'multi-label.*shape \(200, 14\)'),
    (np.zeros([200, 1], int), r'shape \(200, 1\)'),
    (np.zeros([200]), 'integers. Received: labels of dtype float64'),
    (np.array(['a'] * 200), 'integers. Received: labels of dtype <U1'),
    (np.zeros([200], bool), 'integers. Received: labels of dtype bool'),
  ],
)
def test_d7_labels_that_are_no_class_ids_are_refused(name, labels, words):
  with pytest.raises(ValueError, match=words):
    CASES[name].make(3, 3, 0).deal(labels)


# Shards sort labels, they need not know how many there are.
@pytest.mark.parametrize('name', [n for n in CASES if CASES[n].by_label and n != 'shards'])
@pytest.mark.parametrize('wrong', [-1, 3])
def test_labels_out_of_range_are_refused(name, wrong):
  labels = np.arange(300) % 3
  labels[7] = wrong
  with pytest.raises(ValueError, match=r'Labels must be in \[0, 3\).*Received: labels in \['):
    CASES[name].make(3, 3, 0).deal(labels)


@every
def test_a_partition_reports_itself(name):
  case = CASES[name]
  labels = labels_of([60, 80, 90])
  x = labels[:, None].astype(np.float32)
  plan = case.make(3, 4, 0)
  train, test = partition.federate(plan, x, labels, x[:150], labels[:150])
  assert train.client_ids == test.client_ids == [str(k) for k in range(plan.num_clients)]
  for data in (train, test):
    assert all((data.load(key)[0][:, 0] == data.load(key)[1]).all() for key in data.client_ids)
  counts = label_counts(train)
  expected = table(labels, plan.deal(labels), 3)
  assert [list(row.values()) for row in counts.values()] == expected.tolist()
  assert len(label_csv(counts).splitlines()) == plan.num_clients + 1
  assert len(label_markdown(counts).splitlines()) == plan.num_clients + 2
