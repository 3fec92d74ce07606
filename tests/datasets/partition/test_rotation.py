"""Images turned by an angle of each client's own."""

import numpy as np
import pytest

from tffpers.datasets import FederatedDataset
from tffpers.datasets.partition import rotate


def turned(x, degrees):
  data = FederatedDataset.from_arrays({'a': (x, np.zeros([len(x)], np.int32))})
  return rotate(data, {'a': degrees}).load('a')[0]


SQUARE = np.arange(2 * 3 * 3 * 2).reshape(2, 3, 3, 2)


@pytest.mark.parametrize('degrees', [-90, 0, 90, 180, 270, 360, 540.0, np.float32(90)])
def test_quarter_turns_are_exact_and_anticlockwise(degrees):
  expected = SQUARE
  for _ in range(int(degrees) // 90 % 4):
    # The last column becomes the first row.
    expected = expected.swapaxes(1, 2)[:, ::-1]
  result = turned(SQUARE, degrees)
  np.testing.assert_array_equal(result, expected)
  assert result.dtype == SQUARE.dtype


def test_half_turns_need_no_square():
  x = np.arange(6).reshape(1, 2, 3, 1)
  np.testing.assert_array_equal(turned(x, 180), x[:, ::-1, ::-1])
  for degrees in (90, 270):
    with pytest.raises(ValueError, match=f"square. Received: client 'a' with degrees {degrees}"):
      turned(x, degrees)


def test_small_turns_go_the_same_way_and_stay_in_range():
  rng = np.random.default_rng(0)
  x = np.zeros([2, 15, 15, 2], np.float32)
  x[:, 4:11, 4:11] = rng.uniform(0.5, 1, [2, 7, 7, 2])
  np.testing.assert_allclose(turned(x, 89.9999), turned(x, 90), atol=1e-3)
  # A point right of the centre goes up.
  x[:] = 0
  x[:, 7, 11] = 1
  result = turned(x, 45)
  assert result.dtype == np.float32 and result.shape == x.shape
  assert np.unravel_index(result[0, ..., 0].argmax(), [15, 15]) == (4, 10)
  assert result.min() >= 0 and result.max() <= 1
  np.testing.assert_array_equal(result[..., 0], result[..., 1])


def test_bytes_are_turned_by_quarters_only():
  with pytest.raises(
    ValueError, match="floats. Received: client 'a' with degrees 30, x of dtype u"
  ):
    turned(SQUARE.astype(np.uint8), 30)


@pytest.mark.parametrize('degrees', [{}, {'b': 90}, {'a': np.nan}, {'a': np.inf}])
def test_every_client_needs_an_angle(degrees):
  data = FederatedDataset.from_arrays({'a': (SQUARE, np.zeros([2]))})
  with pytest.raises(ValueError, match="needs an angle in degrees. Received: client 'a'"):
    rotate(data, degrees)


def test_ids_may_be_integers_and_data_must_be_images():
  data = FederatedDataset.from_arrays({7: (SQUARE, np.zeros([2]))})
  np.testing.assert_array_equal(rotate(data, {7: 180}).load(7)[0], SQUARE[:, ::-1, ::-1])
  flat = FederatedDataset.from_arrays({'a': (np.zeros([2, 9]), np.zeros([2]))})
  with pytest.raises(ValueError, match='height, width, channels'):
    rotate(flat, {'a': 0})
