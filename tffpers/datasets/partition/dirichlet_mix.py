"""Label skew of any strength."""

import numpy as np

from tffpers.datasets.partition import _checks
from tffpers.datasets.partition.shares import SharePlan


def dirichlet(
  *, num_classes: int, num_clients: int, alpha: float, seed: int, min_examples: int = 1
) -> SharePlan:
  """The clients' shares of a class are drawn from Dir(α, …, α), for each class anew.

  A large α gives every client the global mix and equal sizes, a small one gives a class
  to few clients; sizes differ then, too.

  Args:
    num_classes: At least 1.
    num_clients: At least 1.
    alpha: α, finite and at least 1e-6.
    seed: Non-negative seed of the shares and of the rows.
    min_examples: Rows that every client gets at least, in every split, at least 0.
      Clients with fewer are filled up by the largest ones; nothing is drawn again.

  Returns:
    A plan that refuses splits with fewer than num_clients · min_examples rows.

  Raises:
    ValueError: If an argument is out of range.

  Source: Yurochkin et al., arXiv 1905.12022 (experiments).
  """
  num_classes = _checks.whole('num_classes', num_classes, 1)
  num_clients = _checks.whole('num_clients', num_clients, 1)
  rng = np.random.default_rng(_checks.whole('seed', seed, 0))
  concentration = np.full(num_clients, _checks.concentration('alpha', alpha))
  shares = rng.dirichlet(concentration, size=num_classes).T
  return SharePlan(shares, seed, min_examples=min_examples)
