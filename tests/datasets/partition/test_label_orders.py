"""Class ids exchanged by each client."""

import numpy as np
import pytest

from tffpers.datasets import FederatedDataset
from tffpers.datasets.partition import permute_labels


def dataset(y, client_ids='ab'):
  y = np.asarray(y)
  return FederatedDataset.from_arrays({k: (np.arange(len(y)), y) for k in client_ids})


def test_labels_are_exchanged_and_features_are_not():
  data = dataset(np.arange(20, dtype=np.int16) % 10)
  changed = permute_labels(data, num_classes=10, seed=0)
  orders = {}
  for key in data.client_ids:
    x, y = changed.load(key)
    assert x.tolist() == list(range(20)) and y.dtype == np.int16
    assert y[:10].tolist() == y[10:].tolist()
    orders[key] = y[:10].tolist()
    assert sorted(orders[key]) == list(range(10)) != orders[key]
  assert orders['a'] != orders['b']


def test_what_is_no_class_id_is_refused():
  for y, words in (
    ([0, 3], r'\[0, 3\).*Received: labels in \[0, 3\]'),
    ([-1, 0], r'labels in \[-1, 0\]'),
    ([0.0, 1.0], 'dtype float64'),
    (np.zeros([2, 3], int), r'multi-label.*shape \(2, 3\)'),
  ):
    with pytest.raises(ValueError, match=words):
      permute_labels(dataset(y), num_classes=3, seed=0)


@pytest.mark.parametrize('arguments', [{'num_classes': 0}, {'seed': -1}, {'seed': 0.5}])
def test_arguments_are_checked(arguments):
  name, value = next(iter(arguments.items()))
  with pytest.raises(ValueError, match=f'Received: {name}={value}'):
    permute_labels(dataset([0]), **{'num_classes': 2, 'seed': 0} | arguments)


def test_class_ids_that_the_dtype_does_not_hold_are_refused():
  data = FederatedDataset.from_arrays({'a': (np.zeros([4, 1]), np.arange(4, dtype=np.uint8))})
  with pytest.raises(ValueError, match='uint8'):
    permute_labels(data, num_classes=300, seed=0)
