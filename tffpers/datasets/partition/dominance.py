"""Every class has a client that holds most of it."""

import numpy as np

from tffpers.datasets.partition import _checks
from tffpers.datasets.partition.shares import SharePlan


def practical(*, num_classes: int, num_clients: int, seed: int) -> SharePlan:
  """Of every class one client holds 80 %, one 10 %, and the others share 10 % equally.

  With the paper's twelve clients the others have 1 % each; two clients alone share 8 : 1.
  Clients take turns at both roles: none has one of them twice before all had it.

  Args:
    num_classes: At least 1.
    num_clients: At least 1.
    seed: Non-negative seed of the roles and of the rows.

  Returns:
    A plan; where classes have few rows, a client may be left without some of them.

  Raises:
    ValueError: If an argument is out of range.

  Source: Luo and Wu, arXiv 2110.08394 (experimental settings).

  >>> plan = practical(num_classes=10, num_clients=12, seed=0)
  >>> np.sort(plan.shares[:, 0])[-3:].round(12)
  array([0.01, 0.1 , 0.8 ])
  """
  num_classes = _checks.whole('num_classes', num_classes, 1)
  num_clients = _checks.whole('num_clients', num_clients, 1)
  rng = np.random.default_rng(_checks.whole('seed', seed, 0))
  shares = np.full([num_clients, num_classes], 0.1 / max(num_clients - 2, 1))
  for start in range(0, num_classes, num_clients):
    order = rng.permutation(num_clients)
    shift = rng.integers(1, max(num_clients, 2))  # The second is never the first.
    turn = np.arange(min(num_clients, num_classes - start))
    shares[order[turn], start + turn] = 0.8
    shares[order[(turn + shift) % num_clients], start + turn] = 0.1
  return SharePlan(shares / shares.sum(axis=0), seed)
