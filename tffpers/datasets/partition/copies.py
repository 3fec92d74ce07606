"""Groups of clients that each hold the whole data set."""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tffpers.datasets.partition import _checks, plan, sizes

_Value = TypeVar('_Value')


@dataclasses.dataclass(frozen=True, eq=False)
class GroupPlan:
  """Several plans side by side; each deals all rows to the clients of its own group.

  Parts are disjoint and exhaustive within a group, so every row is used once by each.

  Attributes:
    plans: The plans of the groups; their clients are numbered one after the other.
  """

  plans: tuple[plan.Plan, ...]

  @property
  def num_clients(self) -> int:
    return sum(group.num_clients for group in self.plans)

  def deal(self, labels: npt.ArrayLike) -> list[np.ndarray]:
    """Each client's rows, as its group's plan deals them.

    Args:
      labels: As the plans need them.

    Returns:
      `num_clients` increasing index arrays, int64 [n_k].

    Raises:
      ValueError: As the plans.
    """
    return [part for group in self.plans for part in group.deal(labels)]

  def by_client(self, values: Sequence[_Value]) -> dict[str, _Value]:
    """The value of each client's group, by client id as `federate` gives them.

    Args:
      values: One for each group.

    Raises:
      ValueError: If there are not as many values as groups.
    """
    if len(values) != len(self.plans):
      raise ValueError(f'There are {len(self.plans)} groups. Received: {len(values)} values')
    pairs = zip(values, self.plans, strict=True)
    spread = [value for value, group in pairs for _ in range(group.num_clients)]
    return {str(k): value for k, value in enumerate(spread)}


def groups(*, num_clients: int, num_groups: int, seed: int) -> GroupPlan:
  """Groups of clients, each of which has the whole data set in random parts of its own.

  Args:
    num_clients: All clients together, at least `num_groups`; group sizes are within one.
    num_groups: At least 1.
    seed: Non-negative seed of the parts.

  Returns:
    A plan; with `rotate` it gives the setting of the paper: half of 200 clients see the
    set upright, half upside down.

  Raises:
    ValueError: If an argument is out of range.

  Source: Isaksson et al., arXiv 2206.07832 (rotated CIFAR-10).

  >>> plan = groups(num_clients=4, num_groups=2, seed=0)
  >>> plan.by_client([0, 180])
  {'0': 0, '1': 0, '2': 180, '3': 180}
  """
  num_groups = _checks.whole('num_groups', num_groups, 1)
  num_clients = _checks.whole('num_clients', num_clients, num_groups)
  seeds = np.random.SeedSequence(_checks.whole('seed', seed, 0)).generate_state(num_groups)
  parts = np.array_split(np.arange(num_clients), num_groups)
  pairs = zip(parts, seeds.tolist(), strict=True)
  return GroupPlan(tuple(sizes.equal_sizes(num_clients=len(p), seed=s) for p, s in pairs))
