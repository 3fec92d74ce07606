"""Numbers that the studies read off histories and posteriors; numpy only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

History = Sequence[Mapping[str, Any]]
# S: the server's model on all test data; MT: each client's own on its own, by test size.
ACCURACY = {'S': 'server_accuracy', 'MT': 'clients_accuracy_weighted'}


def column(history: History, name: str) -> np.ndarray:
  """One column of a history, float64 [evaluated rounds], NaN where it is missing."""
  return np.array([row.get(name, np.nan) for row in history], np.float64)


def best_row(history: History, name: str) -> Mapping[str, Any]:
  """The row in which a column is largest, the earliest of equal ones; NaN is smallest."""
  values = column(history, name)
  return history[int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]


def first_round(history: History, name: str, level: float) -> int | None:
  """The first evaluated round in which a column is at least `level`; None if in none."""
  reached = np.flatnonzero(column(history, name) >= level)
  return history[int(reached[0])]['round'] if reached.size else None


def lag(history: History, num_levels: int = 10) -> float:
  """Rounds from S first reaching an accuracy to MT first reaching the same one.

  The mean over levels with equal distances, from the higher of both first accuracies to
  the lower of both largest ones; below 0 where MT is ahead.

  Args:
    history: Rows of a run that was evaluated after every round.
    num_levels: Number of levels.

  Returns:
    Rounds; NaN if one of them stays below where the other starts.
  """
  s, mt = (column(history, name) for name in ACCURACY.values())
  low, high = max(s[0], mt[0]), min(np.max(s), np.max(mt))
  if not low < high:
    return float('nan')
  differences = []
  for level in np.linspace(low, high, num_levels):
    by_s, by_mt = (first_round(history, name, level) for name in ACCURACY.values())
    if by_s is not None and by_mt is not None:
      differences.append(by_mt - by_s)
  return float(np.mean(differences))


def roughness(values: npt.ArrayLike) -> float:
  """Standard deviation of the change from round to round over the last half; NaN below 3."""
  array = np.asarray(values, np.float64)
  changes = np.diff(array[len(array) // 2 :])
  return float(changes.std(ddof=1)) if changes.size > 1 else float('nan')


def bytes_until(history: History, level: float, bytes_per_round: float) -> float | None:
  """Bytes that all clients sent until S first reached `level`; None if it never did."""
  reached = first_round(history, ACCURACY['S'], level)
  return None if reached is None else reached * bytes_per_round


def lowest_final(histories: Iterable[History]) -> float:
  """The lowest of the methods' last S accuracies."""
  return min(column(history, ACCURACY['S'])[-1] for history in histories)


def distribution(values: npt.ArrayLike, num_points: int = 400) -> tuple[np.ndarray, np.ndarray]:
  """Points `(value, share of values up to it)` of the distribution function, NaN left out."""
  array = np.asarray(values, np.float64)
  shares = np.linspace(0, 1, min(num_points, max(2, array.size)))
  array = array[np.isfinite(array)]
  return (np.quantile(array, shares), shares) if array.size else (array, array)
