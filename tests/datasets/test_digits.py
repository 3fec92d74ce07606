"""Scikit-learn's digits."""

import numpy as np
import pytest
from sklearn import datasets

from tffpers.datasets import load_digits, read_digits


def images(*parts):
  """All images with their labels, in an order of their own."""
  pairs = [data.load(key) for data in parts for key in data.client_ids]
  rows = np.concatenate([np.concatenate([x.reshape(-1, 64), y[:, None]], 1) for x, y in pairs])
  return rows[np.lexsort(rows.T)]


def test_every_digit_is_in_one_part_of_one_client():
  source = datasets.load_digits()
  train, test = load_digits(num_clients=7)
  assert train.client_ids == test.client_ids == [str(k) for k in range(7)]
  expected = np.concatenate([source.data / 16, source.target[:, None]], 1).astype(np.float32)
  np.testing.assert_array_equal(images(train, test), expected[np.lexsort(expected.T)])


def test_images_are_float32_in_0_1_with_a_channel():
  train, _ = load_digits()
  x, y = train.load('3')
  assert (x.dtype, y.dtype, x.shape[1:]) == (np.float32, np.int32, (8, 8, 1))
  assert x.min() == 0 and x.max() == 1


def test_d15_parts_depend_on_the_seed():
  first, again, other = (load_digits(seed=seed)[0].load('0')[1].tolist() for seed in (0, 0, 1))
  assert first == again != other


def test_permuted_moves_pixels_within_images_only():
  for plain, moved in zip(load_digits(), load_digits(permuted=True), strict=True):
    for key in plain.client_ids:
      (x, y), (permuted, same_y) = plain.load(key), moved.load(key)
      assert (x != permuted).any()
      np.testing.assert_array_equal(y, same_y)
      np.testing.assert_array_equal(np.sort(x.reshape(-1, 64)), np.sort(permuted.reshape(-1, 64)))


def test_more_clients_than_digits_are_refused():
  with pytest.raises(ValueError, match='num_clients=1798'):
    load_digits(num_clients=1798)


def test_whole_arrays_hold_every_digit_a_fifth_of_each_class_in_test():
  source = datasets.load_digits()
  whole = read_digits()
  x, y = np.concatenate([whole.x_train, whole.x_test]), np.concatenate(whole[1::2])
  found = np.concatenate([x.reshape(-1, 64), y[:, None]], 1)
  expected = np.concatenate([source.data / 16, source.target[:, None]], 1).astype(np.float32)
  np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])
  assert (x.dtype, y.dtype) == (np.float32, np.int32)
  counts = np.bincount(source.target)
  assert np.bincount(whole.y_test).tolist() == [round(n / 5) for n in counts]
  assert (read_digits(seed=1).y_test.shape) == whole.y_test.shape
  assert (read_digits(seed=1).x_test != whole.x_test).any()
