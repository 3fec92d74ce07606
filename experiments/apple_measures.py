"""Numbers that APPLE's studies read off histories, relations and label counts; no TensorFlow."""

from collections.abc import Mapping

import numpy as np
import study_measures
from scipy import stats
from study_measures import History


def accuracy(history: History, prefix: str) -> np.ndarray:
  """Mean test accuracy over clients, every client counting alike, [evaluated rounds]."""
  return study_measures.column(history, f'{prefix}_accuracy_mean')


def bmcta(history: History, prefix: str) -> tuple[float, int]:
  """Best mean client test accuracy, and its round.

  The maximum over evaluated rounds of the mean over clients with test data, every client
  counting alike; the earliest of equal rounds. It is selected on test data, so optimistic.

  Args:
    history: Rows of a run.
    prefix: Of the columns of the model, such as `clients`.

  Source: Luo and Wu, arXiv 2110.08394.
  """
  column = f'{prefix}_accuracy_mean'
  row = study_measures.best_row(history, column)
  return row[column], row['round']


def at_validated(history: History, prefix: str, chosen_by: str) -> tuple[float, int] | None:
  """Mean client test accuracy at the round that is best on validation data, and that round.

  Args:
    history: Rows of a run.
    prefix: Of the test columns.
    chosen_by: Of the columns after `validation_`.

  Returns:
    None if there were no validation data.
  """
  column = f'validation_{chosen_by}_accuracy_mean'
  if column not in history[-1]:
    return None
  row = study_measures.best_row(history, column)
  return row[f'{prefix}_accuracy_mean'], row['round']


def ahead_from(history: History, own: np.ndarray, other: np.ndarray) -> int | None:
  """The round from which on a method's best accuracy so far is at least the other one's.

  Of the best so far, as that is what BMCTA compares and as accuracies of single rounds
  cross each other many times near the end.

  Args:
    history: Rows, for their rounds.
    own: Accuracies of the method, [evaluated rounds].
    other: Those of the other one in the same rounds.

  Returns:
    None if it is behind at the end.
  """
  behind = np.flatnonzero(np.fmax.accumulate(own) < np.fmax.accumulate(other))
  if not behind.size:
    return history[0]['round']
  return history[behind[-1] + 1]['round'] if behind[-1] + 1 < len(history) else None


def label_cosines(counts: Mapping[str, Mapping[int, int]]) -> np.ndarray:
  """Cosine of every two clients' label histograms, [N, N]; 0 for a client without examples."""
  rows = _table(counts)
  norms = np.linalg.norm(rows, axis=1, keepdims=True)
  directions = rows / np.where(norms > 0, norms, 1)
  return directions @ directions.T


def most_of(counts: Mapping[str, Mapping[int, int]]) -> list[list[int]]:
  """Classes of which a client holds more than half of all examples, by client."""
  rows = _table(counts)
  classes = np.array(list(next(iter(counts.values()))))
  return [classes[row > rows.sum(0) / 2].tolist() for row in rows]


def rank_correlations(relations: np.ndarray, cosines: np.ndarray) -> tuple[float, list[float]]:
  """Spearman's rank correlation of |p_ij| with label cosines, j ≠ i.

  Args:
    relations: [N, N], p_i in row i.
    cosines: [N, N].

  Returns:
    Over all pairs, and over j for each client i. NaN where one of both does not vary.
  """
  others = ~np.eye(len(relations), dtype=bool)
  strengths = np.abs(relations)
  by_client = [_spearman(strengths[i, row], cosines[i, row]) for i, row in enumerate(others)]
  return _spearman(strengths[others], cosines[others]), by_client


def own_is_largest(relations: np.ndarray) -> np.ndarray:
  """Whether |p_ii| is the largest |p_ij|, bool [N]."""
  strengths = np.abs(relations)
  return np.diag(strengths) >= strengths.max(1)


def _table(counts: Mapping[str, Mapping[int, int]]) -> np.ndarray:
  return np.array([list(row.values()) for row in counts.values()], np.float64)


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
  if np.ptp(first) == 0 or np.ptp(second) == 0:
    return float('nan')
  correlation, _ = stats.spearmanr(first, second)
  return float(correlation)
