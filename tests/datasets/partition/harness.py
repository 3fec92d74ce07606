"""Every partitioner by name, so that one set of tests holds for all of them."""

import dataclasses
from collections.abc import Callable

import numpy as np

from tffpers.datasets import partition
from tffpers.datasets.partition import Plan


@dataclasses.dataclass(frozen=True)
class Case:
  """How to make a plan, and what it promises.

  Attributes:
    make: From num_classes ≥ 2, num_clients ≥ 1 and seed.
    by_label: Whether labels decide, so that they must be class ids.
    any_size: Whether a split may have fewer rows than clients.
    uses: How often a row is used: exactly so often, or at most if not `exhaustive`.
  """

  make: Callable[[int, int, int], Plan]
  by_label: bool = True
  any_size: bool = False
  uses: int = 1
  exhaustive: bool = True


def feasible(num_classes: int, num_clients: int, wanted: int) -> int:
  """Classes per client, as wanted if that leaves no class unheld."""
  return min(num_classes, max(wanted, -(-num_classes // max(num_clients, 1))))


def _own_shares(num_classes: int, num_clients: int, seed: int) -> Plan:
  shares = np.random.default_rng(seed).integers(0, 3, [num_clients, num_classes]) + 1e-3
  return partition.SharePlan(shares / shares.sum(axis=0), seed)


def _groups(num_classes: int, num_clients: int, seed: int) -> Plan:
  return partition.groups(num_clients=2 * num_clients, num_groups=2, seed=seed)


CASES = {
  'equal_sizes': Case(
    lambda c, k, seed: partition.equal_sizes(num_clients=k, seed=seed), by_label=False
  ),
  'dirichlet_sizes': Case(
    lambda c, k, seed: partition.dirichlet_sizes(num_clients=k, alpha=0.5, seed=seed),
    by_label=False,
  ),
  'power_law_sizes': Case(
    lambda c, k, seed: partition.power_law_sizes(num_clients=k, exponent=1.2, seed=seed),
    by_label=False,
  ),
  'k_classes': Case(
    lambda c, k, seed: partition.k_classes(
      num_classes=c, num_clients=k, classes_per_client=feasible(c, k, 3), seed=seed
    ),
    any_size=True,
  ),
  'pathological': Case(
    lambda c, k, seed: partition.pathological(
      num_classes=c, num_clients=k, classes_per_client=feasible(c, k, 2), seed=seed
    )
  ),
  'practical': Case(
    lambda c, k, seed: partition.practical(num_classes=c, num_clients=k, seed=seed), any_size=True
  ),
  'majority_classes': Case(
    lambda c, k, seed: partition.majority_classes(
      num_classes=c, num_clients=k, fraction=max(2 / c, 0.7), seed=seed
    ),
    exhaustive=False,
  ),
  'dirichlet': Case(
    lambda c, k, seed: partition.dirichlet(num_classes=c, num_clients=k, alpha=0.3, seed=seed)
  ),
  'shards': Case(lambda c, k, seed: partition.shards(num_clients=k, seed=seed)),
  'groups': Case(_groups, by_label=False, uses=2),
  'own_shares': Case(_own_shares, any_size=True),
}


def labels_of(counts, seed: int = 0) -> np.ndarray:
  """counts[c] labels of class c, in random order."""
  labels = np.repeat(np.arange(len(counts)), counts)
  return np.random.default_rng(seed).permutation(labels)


def table(labels: np.ndarray, parts, num_classes: int) -> np.ndarray:
  """Rows by client and class."""
  return np.stack([np.bincount(labels[rows], minlength=num_classes) for rows in parts])
