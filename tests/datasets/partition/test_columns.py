"""Natural clients by a column."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tffpers.datasets.partition import natural


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=40))
def test_rows_go_to_the_client_their_column_names(ids):
  rows = np.arange(len(ids), dtype=np.float64)
  table = np.stack([rows, ids, -rows], axis=1)
  by_place = natural(table, rows.astype(int), column=1)
  by_name = natural({'a': rows, 'who': np.array(ids)}, rows.astype(int), column='who')
  assert by_place.client_ids == by_name.client_ids == [str(k) for k in dict.fromkeys(ids)]
  for key in by_name.client_ids:
    mine = [row for row, other in enumerate(ids) if str(other) == key]
    assert by_place.load(key)[1].tolist() == by_name.load(key)[0]['a'].tolist() == mine
    np.testing.assert_array_equal(by_place.load(key)[0], table[mine][:, [0, 2]])


def test_the_column_is_no_feature():
  x = {'who': np.array(['a', 'b']), 'pixels': np.zeros([2, 4])}
  assert list(natural(x, np.zeros([2]), column='who').load('a')[0]) == ['pixels']


def test_p5_100k_rows_of_3500_clients_group_in_5_seconds():
  rng = np.random.default_rng(0)
  ids = rng.integers(0, 3500, 100_000)
  x = {'who': ids, 'pixels': rng.normal(size=[100_000, 64]).astype(np.float32)}
  start = time.perf_counter()
  data = natural(x, np.arange(100_000), column='who')
  assert time.perf_counter() - start < 5
  np.testing.assert_array_equal(data.load(17)[1], np.flatnonzero(ids == 17))


@pytest.mark.parametrize(
  'x, column, words',
  [
    ({'a': np.zeros(2), 'b': np.zeros(2)}, 'c', r"column='c', x with \['a', 'b'\]"),
    ({'a': np.array([1, 2])}, 'a', 'another feature'),
    (np.zeros([2, 3]), 3, r'column=3, x of shape \(2, 3\)'),
    (np.zeros([2, 3]), 'a', "column='a'"),
    (np.zeros([2, 1]), 0, 'another feature'),
    (np.zeros([2, 3, 3]), 0, 'a table'),
    (np.array([[1, 2], [1.5, 2]]), 0, 'whole numbers. Received: 1.5 in column 0'),
    (np.array([[1, 2], [np.nan, 2]]), 0, 'whole numbers. Received: nan in column 0'),
  ],
)
def test_columns_are_checked(x, column, words):
  with pytest.raises(ValueError, match=words):
    natural(x, np.zeros([2]), column=column)
