"""Plans that set clients apart by their number of rows alone."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tffpers.datasets.partition import _checks, _rounding


@dataclasses.dataclass(frozen=True, eq=False)
class SizePlan:
  """Rows dealt at random, whatever their labels, by each client's share; every row once.

  Attributes:
    shares: Array [num_clients], at least 0, with sum 1.
    seed: Non-negative seed of which rows go where.
    min_examples: Rows that every client gets first; the rest is shared out.

  Raises:
    ValueError: If an attribute is out of range.

  >>> plan = SizePlan(np.array([0.75, 0.25]), seed=0)
  >>> [len(part) for part in plan.deal(np.zeros([8]))]
  [6, 2]
  """

  shares: np.ndarray
  seed: int
  min_examples: int = 0

  def __post_init__(self) -> None:
    object.__setattr__(self, 'shares', _checks.shares('shares', self.shares, axes=1))
    for name in ('seed', 'min_examples'):
      object.__setattr__(self, name, _checks.whole(name, getattr(self, name), 0))

  @property
  def num_clients(self) -> int:
    return len(self.shares)

  def deal(self, labels: npt.ArrayLike) -> list[np.ndarray]:
    """Each client's rows; together all of them.

    Args:
      labels: Array [n, …]; only n matters here.

    Returns:
      `num_clients` increasing index arrays, int64 [n_k].

    Raises:
      ValueError: If there are fewer than num_clients · min_examples rows.
    """
    n = len(np.asarray(labels))
    rest = n - self.num_clients * self.min_examples
    if rest < 0:
      raise ValueError(
        f'{self.num_clients} clients with min_examples={self.min_examples} need '
        f'{self.num_clients * self.min_examples} rows. Received: {n} labels'
      )
    sizes = self.min_examples + _rounding.apportion(self.shares, rest)
    order = np.random.default_rng(self.seed).permutation(n)
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def equal_sizes(*, num_clients: int, seed: int) -> SizePlan:
  """Random parts, alike but for chance: the plan by which `iid` deals.

  Args:
    num_clients: At least 1.
    seed: Non-negative seed of which rows go where.

  Returns:
    A plan whose clients are within one row of each other; it refuses splits with fewer
    rows than clients.

  Raises:
    ValueError: If an argument is out of range.
  """
  num_clients = _checks.whole('num_clients', num_clients, 1)
  return SizePlan(np.full(num_clients, 1 / num_clients), seed, min_examples=1)


def iid(labels: np.ndarray, num_clients: int, *, seed: int) -> list[np.ndarray]:
  """Random parts, alike but for chance.

  Args:
    labels: Array [n, …]; only n matters here.
    num_clients: Number of parts, in [1, n].
    seed: Non-negative seed of the draw.

  Returns:
    `num_clients` increasing index arrays, int64 [n_k], disjoint and together all of
    0 … n − 1; their sizes differ by one at most.

  Raises:
    ValueError: If `num_clients` or `seed` is out of range.

  >>> parts = iid(np.zeros([7]), 3, seed=0)
  >>> sorted(np.concatenate(parts).tolist()), [len(part) for part in parts]
  ([0, 1, 2, 3, 4, 5, 6], [3, 2, 2])
  """
  if not 1 <= num_clients <= len(labels):
    raise ValueError(
      f'Every client needs a row: num_clients must be in [1, {len(labels)}]. '
      f'Received: num_clients={num_clients}'
    )
  return equal_sizes(num_clients=num_clients, seed=seed).deal(labels)


def dirichlet_sizes(
  *, num_clients: int, alpha: float, seed: int, min_examples: int = 1
) -> SizePlan:
  """Quantity skew: the clients' shares of all rows are one draw from Dir(α, …, α).

  Args:
    num_clients: At least 1.
    alpha: α, finite and above 0; large values give equal sizes.
    seed: Non-negative seed of the shares and of the rows.
    min_examples: Rows that every client gets first, in every split, at least 0.

  Returns:
    A plan that refuses splits with fewer than num_clients · min_examples rows.

  Raises:
    ValueError: If an argument is out of range.

  Source: Li et al., arXiv 2102.02079 (quantity skew).
  """
  concentration = np.full(_checks.whole('num_clients', num_clients, 1), 1.0)
  concentration *= _checks.concentration('alpha', alpha)
  rng = np.random.default_rng(_checks.whole('seed', seed, 0))
  return SizePlan(rng.dirichlet(concentration), seed, min_examples)


def power_law_sizes(
  *, num_clients: int, exponent: float, seed: int, min_examples: int = 1
) -> SizePlan:
  """Quantity skew: the r-th largest client's share of all rows is proportional to r^−exponent.

  Args:
    num_clients: At least 1.
    exponent: Finite and above 0; 1 is Zipf's law.
    seed: Non-negative seed of which client is how large, and of the rows.
    min_examples: Rows that every client gets first, in every split, at least 0.

  Returns:
    A plan that refuses splits with fewer than num_clients · min_examples rows.

  Raises:
    ValueError: If an argument is out of range.
  """
  num_clients = _checks.whole('num_clients', num_clients, 1)
  rng = np.random.default_rng(_checks.whole('seed', seed, 0))
  ranks = 1.0 + rng.permutation(num_clients)
  weights = ranks ** -_checks.positive('exponent', exponent)
  return SizePlan(weights / weights.sum(), seed, min_examples)
