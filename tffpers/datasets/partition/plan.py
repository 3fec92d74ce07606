"""What sets clients apart, decided before any row is seen.

A plan deals the rows of any split by the same rule. So a client's training,
validation and test sets are alike.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tffpers.datasets.federated_dataset import FederatedDataset


class Plan(Protocol):
  """What every partitioner returns; equal arguments and seed give equal plans."""

  @property
  def num_clients(self) -> int:
    """Number of clients, K."""

  def deal(self, labels: npt.ArrayLike) -> list[np.ndarray]:
    """The rows of each client: K increasing index arrays, int64 [n_k].

    Args:
      labels: The class id of each row of a split, integers [n].

    Raises:
      ValueError: If the labels do not fit the plan, or there are too few of them.
    """


def as_clients(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray]) -> FederatedDataset:
  """One client for each index array; their ids are `'0'`, `'1'`, …

  Args:
    x: Array [n, …].
    y: Array [n, …].
    parts: Index arrays into the n rows.

  Raises:
    ValueError: If x and y have not the same number of rows.
  """
  x, y = np.asarray(x), np.asarray(y)
  if not x.ndim or not y.ndim or len(x) != len(y):
    raise ValueError(
      'x and y must be arrays with one row for each example; clients of several inputs are made '
      'with plan.deal(y) and FederatedDataset.from_arrays. '
      f'Received: x of shape {x.shape} and y of shape {y.shape}'
    )
  return FederatedDataset.from_arrays({k: (x[rows], y[rows]) for k, rows in enumerate(parts)})


def federate(
  plan: Plan, x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> tuple[FederatedDataset, FederatedDataset]:
  """Both splits of a data set, dealt to the same clients by one plan.

  Args:
    plan: What a partitioner returned.
    x_train: Array [n, …].
    y_train: The class id of each row, integers [n].
    x_test: As `x_train`.
    y_test: As `y_train`.

  Returns:
    `(train, test)`, each with clients `'0'` … `'K − 1'`.

  Raises:
    ValueError: If the labels of a split do not fit the plan.

  >>> from tffpers.datasets import partition, read_digits
  >>> plan = partition.k_classes(num_classes=10, num_clients=5, classes_per_client=2, seed=0)
  >>> train, test = federate(plan, *read_digits())
  >>> [sorted(set(data.load("0")[1].tolist())) for data in (train, test)]
  [[0, 3], [0, 3]]
  """
  train, test = (as_clients(x, y, plan.deal(y)) for x, y in ((x_train, y_train), (x_test, y_test)))
  return train, test
