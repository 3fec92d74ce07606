"""Plans that give every client a share of every class."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tffpers.datasets.partition import _checks, _dealing, _rounding


@dataclasses.dataclass(frozen=True, eq=False)
class SharePlan:
  """Rows of a class, dealt by each client's share of it; every row once.

  A client's rows of a class are its quota rounded up or down. A client is left empty
  where its classes have too few rows, unless `min_examples` is given.

  Attributes:
    shares: Array [num_clients, num_classes], at least 0; the sum over clients is 1.
    seed: Non-negative seed of which rows go where.
    min_examples: Rows that every client gets at least, in every split. Where rounding
      leaves fewer, the largest client gives rows.
    rows_per_holder: Rows that every client with a share of a class gets first.

  Raises:
    ValueError: If an attribute is out of range.

  >>> plan = SharePlan(np.array([[0.75, 0.0], [0.25, 1.0]]), seed=0)
  >>> [len(part) for part in plan.deal(np.array([0, 0, 0, 0, 1, 1]))]
  [3, 3]
  """

  shares: np.ndarray
  seed: int
  min_examples: int = 0
  rows_per_holder: int = 0

  def __post_init__(self) -> None:
    object.__setattr__(self, 'shares', _checks.shares('shares', self.shares, axes=2))
    for name in ('seed', 'min_examples', 'rows_per_holder'):
      object.__setattr__(self, name, _checks.whole(name, getattr(self, name), 0))

  @property
  def num_clients(self) -> int:
    return len(self.shares)

  def deal(self, labels: npt.ArrayLike) -> list[np.ndarray]:
    """Each client's rows; together all of them.

    Args:
      labels: Class ids in [0, num_classes), integers [n]; a class may have no row.

    Returns:
      `num_clients` increasing index arrays, int64 [n_k].

    Raises:
      ValueError: If labels are no class ids, or too few for `min_examples` or
        `rows_per_holder`.
    """
    classes = _checks.class_labels(labels, self.shares.shape[1])
    totals = np.bincount(classes, minlength=self.shares.shape[1])
    self._check_enough(totals)
    counts = _rounding.round_shares(self.shares, totals, self.rows_per_holder)
    counts = _rounding.fill_up(counts, self.shares, self.min_examples)
    return _dealing.deal_counts(classes, counts, self.seed)

  def _check_enough(self, totals: np.ndarray) -> None:
    needed = self.num_clients * self.min_examples
    if totals.sum() < needed:
      raise ValueError(
        f'{self.num_clients} clients with min_examples={self.min_examples} need {needed} rows. '
        f'Received: {totals.sum()} labels'
      )
    holders = self.rows_per_holder * (self.shares > 0).sum(axis=0)
    if short := np.flatnonzero(totals < holders).tolist():
      raise ValueError(
        f'Class {short[0]} needs {holders[short[0]]} rows, {self.rows_per_holder} for each client '
        f'that holds it. Received: {totals[short[0]]} labels of class {short[0]}'
      )
