"""From counts to rows."""

import numpy as np

from tffpers.datasets import _split


def group(codes: np.ndarray, num_groups: int) -> list[np.ndarray]:
  """The rows of each code 0 … num_groups − 1, increasing, in one pass; int64 [n_k] each."""
  order = np.argsort(codes, kind='stable')
  ends = np.cumsum(np.bincount(codes, minlength=num_groups))
  return np.split(order, ends)[:num_groups]


def deal_counts(labels: np.ndarray, counts: np.ndarray, seed: int) -> list[np.ndarray]:
  """Random rows of every class for every client.

  Which rows of a class go where depends on the seed and on that class's labels and
  counts only. Rows beyond the counts go to nobody.

  Args:
    labels: Class ids, int64 [n].
    counts: Rows by client and class, int64 [num_clients, num_classes], at most as many
      of a class as there are.
    seed: Non-negative seed.

  Returns:
    Increasing, disjoint index arrays, one for each client.
  """
  num_clients, num_classes = counts.shape
  owner = np.full(len(labels), num_clients)
  for class_id, rows in enumerate(group(labels, num_classes)):
    order = _split.permutation(seed, f'rows of class {class_id}', len(rows))
    owners = np.repeat(np.arange(num_clients), counts[:, class_id])
    owner[rows[order[: len(owners)]]] = owners
  return group(owner, num_clients)
