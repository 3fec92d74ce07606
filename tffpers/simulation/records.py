"""What a run remembers of its rounds and clients besides their states."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tffpers import metrics
from tffpers.simulation import evaluation
from tffpers.simulation import population as population_lib
from tffpers.simulation import rounds as rounds_lib
from tffpers.simulation import store as store_lib

# Sums over all rounds that a run keeps of what its clients sent and received.
TRAFFIC = ('models_up', 'models_down', 'bytes_up', 'bytes_down')

Records = dict[str, dict[str, Any]]


def after_round(
  before: store_lib.Progress,
  outcome: rounds_lib.Outcome,
  seconds: float,
  kept: tuple[str, ...] = (),
) -> store_lib.Progress:
  """The progress with one more round of training counted.

  Args:
    before: The progress before it.
    outcome: What the round gave.
    seconds: How long it took.
    kept: Names of training metrics that the clients' records keep for every round.
  """
  clients = outcome.client_metrics
  added: dict[str, float] = {
    'seconds': seconds,
    'skipped': len(outcome.skipped),
    'nonfinite': sum(numbers.get('nonfinite', 0) for numbers in clients.values()),
  }
  for name in TRAFFIC:
    sent = [numbers[name] for numbers in clients.values() if name in numbers]
    added |= {name: sum(sent)} if sent else {}
  records = dict(before.records)
  for key, numbers in clients.items():
    records[key] = _added(
      records.get(key, {}), rounds=1, nonfinite=int(numbers.get('nonfinite', 0))
    )
    if kept:
      shown = {name: value for name, value in numbers.items() if name.split('/')[0] in kept}
      row = {'round': before.round + 1, **shown}
      records[key]['history'] = [*records[key].get('history', []), row]
  for key in outcome.skipped:
    records[key] = _added(records.get(key, {}), skipped=1)
  return store_lib.Progress(
    before.round + 1, _added(before.totals, **added), before.history, records
  )


def _added(counts: Mapping[str, Any], **changes: float) -> dict[str, Any]:
  return {**counts, **{name: counts.get(name, 0) + value for name, value in changes.items()}}


def with_results(
  population: population_lib.Population,
  records: Mapping[str, dict[str, Any]],
  results: evaluation.Results,
  personalized: evaluation.Results,
) -> Records:
  """The clients' records with new results in the place of the old ones.

  A record also gets `majority_share`: what always guessing the commonest class of the
  client's test data would score, None where targets are not one integer per example.
  """
  new: Records = {}
  for key in sorted({*records, *results}):
    record = records.get(key, {})
    new[key] = record | {
      'evaluation': results.get(key, {}),
      'personalized': personalized.get(key, {}),
    }
    if key in results and 'majority_share' not in record:
      _, y = population.load('test', key)
      classes = y.ndim == 1 and np.issubdtype(y.dtype, np.integer)
      new[key]['majority_share'] = metrics.majority_share(y) if classes else None
  return new
