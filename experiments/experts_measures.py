"""Numbers that the studies of adaptive expert models read off runs; no TensorFlow."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]

NOBODY = -1


def picks(
  history: Mapping[str, Rows], client_ids: Sequence[str], num_models: int, rounds: int
) -> np.ndarray:
  """Which model every client picked in every round, int [clients, rounds].

  Args:
    history: `Result.client_history` with `picked`, one-hot.
    client_ids: Rows of the result.
    num_models: J.
    rounds: R; a round in which a client took no part or picked none is `NOBODY`.
  """
  found = np.full([len(client_ids), rounds], NOBODY)
  for i, key in enumerate(client_ids):
    for row in history.get(key, ()):
      one_hot = [row[f'picked/{j}'] for j in range(num_models)]
      if any(one_hot):
        found[i, row['round'] - 1] = int(np.argmax(one_hot))
  return found


def best_models(clients: Mapping[str, Mapping[str, Any]], num_models: int) -> dict[str, int]:
  """Each client's cluster model at the end, the one with the lowest loss.

  Args:
    clients: `Result.clients` of IFCA.
    num_models: J.
  """
  names = [f'client_best_{j}' for j in range(num_models)]
  return {key: int(np.argmax([row[name] for name in names])) for key, row in clients.items()}


def own_group_model(best: Mapping[str, int], groups: Mapping[str, int], num_groups: int) -> float:
  """Share of the clients that are on their group's model, 1 if groups and models agree.

  Groups are given models one to one, so that most clients are on their own group's: groups
  of one size that share a model have a share of 1 / num_groups.

  Args:
    best: Model of every client.
    groups: Group of every client.
    num_groups: Groups are 0 … num_groups − 1.
  """
  num_models = max(num_groups, 1 + max(best.values()))
  counts = np.zeros([num_groups, num_models], int)
  for key, model in best.items():
    counts[groups[key], model] += 1
  each = np.arange(num_groups)
  ways = itertools.permutations(range(num_models), num_groups)
  return max(float(counts[each, way].sum()) for way in ways) / len(best)


def ends_and_middle(values: Sequence[float]) -> list[float]:
  """The lowest, the middle and the highest of some values, each once."""
  found = sorted(set(values))
  return [found[i] for i in sorted({0, len(found) // 2, len(found) - 1})] if found else []
