"""Every client has two classes that make up most of its data."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tffpers.datasets.partition import _checks, _dealing, _holders, _rounding


@dataclasses.dataclass(frozen=True, eq=False)
class MajorityPlan:
  """Clients of one size with two majority classes; what `majority_classes` returns.

  Attributes:
    num_classes: C.
    majorities: The two majority classes of each client, int64 [num_clients, 2].
    fraction: The share p of a client's rows that they hold together.
    seed: Seed of which rows go where.
  """

  num_classes: int
  majorities: np.ndarray
  fraction: float
  seed: int

  @property
  def num_clients(self) -> int:
    return len(self.majorities)

  def deal(self, labels: npt.ArrayLike, *, num_examples: int | None = None) -> list[np.ndarray]:
    """Each client's rows; no row twice, but rows that are left over go to nobody.

    Args:
      labels: Class ids in [0, num_classes), integers [n].
      num_examples: Rows of each client, at least 1; `None` for as many as the scarcest
        class allows.

    Returns:
      `num_clients` increasing, disjoint index arrays, int64 [num_examples].

    Raises:
      ValueError: If labels are no class ids or too few.
    """
    classes = _checks.class_labels(labels, self.num_classes)
    totals = np.bincount(classes, minlength=self.num_classes)
    if num_examples is None:
      num_examples = self._most(totals)
    counts = self._counts(_checks.whole('num_examples', num_examples, 1))
    if short := np.flatnonzero(counts.sum(axis=0) > totals).tolist():
      raise ValueError(
        f'{self.num_clients} clients with num_examples={num_examples} need '
        f'{counts.sum(axis=0)[short[0]]} rows of class {short[0]}. '
        f'Received: {totals[short[0]]} labels of class {short[0]}'
      )
    return _dealing.deal_counts(classes, counts, self.seed)

  def _counts(self, num_examples: int) -> np.ndarray:
    """Rows by client and class; what is rounded away at one client is owed at the next."""
    counts = np.zeros([self.num_clients, self.num_classes], np.int64)
    owed = np.zeros(self.num_classes)
    # The tolerance lets p · n be a half that floats miss.
    held = math.floor(self.fraction * num_examples + 0.5 + 1e-9)
    for row, majority in zip(counts, self.majorities, strict=True):
      others = np.setdiff1d(np.arange(self.num_classes), majority)
      for classes, total in ((majority, held), (others, num_examples - held)):
        shares = np.ones(len(classes)) / max(len(classes), 1)
        row[classes] = _rounding.apportion(shares, total, owed[classes])
        owed[classes] += shares * total - row[classes]
    return counts

  def _most(self, totals: np.ndarray) -> int:
    others = (1 - self.fraction) / max(self.num_classes - 2, 1)
    majority = np.bincount(self.majorities.ravel(), minlength=self.num_classes)
    weights = majority * self.fraction / 2 + (self.num_clients - majority) * others
    needed = weights > 1e-9
    most = int((totals[needed] / weights[needed]).min())
    while most > 1 and (self._counts(most).sum(axis=0) > totals).any():
      most -= 1
    return max(most, 1)


def majority_classes(
  *, num_classes: int, num_clients: int, fraction: float, seed: int
) -> MajorityPlan:
  """Two classes hold a fraction p of each client's rows, the others share the rest equally.

  p = 2/C gives all classes alike, p = 1 two classes only. Clients have one number of
  rows: the majority classes hold p · n of them to the nearest whole number (a half is
  rounded up), and are within one row of each other, as are all the others. Every class
  is a majority class at as many clients as any other, within one.

  Unlike other partitions this one is disjoint and not exhaustive: rows are left over.

  Args:
    num_classes: C, at least 2.
    num_clients: At least 1.
    fraction: p, in [2/C, 1].
    seed: Non-negative seed of the classes and of the rows.

  Returns:
    A plan; `deal` takes the number of rows of a client, 500 for training and 100 for
    testing in the paper.

  Raises:
    ValueError: If an argument is out of range.

  Source: Isaksson et al., arXiv 2206.07832 (label skew on CIFAR-10).

  >>> plan = majority_classes(num_classes=10, num_clients=20, fraction=0.6, seed=0)
  >>> y = np.arange(50_000) % 10
  >>> np.sort(np.bincount(y[plan.deal(y, num_examples=500)[0]]))
  array([ 25,  25,  25,  25,  25,  25,  25,  25, 150, 150])
  """
  num_classes = _checks.whole('num_classes', num_classes, 2)
  num_clients = _checks.whole('num_clients', num_clients, 1)
  seed = _checks.whole('seed', seed, 0)
  if not 2 / num_classes - 1e-9 <= fraction <= 1:
    raise ValueError(
      f'Majority classes hold from 2 / num_classes = {2 / num_classes:g}, their share of a '
      f'uniform mix, to 1. Received: fraction={fraction!r}'
    )
  majorities = np.stack(_holders.draw_holders(num_classes, num_clients, 2, seed))
  return MajorityPlan(num_classes, majorities, float(fraction), seed)
