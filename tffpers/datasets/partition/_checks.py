"""Checks of what partitioners are given."""

from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST_CONCENTRATION = 1e-6


def whole(name: str, value: Any, at_least: int) -> int:
  """The value as `int`; raises `ValueError` unless it is an integer ≥ `at_least`."""
  is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
  if not is_whole or value < at_least:
    raise ValueError(f'{name} must be an integer ≥ {at_least}. Received: {name}={value!r}')
  return int(value)


def positive(name: str, value: Any) -> float:
  """The value as `float`; raises `ValueError` unless it is finite and > 0."""
  if not (np.isfinite(value) and value > 0):
    raise ValueError(f'{name} must be finite and above 0. Received: {name}={value!r}')
  return float(value)


def concentration(name: str, value: Any) -> float:
  """The value as `float`; raises `ValueError` unless a Dirichlet can be drawn with it."""
  if positive(name, value) < _LEAST_CONCENTRATION:
    raise ValueError(
      f'{name} must be at least {_LEAST_CONCENTRATION:g}: below, numpy may never finish a draw. '
      f'Received: {name}={value!r}'
    )
  return float(value)


def shares(name: str, values: npt.ArrayLike, axes: int) -> np.ndarray:
  """A read-only float64 copy; raises `ValueError` unless the first axis adds up to 1."""
  array = np.array(values, np.float64)
  if array.ndim != axes or not array.size:
    raise ValueError(f'{name} must have {axes} axes. Received: {name} of shape {array.shape}')
  if not (array >= 0).all() or not np.allclose(array.sum(axis=0), 1, rtol=0, atol=1e-9):
    raise ValueError(
      f'{name} must be at least 0 and add up to 1 over clients. Received: {name}={array}'
    )
  array.flags.writeable = False
  return array


def class_labels(labels: npt.ArrayLike, num_classes: int | None = None) -> np.ndarray:
  """One class id for each row, int64 [n].

  Raises:
    ValueError: If rows have several labels, or a label is no integer or not in
      [0, num_classes).
  """
  array = np.asarray(labels)
  if array.ndim != 1:
    raise ValueError(
      'Partitions by label need one class for each row, labels [n]; multi-label and one-hot '
      f'data have none. Received: labels of shape {array.shape}'
    )
  if array.dtype.kind not in 'iu':
    raise ValueError(f'Labels must be integers. Received: labels of dtype {array.dtype}')
  if (
    num_classes is not None and array.size and not (array.min() >= 0 and array.max() < num_classes)
  ):
    raise ValueError(
      f'Labels must be in [0, {num_classes}), as the outputs of a network are; '
      '`np.unique(labels, return_inverse=True)` numbers others. '
      f'Received: labels in [{array.min()}, {array.max()}]'
    )
  return array.astype(np.int64)
