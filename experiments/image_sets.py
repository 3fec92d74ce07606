"""Whole data sets of images, before anybody deals them to clients."""

import numpy as np

from tffpers import datasets

_SUBSET = 11  # Sets this draw apart from others of the same seed.


def read(name: str, data_dir: str | None) -> datasets.Arrays:
  """A whole data set with pixels in [0, 1].

  Args:
    name: Such as `digits`, which needs nothing, or another of `datasets.read_<name>`.
    data_dir: Folder of its own files; None for where its package keeps them.

  Raises:
    FileNotFoundError: The data are not there; says how to get them.
  """
  return datasets.read_digits() if name == 'digits' else getattr(datasets, f'read_{name}')(data_dir)


def num_classes(arrays: datasets.Arrays) -> int:
  """Classes are 0 … num_classes − 1."""
  return int(arrays.y_train.max()) + 1


def subset(
  arrays: datasets.Arrays, num_train: int | None, num_test: int | None, seed: int
) -> datasets.Arrays:
  """Random rows of both splits; None keeps all.

  Args:
    arrays: A whole data set.
    num_train: Training rows to keep.
    num_test: Test rows to keep.
    seed: Seed of the draw.
  """
  random = np.random.default_rng([seed, _SUBSET])
  kept = []
  for x, y, number in (
    (arrays.x_train, arrays.y_train, num_train),
    (arrays.x_test, arrays.y_test, num_test),
  ):
    rows = np.sort(random.permutation(len(y))[:number])
    kept += [x[rows], y[rows]]
  return datasets.Arrays(*kept)
