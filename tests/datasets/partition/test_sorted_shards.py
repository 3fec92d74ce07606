"""Two shards of data sorted by label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.partition.harness import labels_of, table
from tffpers.datasets.partition import shards


@given(st.integers(1, 15), st.integers(1, 4), st.integers(0, 60), st.integers(0, 99))
def test_clients_have_their_shards_of_sorted_labels(num_clients, per_client, extra, seed):
  plan = shards(num_clients=num_clients, shards_per_client=per_client, seed=seed)
  n = num_clients * per_client + extra
  labels = np.random.default_rng(n).integers(0, 5, n)
  edges = [k * n // (num_clients * per_client) for k in range(num_clients * per_client + 1)]
  ordered = np.sort(labels)
  for rows, positions in zip(plan.deal(labels), plan.positions, strict=True):
    expected = [label for k in positions for label in ordered[edges[k] : edges[k + 1]]]
    assert sorted(labels[rows].tolist()) == sorted(expected)


def test_mcmahan_100_clients_of_mnist_have_600_examples_of_two_digits_or_a_few_more():
  labels = labels_of([6000] * 10)
  parts = shards(num_clients=100, seed=0).deal(labels)
  assert {len(part) for part in parts} == {600}
  counts = table(labels, parts, 10)
  # 200 shards of 300, 20 to a digit: none holds two digits.
  assert set(np.unique(counts).tolist()) == {0, 300, 600}


def test_train_and_test_of_a_client_have_the_same_digits():
  plan = shards(num_clients=20, seed=1)
  tables = [table(y := labels_of([n] * 10), plan.deal(y), 10) for n in (600, 100)]
  np.testing.assert_array_equal(tables[0], 6 * tables[1])


def test_rows_within_a_class_are_drawn():
  labels = np.zeros([1000], int)
  part = shards(num_clients=2, seed=0).deal(labels)[0]
  assert 200 < np.sum(part < 500) < 300


def test_arguments_are_checked():
  with pytest.raises(ValueError, match='shards_per_client=0'):
    shards(num_clients=2, shards_per_client=0, seed=0)
  with pytest.raises(ValueError, match='Each of 6 shards needs a row. Received: 5 labels'):
    shards(num_clients=3, seed=0).deal(np.arange(5))
