"""What is computed from the results of single clients.

A mean over clients and a mean over examples answer different questions, so both are
given and named. Clients without data are left out everywhere, they never count as 0;
a client that has data and a result of NaN makes the statistics NaN, so that a
diverged client cannot improve them by dropping out.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

PERCENTILES = (5, 10, 50, 90)


def summarize(values: npt.ArrayLike, sizes: npt.ArrayLike) -> dict[str, float]:
  """Statistics of one metric over clients.

  Args:
    values: One number per client, [n].
    sizes: Examples (or targets) behind each of them, [n], ≥ 0; clients with 0 are
      left out.

  Returns:
    `mean` (every client counts the same), `weighted` (every example counts the same:
    the metric on the pooled data, for metrics that are means), `std` (over clients,
    divided by n), `p5`, `p10`, `p50`, `p90` and `worst10_mean` (the tenth of the
    clients with the lowest values, at least one). All NaN without data.

  >>> result = summarize([0.0, 1.0], [1, 99])
  >>> result['mean'], result['weighted']
  (0.5, 0.99)
  """
  kept, weights = _measured(values, sizes)
  names = ('mean', 'weighted', 'std', *(f'p{p}' for p in PERCENTILES), 'worst10_mean')
  if not kept.size or np.isnan(kept).any():
    return dict.fromkeys(names, float('nan'))
  with np.errstate(invalid='ignore'):  # An infinite loss has no spread.
    statistics = (
      kept.mean(),
      _weighted(kept, weights),
      kept.std(),
      *np.percentile(kept, PERCENTILES),
      _worst_tenth(kept),
    )
  return dict(zip(names, map(float, statistics), strict=True))


def weighted_mean(values: npt.ArrayLike, sizes: npt.ArrayLike) -> float:
  """Σ size · value / Σ size over the clients with size > 0; NaN if there is none.

  Args:
    values: One number per client, [n].
    sizes: Their weights, [n], ≥ 0.
  """
  kept, weights = _measured(values, sizes)
  return _weighted(kept, weights) if kept.size else float('nan')


def share_worse_than(values: npt.ArrayLike, other: npt.ArrayLike, sizes: npt.ArrayLike) -> float:
  """Share of clients whose value is below the other one; equal ones are not worse.

  Args:
    values: One number per client where more is better, such as the accuracy of
      personal models, [n].
    other: What each client compares with, such as the server model's, [n].
    sizes: Examples behind each pair, [n]; clients with 0 are left out.

  Returns:
    Between 0 and 1; NaN if no client has data or one of the results is NaN.

  >>> share_worse_than([0.5, 0.9, 0.7, 0.8], [0.6, 0.8, 0.7, 0.1], [5, 5, 5, 0])
  0.3333333333333333
  """
  kept, _ = _measured(values, sizes)
  compared, _ = _measured(other, sizes)
  if not kept.size or np.isnan(kept).any() or np.isnan(compared).any():
    return float('nan')
  return float(np.mean(kept < compared))


def majority_share(targets: npt.ArrayLike) -> float:
  """Share of the commonest class: the accuracy of always guessing it.

  Args:
    targets: Integer classes, [n].

  Returns:
    Between 0 and 1; NaN for n = 0.
  """
  _, counts = np.unique(np.asarray(targets), return_counts=True)
  return float(counts.max() / counts.sum()) if counts.size else float('nan')


def accuracy_name(names: Iterable[str]) -> str | None:
  """The metric that is the accuracy: `accuracy`, else the first whose name ends so."""
  found = [name for name in names if name.endswith('accuracy')]
  if 'accuracy' in found or not found:
    return 'accuracy' if found else None
  return found[0]


def table(histories: Mapping[str, Iterable[Mapping[str, float]]]) -> str:
  """Markdown table of methods by the last row of their histories.

  S is the server's model on all clients' test data; MT each client's own model on its
  own, weighted by test size (VIRTUAL, Table I). What a method has not is left empty.

  Args:
    histories: Rows of `Result.history` by method.

  Returns:
    Text of one line per method after two header lines.
  """
  lines = [
    '| Method | S accuracy | S cross-entropy | MT accuracy | MT cross-entropy |',
    '|---|---:|---:|---:|---:|',
  ]
  for name, history in histories.items():
    row = (list(history) or [{}])[-1]
    accuracy = history_accuracy(row)
    columns = (
      f'server_{accuracy}',
      'server_loss',
      f'clients_{accuracy}_weighted',
      'clients_loss_weighted',
    )
    cells = [f'{row[c]:.4f}' if np.isfinite(row.get(c, np.nan)) else '' for c in columns]
    lines.append(f'| {" | ".join([name.replace("|", chr(92) + "|"), *cells])} |')
  return '\n'.join(lines) + '\n'


def history_accuracy(row: Mapping[str, float]) -> str | None:
  """The metric of a history row that is the accuracy, by `accuracy_name`."""
  prefix, suffix = 'clients_', '_weighted'
  return accuracy_name(
    [c[len(prefix) : -len(suffix)] for c in row if c.startswith(prefix) and c.endswith(suffix)]
  )


def _measured(values: npt.ArrayLike, sizes: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
  values, sizes = np.asarray(values, np.float64), np.asarray(sizes, np.float64)
  if values.ndim != 1 or values.shape != sizes.shape or not (sizes >= 0).all():
    raise ValueError(
      'values and sizes need one number per client, sizes none below 0. '
      f'Received: values of shape {values.shape}, sizes={sizes}'
    )
  return values[sizes > 0], sizes[sizes > 0]


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
  return float(np.sum(values * weights) / np.sum(weights))


def _worst_tenth(values: np.ndarray) -> float:
  return float(np.sort(values)[: -(-len(values) // 10)].mean())
