"""Data sets that are not yet divided among clients."""

from typing import NamedTuple

import numpy as np


class Arrays(NamedTuple):
  """All images of a data set, for the partitioners of `partition` to deal to clients.

  Attributes:
    x_train: float32 [n, height, width, channels] in [0, 1].
    y_train: int32 [n], the class; float32 [n, labels] of zeros and ones where an image
      has several labels.
    x_test: As `x_train`.
    y_test: As `y_train`.
  """

  x_train: np.ndarray
  y_train: np.ndarray
  x_test: np.ndarray
  y_test: np.ndarray


def as_floats(images: np.ndarray) -> np.ndarray:
  """Bytes [n, …] as float32 in [0, 1]."""
  x = images.astype(np.float32)
  x /= np.float32(255)
  return x


def stratified_rows(y: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Divides rows into train and test so that a fifth of every class is tested.

  Args:
    y: Classes, integers [n]; or several labels an example, [n, labels], which make no
      classes: there a fifth of all rows is drawn.
    seed: Non-negative seed of the draw.

  Returns:
    `(train, test)`, increasing int64 indices, disjoint and together all of 0 … n − 1.
    A class of n_c rows has n_c / 5 of them, rounded, in test.

  Raises:
    ValueError: If `seed` is negative.

  >>> train, test = stratified_rows(np.repeat([0, 1], [10, 5]), seed=0)
  >>> np.bincount(np.repeat([0, 1], [10, 5])[test]).tolist()
  [2, 1]
  """
  if seed < 0:
    raise ValueError(f'seed must not be negative. Received: seed={seed}')
  generator = np.random.default_rng(seed)
  classes = y if y.ndim == 1 else np.zeros([len(y)], np.int64)
  in_test = np.zeros([len(y)], bool)
  for value in np.unique(classes):
    rows = np.flatnonzero(classes == value)
    in_test[generator.permutation(rows)[: round(len(rows) / 5)]] = True
  return np.flatnonzero(~in_test), np.flatnonzero(in_test)
