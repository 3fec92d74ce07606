"""Pixels in an order of each client's own."""

import numpy as np
import pytest

from tffpers.datasets import FederatedDataset, partition


def images(client_ids, n=3, shape=(4, 5, 2)):
  """Every position holds its own number, channel c that number + 100 c."""
  height, width, channels = shape
  image = np.arange(height * width).reshape(height, width, 1) + 100 * np.arange(channels)
  x = np.broadcast_to(image, [n, *shape]).astype(np.float32)
  return FederatedDataset.from_arrays({key: (x, np.arange(n)) for key in client_ids})


def test_permute_pixels_moves_all_channels_and_images_of_a_client_alike():
  moved, y = partition.permute_pixels(images(['a']), seed=3).load('a')
  order = moved[0, ..., 0].ravel()
  assert moved.shape == (3, 4, 5, 2) and y.tolist() == [0, 1, 2]
  assert sorted(order.tolist()) == list(range(20)) != order.tolist()
  np.testing.assert_array_equal(moved[..., 1], moved[..., 0] + 100)
  np.testing.assert_array_equal(moved, np.broadcast_to(moved[0], moved.shape))


def test_permute_pixels_depends_on_seed_and_id_only():
  def order(client_ids, client_id, seed, n=3):
    moved = partition.permute_pixels(images(client_ids, n), seed=seed)
    return moved.load(client_id)[0][0, ..., 0].ravel().tolist()

  reference = order(['a', 'b'], 'a', 0)
  assert order(['b', 'c', 'a'], 'a', 0, n=1) == reference
  assert order(['a', 'b'], 'b', 0) != reference != order(['a', 'b'], 'a', 1)


def test_d15_permute_pixels_of_a_seed_stays_what_it_was():
  data = images('ab', n=1, shape=(2, 3, 1))
  orders = [partition.permute_pixels(data, seed=3).load(key)[0].ravel().tolist() for key in 'ab']
  assert orders == [[2, 1, 0, 3, 5, 4], [0, 5, 3, 2, 1, 4]]


def test_permute_pixels_of_a_client_without_images_leaves_it_empty():
  arrays = {'a': (np.zeros([0, 2, 2, 1], np.float32), np.zeros([0], np.int32))}
  moved = partition.permute_pixels(FederatedDataset.from_arrays(arrays), seed=0)
  assert moved.load('a')[0].shape == (0, 2, 2, 1)


def test_permute_pixels_refuses_what_is_no_image():
  flat = FederatedDataset.from_arrays({'a': (np.zeros([2, 9]), np.zeros([2]))})
  named = FederatedDataset.from_arrays({'a': ({'x': np.zeros([2, 3, 3, 1])}, np.zeros([2]))})
  for data in (flat, named):
    with pytest.raises(ValueError, match='height, width, channels'):
      partition.permute_pixels(data, seed=0)
  with pytest.raises(ValueError, match='seed=-1'):
    partition.permute_pixels(images(['a']), seed=-1)
