"""Scikit-learn's handwritten digits: 1,797 small images that need no download."""

import numpy as np

from tffpers.datasets import partition
from tffpers.datasets.arrays import Arrays, stratified_rows
from tffpers.datasets.federated_dataset import FederatedDataset


def read_digits(*, seed: int = 0) -> Arrays:
  """Digits of 8 × 8 pixels, 80 % of each for training, for a partitioner to deal out.

  Args:
    seed: Non-negative seed of the split.

  Returns:
    Images [n, 8, 8, 1], ink 1, and the digits.

  Raises:
    ImportError: If the package `scikit-learn`, which holds the images, is missing.
    ValueError: If `seed` is negative.

  >>> digits = read_digits()
  >>> digits.x_train.shape, digits.x_test.shape
  ((1438, 8, 8, 1), (359, 8, 8, 1))
  """
  x, y = _images()
  train, test = stratified_rows(y, seed=seed)
  return Arrays(x[train], y[train], x[test], y[test])


def load_digits(
  *, num_clients: int = 10, permuted: bool = False, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Digits of 8 × 8 pixels in random parts, 80 % of each part for training.

  Args:
    num_clients: Number of parts, in [1, 1797].
    permuted: Whether every client has an order of pixels of its own, as in
      `load_pmnist`.
    seed: Non-negative seed of the parts, of the split and of the orders.

  Returns:
    `(train, test)`, both with all clients, `'0'` … `'num_clients − 1'`; `x` float32
    [n, 8, 8, 1] in [0, 1], ink 1, and `y` int32 [n], the digit.

  Raises:
    ImportError: If the package `scikit-learn`, which holds the images, is missing.
    ValueError: If an argument is out of range.

  >>> train, test = load_digits(num_clients=10)
  >>> train.num_examples("0"), test.num_examples("0")
  (144, 36)
  """
  x, y = _images()
  data = partition.as_clients(x, y, partition.iid(y, num_clients, seed=seed))
  if permuted:
    data = partition.permute_pixels(data, seed=seed)
  train, test = data.split(0.8, 0.2, seed=seed)
  return train, test


def _images() -> tuple[np.ndarray, np.ndarray]:
  from sklearn import datasets  # Takes a second, and only this function needs it.

  source = datasets.load_digits()
  return (source.images[..., np.newaxis] / 16).astype(np.float32), source.target.astype(np.int32)
