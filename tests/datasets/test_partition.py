"""Partitioners: every row once, from the seed alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tffpers.datasets import FederatedDataset, partition


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
