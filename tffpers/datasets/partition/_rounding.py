"""From shares to whole rows, so that none is lost or used twice."""

import numpy as np

# Above the error of shares · total, far below any remainder that matters.
_TOLERANCE = 1e-9


def apportion(shares: np.ndarray, total: int, carry: np.ndarray | None = None) -> np.ndarray:
  """Whole numbers that add up to `total`, each its quota shares · total rounded up or down.

  Args:
    shares: [k], at least 0, with sum 1.
    total: What is shared out, at least 0.
    carry: [k], what each is owed from before; of two, the one with the larger
      remainder + carry is rounded up, without `carry` by largest remainder. Ties go to
      the first.

  Returns:
    int64 [k].

  >>> apportion(np.array([0.5, 0.25, 0.25]), 7)
  array([3, 2, 2])
  """
  quotas = shares * total
  counts = np.floor(quotas + _TOLERANCE).astype(np.int64)
  remainders = quotas - counts
  owed = remainders if carry is None else remainders + carry
  first = np.argsort(-np.where(remainders > _TOLERANCE, owed, -np.inf), kind='stable')
  counts[first[: total - counts.sum()]] += 1
  return counts


def round_shares(shares: np.ndarray, totals: np.ndarray, rows_per_holder: int) -> np.ndarray:
  """Rows by client and class that add up to every class's total.

  What rounding takes from a client in one class it is owed in the next, so that its
  number of rows, too, stays near its quota.

  Args:
    shares: [num_clients, num_classes]; the sum over clients is 1.
    totals: Rows of each class, [num_classes].
    rows_per_holder: What every client with a share of a class gets first; the rest is
      shared out.

  Returns:
    int64 [num_clients, num_classes].
  """
  counts = np.zeros(shares.shape, np.int64)
  carry = np.zeros(len(shares))
  for class_id, total in enumerate(totals):
    column = shares[:, class_id]
    first = rows_per_holder * (column > 0)
    rest = int(total - first.sum())
    dealt = apportion(column, rest, carry)
    carry += column * rest - dealt
    counts[:, class_id] = first + dealt
  return counts


def fill_up(counts: np.ndarray, shares: np.ndarray, minimum: int) -> np.ndarray:
  """Counts with at least `minimum` rows for each client.

  A client that lacks rows takes them of the class that it has most share of, from the
  largest client that can spare some; so its train and test sets, filled up by one
  matrix, stay alike. Nobody gives what would leave it fewer than `minimum`, and rows to
  spare are left as long as a client lacks some.

  Args:
    counts: [num_clients, num_classes], at least num_clients · minimum rows together.
    shares: [num_clients, num_classes].
    minimum: Rows of a client.
  """
  counts = counts.copy()
  sizes = counts.sum(axis=1)
  for taker in np.flatnonzero(sizes < minimum):
    while sizes[taker] < minimum:
      spare = sizes - minimum
      given = counts[spare > 0].any(axis=0)
      class_id = np.argmax(np.where(given, shares[taker], -1))
      giver = np.argmax(np.where(counts[:, class_id] > 0, spare, -1))
      rows = min(minimum - sizes[taker], spare[giver], counts[giver, class_id])
      for client, change in ((giver, -rows), (taker, rows)):
        counts[client, class_id] += change
        sizes[client] += change
  return counts
