"""Every client holds a few of the classes."""

import numpy as np

from tffpers.datasets.partition import _checks, _holders
from tffpers.datasets.partition.shares import SharePlan


def k_classes(
  *, num_classes: int, num_clients: int, classes_per_client: int, seed: int
) -> SharePlan:
  """At most k classes at each client, every class shared equally by its holders.

  Every class has N·k/C holders, or within one of it where C does not divide N·k.
  Holders of a class are within one row of each other, so a client has fewer than k
  classes only where a class has fewer rows than holders.

  Args:
    num_classes: C, at least 1.
    num_clients: N, at least 1.
    classes_per_client: k, in [1, C], with N·k ≥ C.
    seed: Non-negative seed of the classes and of the rows.

  Returns:
    A plan whose `shares` are 0 but at the k classes of each client.

  Raises:
    ValueError: If an argument is out of range, or N·k < C would leave a class unheld.

  Source: Arivazhagan et al., arXiv 1912.00818.

  >>> plan = k_classes(num_classes=10, num_clients=10, classes_per_client=4, seed=0)
  >>> np.unique((plan.shares > 0).sum(axis=0)), np.unique((plan.shares > 0).sum(axis=1))
  (array([4]), array([4]))
  """
  holds = _draw(num_classes, num_clients, classes_per_client, seed)
  return SharePlan(holds / holds.sum(axis=0), seed)


def pathological(
  *, num_classes: int, num_clients: int, classes_per_client: int = 2, seed: int
) -> SharePlan:
  """Exactly two classes at each client, every class shared at random by its holders.

  The shares of a class are uniform over all that add up to 1, but for a tenth of the
  class that its holders share equally. Every holder gets one row first, so that no
  client loses a class to rounding.

  Args:
    num_classes: C, at least 1.
    num_clients: N, at least 1.
    classes_per_client: k, in [1, C], with N·k ≥ C; 2 in the paper.
    seed: Non-negative seed of the classes, the shares and the rows.

  Returns:
    A plan that refuses splits with fewer rows of a class than it has holders.

  Raises:
    ValueError: As `k_classes`.

  Source: Luo and Wu, arXiv 2110.08394 (experimental settings).
  """
  holds = _draw(num_classes, num_clients, classes_per_client, seed)
  # Not the stream that drew the holders.
  rng = np.random.default_rng([seed, num_classes, num_clients])
  draws = np.where(holds, rng.exponential(size=holds.shape), 0.0)
  shares = 0.9 * draws / draws.sum(axis=0) + 0.1 * holds / holds.sum(axis=0)
  return SharePlan(shares, seed, rows_per_holder=1)


def _draw(num_classes: int, num_clients: int, classes_per_client: int, seed: int) -> np.ndarray:
  """Whether a client holds a class, bool [num_clients, num_classes]."""
  _checks.whole('num_classes', num_classes, 1)
  _checks.whole('num_clients', num_clients, 1)
  _checks.whole('classes_per_client', classes_per_client, 1)
  _checks.whole('seed', seed, 0)
  if classes_per_client > num_classes:
    raise ValueError(
      f'There are {num_classes} classes only. Received: classes_per_client={classes_per_client}'
    )
  if num_clients * classes_per_client < num_classes:
    raise ValueError(
      'Infeasible: every class needs a client, so num_clients · classes_per_client must be at '
      f'least num_classes={num_classes}. '
      f'Received: num_clients={num_clients}, classes_per_client={classes_per_client}'
    )
  holds = np.zeros([num_clients, num_classes], bool)
  drawn = _holders.draw_holders(num_classes, num_clients, classes_per_client, seed)
  for client, classes in enumerate(drawn):
    holds[client, classes] = True
  return holds
