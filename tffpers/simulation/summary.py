"""`summary.json`: a run in a few numbers under fixed keys."""

import math
from collections.abc import Mapping
from typing import Any

from tffpers import metrics
from tffpers import process as process_lib
from tffpers.simulation import history as history_lib
from tffpers.simulation import records as records_lib
from tffpers.simulation import store as store_lib

_STATISTICS = ('mean', 'weighted', 'std', 'p5', 'p10', 'p50', 'p90')


def summarize(
  config: Mapping[str, Any],
  progress: store_lib.Progress,
  process: process_lib.PersonalizedProcess,
) -> dict[str, Any]:
  """The summary after the rounds so far; what does not apply is None.

  Args:
    config: The run's settings.
    progress: How far it is.
    process: The algorithm.

  Returns:
    Numbers of the *last* evaluated round. `best_round` is the best one by the
    data named in `selected_on`, see `history.best`.
  """
  row = dict(progress.history[-1]) if progress.history else {}
  accuracy, totals = metrics.history_accuracy(row), progress.totals
  points = _points(row, accuracy, process)
  personalized = {
    key: record['personalized']
    for key, record in sorted(progress.records.items())
    if record.get('personalized')
  }
  if personalized:
    # With a personalising phase of its own, that is what "after" means.
    points = {
      'before': points.get('before', _clients(row, accuracy)),
      'after': _clients(history_lib.evaluated(personalized, process), accuracy),
    }
  best_round, selected_on = history_lib.best(progress.history)
  return {
    'method': config['method'],
    'dataset': config['dataset'],
    'rounds': progress.round,
    'seed': config['seed'],
    'num_clients': config['num_clients'],
    'server': {'accuracy': _value(row, f'server_{accuracy}'), 'loss': _value(row, 'server_loss')},
    'clients': _clients(row, accuracy),
    'evaluation_point': process.evaluation_point,
    'clients_before': points.get('before'),
    'clients_after': points.get('after'),
    'best_round': best_round,
    'selected_on': selected_on,
    'sigma_quantiles': _sigma_quantiles(row),
    **{
      f'{name}_per_round': _per_round(totals, name, progress.round)
      for name in (*records_lib.TRAFFIC, 'seconds')
    },
    'personalize_traffic': _personalize_traffic(personalized),
  }


def _personalize_traffic(
  personalized: Mapping[str, Mapping[str, int | float]],
) -> dict[str, int | float] | None:
  """Sums over the clients that personalised; None where there are none or they do not tell."""
  names = {name: f'personalize/{name}' for name in records_lib.TRAFFIC}
  told = list(personalized.values())
  if not told or not set(names.values()) <= set(told[0]):
    return None
  return {name: sum(numbers[path] for numbers in told) for name, path in names.items()}


def _points(
  row: Mapping[str, Any], accuracy: str | None, process: process_lib.PersonalizedProcess
) -> dict[str, dict[str, Any]]:
  """Clients before and after local training, as far as both were measured.

  Before it a client has the server's model, where the server has a whole one.
  """
  points = {process.evaluation_point: _clients(row, accuracy)}
  for point, prefix in (('before', 'server'), ('after', 'after')):
    if f'{prefix}_loss_mean' in row:
      points.setdefault(point, _clients(row, accuracy, prefix))
  return points


def _clients(
  row: Mapping[str, Any], accuracy: str | None, prefix: str = 'clients'
) -> dict[str, Any]:
  return {
    **{f'accuracy_{name}': _value(row, f'{prefix}_{accuracy}_{name}') for name in _STATISTICS},
    'worst10_mean': _value(row, f'{prefix}_{accuracy}_worst10_mean'),
    'loss_mean': _value(row, f'{prefix}_loss_mean'),
    'nll': _value(row, f'{prefix}_nll_weighted'),
    'ece': _value(row, f'{prefix}_ece_weighted'),
  }


def _value(row: Mapping[str, Any], column: str) -> float | None:
  value = row.get(column)
  return None if value is None or not math.isfinite(value) else value


def _sigma_quantiles(row: Mapping[str, Any]) -> dict[str, float | None] | None:
  names = [column for column in row if column.startswith('report_sigma')]
  return {name[len('report_') :]: _value(row, name) for name in names} or None


def _per_round(totals: Mapping[str, float], name: str, rounds: int) -> float | None:
  return totals[name] / rounds if name in totals and rounds else None
