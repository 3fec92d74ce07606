"""Figure 4 and Table III: |μ|/σ of client posteriors, and pruned updates."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import study_measures as measures
import study_reports
import study_tuning
from study_setting import Setting

from tffpers import simulation

STARTS: dict[str, dict[str, Any]] = {
  'server': {'client_start': 'server', 'fed_avg_init': False},
  'own': {'client_start': 'own', 'fed_avg_init': False},
  'fed_avg_init': {'client_start': 'server', 'fed_avg_init': True},
}
PERCENTILES = (0, 50, 75, 90, 95)
_QUANTILES = (5, 25, 50, 75, 95)


def snr(setting: Setting, *, starts: Sequence[str] = tuple(STARTS)) -> None:
  """Figure 4: distribution of |μ|/σ over the weights of all clients that took part."""
  rows, lines = [], {}
  for start in starts:
    build = functools.partial(setting.methods['virtual'], **STARTS[start])
    result = setting.run('snr', start, build())
    values = client_ratios(result)
    lines[start] = measures.distribution(values)
    quantiles = zip(_QUANTILES, np.percentile(values, _QUANTILES), strict=True)
    rows.append(
      {
        'start': start,
        'clients': len(result.trained_clients),
        **{f'snr_p{q}': float(value) for q, value in quantiles},
        'share_below_1': float(np.mean(values < 1)),
        **study_tuning.accuracies(result),
      }
    )
  note = (
    'Figure 4: |μ|/σ over all shared weights of the posteriors of all clients that took part, as '
    'they stood after their last training, by start of training.'
  )
  caption = setting.caption(note)
  study_reports.write_table(setting.folder, 'snr', rows, caption)
  panels = {'share of weights': lines}
  study_reports.draw(setting.folder, 'snr', panels, caption, xlabel='|μ|/σ', xscale='log')


def client_ratios(result: simulation.Result) -> np.ndarray:
  """|μ|/σ of the own posteriors of all clients that took part, one number per weight."""
  states = map(result.client_state, result.trained_clients)
  ratios = [
    np.ravel(np.abs(loc) / np.exp(log_scale))
    for state in states
    for loc, log_scale in zip(state.loc, state.log_scale, strict=True)
  ]
  return np.concatenate(ratios)


def pruning(
  setting: Setting,
  *,
  percentiles: Sequence[float] = PERCENTILES,
  starts: Sequence[str] = tuple(STARTS),
) -> None:
  """Table III: accuracy and bytes by percentile and start, beside FedProx's."""
  results = {('fed_prox', None): setting.run('pruning', 'fed_prox', setting.methods['fed_prox']())}
  for start in starts:
    for percentile in percentiles:
      build = functools.partial(
        setting.methods['virtual'], **STARTS[start], prune_percentile=float(percentile)
      )
      results[start, percentile] = setting.run('pruning', f'{start}_p{percentile:g}', build())
  level = measures.lowest_final(result.history for result in results.values())
  rows = pruning_rows(results, setting.clients_per_round, level)
  note = (
    'Table III: VIRTUAL with changes below a percentile of |Δγ|/√λ not sent, by start of training. '
    'Bytes: mean payload of a client in a round; until equal: bytes of all clients until S first '
    f'reached {level:.4f}, the lowest of the last S here (to {setting.evaluate_every} rounds).'
  )
  caption = setting.caption(note)
  study_reports.write_table(setting.folder, 'pruning', rows, caption)
  panels = {
    f'test accuracy, {model} (last)': {
      start: _line([row for row in rows if row['start'] == start], f'{model}_last')
      for start in ('fed_prox', *starts)
    }
    for model in measures.ACCURACY
  }
  study_reports.draw(
    setting.folder, 'pruning', panels, caption, xlabel='bytes per client and round', xscale='log'
  )


def pruning_rows(
  results: Mapping[tuple[str, float | None], simulation.Result],
  clients_per_round: int,
  level: float,
) -> list[dict[str, Any]]:
  """One row per run; the first run is the one whose bytes the others are compared with."""
  per_round = {key: result.summary['bytes_up_per_round'] for key, result in results.items()}
  until = {
    key: measures.bytes_until(result.history, level, per_round[key])
    for key, result in results.items()
  }
  first = next(iter(results))
  return [
    {
      'start': key[0],
      'percentile': key[1],
      **study_tuning.accuracies(result),
      'bytes': per_round[key] / clients_per_round,
      'bytes/fed_prox': per_round[key] / per_round[first],
      'rounds_until_equal': measures.first_round(result.history, measures.ACCURACY['S'], level),
      'bytes_until_equal': until[key],
      'until_equal/fed_prox': _ratio(until[key], until[first]),
    }
    for key, result in results.items()
  ]


def _ratio(a: float | None, b: float | None) -> float | None:
  return None if a is None or not b else a / b


def _line(rows: list[dict[str, Any]], column: str) -> tuple[list[float], list[float]]:
  return [row['bytes'] for row in rows], [row[column] for row in rows]
