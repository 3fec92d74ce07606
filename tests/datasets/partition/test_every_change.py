"""What every change of a client's data holds: pixels moved, labels exchanged, images turned."""

import zlib

import numpy as np
import pytest

from tffpers.datasets import FederatedDataset
from tffpers.datasets.partition import permute_labels, permute_pixels, rotate


def turn(data, *, seed):
  """A whole number of quarter turns by seed and client id."""
  angles = {k: 90 * (zlib.crc32(f'{seed}{k}'.encode()) % 4) for k in data.client_ids}
  return rotate(data, angles)


def exchange(data, *, seed):
  return permute_labels(data, num_classes=7, seed=seed)


every = pytest.mark.parametrize('change', [permute_pixels, exchange, turn])
IDS = ['ann', 'bob', 'eve', 'zoë', '0', '1']


def dataset(client_ids, n=5, first=0, dtype=np.float32):
  images = np.arange(first, first + n)[:, None, None, None] * 100 + np.arange(32).reshape(4, 4, 2)
  y = np.arange(first, first + n, dtype=np.int32) % 7
  return FederatedDataset.from_arrays({key: (images.astype(dtype), y) for key in client_ids})


def rows(data, key):
  x, y = data.load(key)
  return x.tolist(), y.tolist()


@every
@pytest.mark.parametrize('dtype', [np.float32, np.uint8])
def test_ids_sizes_shapes_and_dtypes_stay(change, dtype):
  data = dataset(IDS, dtype=dtype)
  changed = change(data, seed=3)
  assert changed.client_ids == IDS
  assert changed.element_spec == data.element_spec
  for key in IDS:
    assert changed.num_examples(key) == 5
    # Every example keeps its values, wherever they are.
    before, after = (np.sort(d.load(key)[0].reshape(5, -1)) for d in (data, changed))
    np.testing.assert_array_equal(before, after)


@every
def test_d15_a_clients_change_depends_on_seed_and_id_alone(change):
  data = dataset(IDS)
  changed = change(data, seed=1)
  for key in IDS:
    assert rows(change(dataset([key]), seed=1), key) == rows(changed, key)
    assert rows(change(dataset(['x', *reversed(IDS)]), seed=1), key) == rows(changed, key)
  other = change(data, seed=2)
  assert any(rows(changed, key) != rows(other, key) for key in IDS)
  assert len({str(rows(changed, key)) for key in IDS}) > 2


@every
def test_p9_train_and_test_of_a_client_change_alike(change):
  """An example changes as it would in the other set."""
  whole = change(dataset(IDS, 9), seed=4)
  train, test = change(dataset(IDS, 4), seed=4), change(dataset(IDS, 5, first=4), seed=4)
  for key in IDS:
    for field in (0, 1):
      joined = np.concatenate([train.load(key)[field], test.load(key)[field]])
      np.testing.assert_array_equal(joined, whole.load(key)[field])


@every
def test_a_client_without_examples_stays_empty(change):
  changed = change(dataset(['ann'], n=0), seed=0)
  assert changed.load('ann')[0].shape == (0, 4, 4, 2) and changed.load('ann')[1].shape == (0,)


@every
def test_the_data_given_stay_as_they_were(change):
  data = dataset(IDS)
  before = [rows(data, key) for key in IDS]
  change(data, seed=0)
  assert [rows(data, key) for key in IDS] == before
