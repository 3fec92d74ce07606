"""Whole data sets and their stratified split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tffpers.datasets import arrays


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 2**32))
def test_d10_a_fifth_of_every_class_is_in_test_and_every_row_in_one_part(labels, seed):
  y = np.array(labels, np.int32)
  train, test = arrays.stratified_rows(y, seed=seed)
  assert sorted([*train, *test]) == list(range(len(y)))
  assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()
  for value in range(6):
    # No fifth of a whole number lies half way between two others.
    assert (y[test] == value).sum() == np.floor((y == value).sum() / 5 + 0.5)


def test_d15_the_split_depends_on_the_seed_alone():
  y = np.repeat(np.arange(3), 20)
  draws = []
  for seed, state in ((1, 0), (1, 5), (2, 0)):
    np.random.seed(state)  # noqa: NPY002
    draws.append(arrays.stratified_rows(y, seed=seed)[1].tolist())
  assert draws[0] == draws[1] != draws[2]


def test_d7_several_labels_are_no_classes():
  y = np.random.default_rng(0).integers(0, 2, [100, 14]).astype(np.float32)
  train, test = arrays.stratified_rows(y, seed=0)
  assert (len(train), len(test)) == (80, 20)


def test_negative_seed_is_refused():
  with pytest.raises(ValueError, match='seed=-1'):
    arrays.stratified_rows(np.zeros([5], np.int32), seed=-1)


def test_bytes_become_floats_in_0_1():
  x = arrays.as_floats(np.arange(256, dtype=np.uint8))
  assert x.dtype == np.float32
  np.testing.assert_array_equal(x, np.arange(256, dtype=np.float32) / np.float32(255))
