"""Rows of the history and of the client table, from what the clients measured."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tffpers import metrics
from tffpers import process as process_lib
from tffpers.simulation import codec

Row = dict[str, Any]
Results = Mapping[str, Mapping[str, int | float]]

_COUNTS = ('num_examples', 'num_targets')
_PREFIXES = {'client': 'clients'}


def evaluated(results: Results, process: process_lib.PersonalizedProcess) -> Row:
  """Columns of one evaluation of all clients.

  Args:
    results: From `evaluation.evaluate`.
    process: For the names, so that the columns are there without any client too.

  Returns:
    `num_evaluated`; `server_<metric>` on the pooled data; `clients_<metric>_<statistic>`
    with the statistics of `metrics.summarize`, and `after_<metric>_<statistic>` where a
    process measures clients `before` local training and after it too;
    `server_<metric>_<statistic>`, the server's model over clients;
    `clients_<accuracy>_share_worse`, the share of clients for whom the server's model is
    better than their own.
  """
  columns: Row = {'num_evaluated': len(results)}
  values, names = {}, [x.path for x in codec.leaves(process.evaluate.type_signature.result)]
  for path in names:
    model, _, metric = path.partition('/')
    if metric in _COUNTS:
      continue
    values[path] = [result[path] for result in results.values()]
    sizes = _sizes(results, model)
    if model == 'server':
      columns[f'server_{metric}'] = metrics.weighted_mean(values[path], sizes)
    columns.update(_statistics(_PREFIXES.get(model, model), metric, values[path], sizes))
  accuracy = metrics.accuracy_name(name.partition('/')[2] for name in names)
  if {f'server/{accuracy}', f'client/{accuracy}'} <= set(names):
    columns[f'clients_{accuracy}_share_worse'] = metrics.share_worse_than(
      values[f'client/{accuracy}'], values[f'server/{accuracy}'], _sizes(results, 'client')
    )
  return columns


def _sizes(results: Results, model: str) -> list[float]:
  return [result[f'{model}/num_targets'] for result in results.values()]


def _statistics(prefix: str, metric: str, values: list, sizes: list) -> Row:
  statistics = metrics.summarize(values, sizes)
  if not metric.endswith('accuracy'):
    # The lowest tenth is the worst only where more is better.
    del statistics['worst10_mean']
  return {f'{prefix}_{metric}_{name}': value for name, value in statistics.items()}


def trained(
  process: process_lib.PersonalizedProcess,
  client_metrics: Mapping[str, Mapping[str, int | float]],
  server_metrics: Mapping[str, int | float] | None,
) -> Row:
  """Columns of one round of training.

  Args:
    process: For the names.
    client_metrics: Numbers of `next`'s clients, by id.
    server_metrics: Numbers of `next`'s server, None if the round changed nothing.

  Returns:
    `train_<name>`: whole numbers and `num_…` are summed over clients, others averaged by
    `num_targets` over those whose result counts. `round_<name>`: the server's.
  """
  result_type = process.next.type_signature.result
  columns: Row = {'train_num_clients': len(client_metrics)}
  for name, empty in codec.missing_scalars(result_type[3]).items():
    values = [numbers[name] for numbers in client_metrics.values()]
    if isinstance(empty, int) or name.startswith('num_'):
      columns[f'train_{name}'] = sum(values)
    else:
      weights = [example_weight(numbers) for numbers in client_metrics.values()]
      columns[f'train_{name}'] = metrics.weighted_mean(values, weights)
  if server_metrics is None:
    server_metrics = codec.missing_scalars(result_type[2])
  return columns | {f'round_{name}': value for name, value in server_metrics.items()}


def example_weight(numbers: Mapping[str, int | float]) -> float:
  """A client's training targets, 0 where its result was not finite and is withheld."""
  size = numbers.get('num_targets', numbers.get('num_examples', 1))
  return 0 if numbers.get('nonfinite') else size


def reported(report: tff.Computation | None, server_state: Any) -> Row:
  """Columns `report_<name>` of the process's own report on its server state."""
  if report is None:
    return {}
  numbers = codec.scalars(report(server_state), report.type_signature.result)
  return {f'report_{name}': value for name, value in numbers.items()}


def best(history: tuple[Row, ...]) -> tuple[int | None, str | None]:
  """The best round and what it was selected on.

  By the clients' mean accuracy, or else their mean loss, or else the server's; on
  validation data where there are any. The earliest of equal ones. A best on test data
  is optimistic: it is labelled so, and never the result that is reported.

  Returns:
    `(round, 'validation' or 'test')`, or `(None, None)` if nothing was evaluated.
  """
  row = history[-1] if history else {}
  for prefix, label in (('validation_', 'validation'), ('', 'test')):
    accuracy = metrics.history_accuracy(row)
    for column, sign in (
      (f'clients_{accuracy}_mean', 1),
      ('clients_loss_mean', -1),
      (f'server_{accuracy}', 1),
      ('server_loss', -1),
    ):
      scores = [
        (sign * r[prefix + column], -r['round'])
        for r in history
        if np.isfinite(r.get(prefix + column, np.nan))
      ]
      if scores:
        return -max(scores)[1], label
  return None, None
