"""Scikit-learn's handwritten digits: 1,797 small images that need no download."""

import numpy as np

from tffpers.datasets import partition
from tffpers.datasets.federated_dataset import FederatedDataset


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
  from sklearn import datasets  # Takes a second, and only this function needs it.

  source = datasets.load_digits()
  x = (source.images[..., np.newaxis] / 16).astype(np.float32)
  parts = partition.iid(source.target, num_clients, seed=seed)
  data = partition.as_clients(x, source.target.astype(np.int32), parts)
  if permuted:
    data = partition.permute_pixels(data, seed=seed)
  train, test = data.split(0.8, 0.2, seed=seed)
  return train, test
