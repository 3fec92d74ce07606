"""Numbers that the studies of adaptive expert models read off runs; no TensorFlow."""

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

  A group's model is the one that most of its clients are on. Groups that share a model
  have not been split: then only the largest group counts as being on its own.

  Args:
    best: Model of every client.
    groups: Group of every client.
    num_groups: Groups are 0 … num_groups − 1.
  """
  counts = np.zeros([num_groups, 1 + max(best.values())], int)
  for key, model in best.items():
    counts[groups[key], model] += 1
  # Each model goes to the group with which it has most clients in common.
  owner = np.zeros_like(counts)
  owner[counts.argmax(0), np.arange(counts.shape[1])] = 1
  chosen = (counts * owner).max(1)
  return float(chosen.sum() / counts.sum())
