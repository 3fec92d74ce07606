"""Pieces of data sorted by label."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tffpers.datasets import _split
from tffpers.datasets.partition import _checks


@dataclasses.dataclass(frozen=True, eq=False)
class ShardPlan:
  """Rows sorted by label and cut into equal shards; what `shards` returns.

  Attributes:
    positions: Which shards, in order of labels, each client gets, int64
      [num_clients, shards_per_client].
    seed: Seed of the order of rows within a class.
  """

  positions: np.ndarray
  seed: int

  @property
  def num_clients(self) -> int:
    return len(self.positions)

  def deal(self, labels: npt.ArrayLike) -> list[np.ndarray]:
    """Each client's rows; together all of them.

    Args:
      labels: Class ids, integers [n], n at least the number of shards.

    Returns:
      `num_clients` increasing index arrays, int64 [n_k].

    Raises:
      ValueError: If labels are no class ids or fewer than there are shards.
    """
    classes = _checks.class_labels(labels)
    n, num_shards = len(classes), self.positions.size
    if n < num_shards:
      raise ValueError(f'Each of {num_shards} shards needs a row. Received: {n} labels')
    order = _split.permutation(self.seed, 'rows of shards', n)
    order = order[np.argsort(classes[order], kind='stable')]
    # Positions are shares of the whole, so shards of train and test cover the same labels.
    pieces = np.split(order, np.arange(1, num_shards) * n // num_shards)
    return [np.sort(np.concatenate([pieces[k] for k in row])) for row in self.positions]


def shards(*, num_clients: int, shards_per_client: int = 2, seed: int) -> ShardPlan:
  """Data sorted by label and cut into equal shards, of which each client gets two at random.

  Shards are within one row of each other. A client gets the same shards of every split;
  they hold the same classes if the splits have the same mix of them.

  Args:
    num_clients: At least 1.
    shards_per_client: At least 1; 2 in the paper.
    seed: Non-negative seed of who gets which, and of the order of rows within a class.

  Returns:
    A plan that refuses splits with fewer rows than shards.

  Raises:
    ValueError: If an argument is out of range.

  Source: McMahan et al., arXiv 1602.05629, section 3.

  >>> plan = shards(num_clients=3, seed=0)
  >>> [len(part) for part in plan.deal(np.repeat([0, 1, 2], 10))]
  [10, 10, 10]
  """
  num_clients = _checks.whole('num_clients', num_clients, 1)
  shards_per_client = _checks.whole('shards_per_client', shards_per_client, 1)
  rng = np.random.default_rng(_checks.whole('seed', seed, 0))
  positions = rng.permutation(num_clients * shards_per_client)
  return ShardPlan(positions.reshape(num_clients, shards_per_client), int(seed))
