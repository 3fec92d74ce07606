"""What the posteriors are worth: likelihood, calibration and entropy, and how σ spread."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import study_measures as measures
import study_reports
from study_setting import Build, Setting

from tffpers import datasets, process, simulation
from tffpers.simulation import evaluation, population, states

METHODS = ('fed_avg', 'virtual', 'virtual_frozen')
SAMPLES = 10
_METRICS = ('accuracy', 'nll', 'ece', 'predictive_entropy')
_POOLED = 'all clients'


def uncertainty(setting: Setting, *, num_samples: int = SAMPLES) -> None:
  """Trains each method once, then evaluates it per client, pooled, and on noise."""
  pooled = pool(setting.test)
  inputs = {
    'test': (setting.test, pooled),
    'noise': (
      noise(setting.train, setting.test, setting.seed),
      noise(setting.train, pooled, setting.seed),
    ),
  }
  rows, sigmas, own = [], [], {}
  for name in METHODS:
    built = evaluations(name, setting.methods[name], num_samples)
    result = setting.run('uncertainty', name, next(iter(built.values())))
    if name != 'fed_avg':
      sigmas.append({'method': name, **sigma_columns(result)})
    for label, evaluated in built.items():
      for kind, (each, together) in inputs.items():
        clients = measure(setting, evaluated, result, each)
        server = measure(setting, evaluated, result, together)[_POOLED]
        head = {'method': label, 'inputs': kind}
        rows += [{**head, **row} for row in model_rows(clients, server, kind == 'noise')]
        own[label, kind] = clients
  _report(setting, rows, sigmas, own, num_samples)


def evaluations(
  name: str, build: Build, num_samples: int
) -> dict[str, process.PersonalizedProcess]:
  """The processes to evaluate a method by: at the mean, and with weight samples."""
  if name == 'fed_avg':
    return {name: build()}
  return {
    f'{name}, mean': build(evaluation_samples=0),
    f'{name}, {num_samples} samples': build(evaluation_samples=num_samples),
  }


def measure(
  setting: Setting,
  evaluated: process.PersonalizedProcess,
  result: simulation.Result,
  test: datasets.FederatedDataset,
) -> evaluation.Results:
  """Evaluates the last states of a run on other data or by another process, by client id."""
  clients = population.Population(evaluated, {'train': setting.train, 'test': test}, setting.seed)
  return evaluation.evaluate(states.States(clients, result.store, result.server_state), 'test')


def pool(data: datasets.FederatedDataset) -> datasets.FederatedDataset:
  """All rows as one client's, whose calibration error is not that of few examples."""
  xs, ys = zip(*map(data.load, data.client_ids), strict=True)
  return datasets.FederatedDataset.from_arrays({_POOLED: (np.concatenate(xs), np.concatenate(ys))})


def noise(
  train: datasets.FederatedDataset, like: datasets.FederatedDataset, seed: int
) -> datasets.FederatedDataset:
  """Independent normal inputs in place of those of `like`, its targets left.

  Mean, deviation and range are those of all inputs in `train`, all features together.
  """
  inputs = np.concatenate([np.ravel(train.load(key)[0]) for key in train.client_ids])
  generator = np.random.default_rng(seed)
  arrays = {}
  for key in like.client_ids:
    x, y = like.load(key)
    drawn = generator.normal(inputs.mean(), inputs.std(), x.shape)
    arrays[key] = np.clip(drawn, inputs.min(), inputs.max()).astype(x.dtype), y
  return datasets.FederatedDataset.from_arrays(arrays)


def model_rows(
  clients: evaluation.Results, server: Mapping[str, float], entropy_only: bool
) -> list[dict[str, Any]]:
  """Rows for S pooled, S per client, and each client's own model (MT).

  Args:
    clients: Numbers by path, by client id.
    server: Numbers by path on the pooled data.
    entropy_only: Whether targets mean nothing.
  """
  names = _METRICS[-1:] if entropy_only else _METRICS
  rows = [{'model': 'S pooled', **{name: server[f'server/{name}'] for name in names}}]
  for label, model in (('S per client', 'server'), ('MT per client', 'client')):
    row: dict[str, Any] = {'model': label}
    for name in names:
      values = [numbers[f'{model}/{name}'] for numbers in clients.values()]
      row[name] = float(np.mean(values))
      row[f'{name}_p5'], row[f'{name}_p95'] = map(float, np.percentile(values, (5, 95)))
    rows.append(row)
  return rows


def sigma_columns(result: simulation.Result) -> dict[str, float]:
  """Quantiles of the server's σ and of σ/σ⁰, and the ratio of the outer ones."""
  quantiles = result.summary['sigma_quantiles']
  return {
    **quantiles,
    'sigma_p95/p5': quantiles['sigma_p95'] / quantiles['sigma_p5'],
    'sigma_ratio_p95/p5': quantiles['sigma_ratio_p95'] / quantiles['sigma_ratio_p5'],
  }


def _report(
  setting: Setting,
  rows: list[dict[str, Any]],
  sigmas: list[dict[str, Any]],
  own: Mapping[tuple[str, str], evaluation.Results],
  num_samples: int,
) -> None:
  note = (
    'Uncertainty after the last round: negative log-likelihood and predictive entropy in nats, '
    'expected calibration error over 15 bins; over clients: mean, 5 % and 95 %. Pooled: all test '
    'data as one client’s, so that few examples do not bias the calibration error. Noise: normal '
    'inputs of the training inputs’ mean and deviation. VIRTUAL at the posterior mean and with '
    f'{num_samples} weight samples; frozen: σ stays at its start.'
  )
  caption = setting.caption(note)
  study_reports.write_table(setting.folder, 'uncertainty', rows, caption)
  sigma_note = 'Quantiles of the server’s σ and of σ/σ⁰ over all weights after the last round.'
  study_reports.write_table(
    setting.folder, 'uncertainty_sigma', sigmas, setting.caption(sigma_note)
  )
  panels = {
    f'share of clients ({name}, MT, {kind})': {
      label: _shares(results, name) for (label, of), results in own.items() if of == kind
    }
    for name, kind in (
      ('nll', 'test'),
      ('ece', 'test'),
      ('predictive_entropy', 'test'),
      ('predictive_entropy', 'noise'),
    )
  }
  study_reports.draw(setting.folder, 'uncertainty', panels, caption, xlabel='value of a client')


def _shares(results: evaluation.Results, name: str) -> tuple[np.ndarray, np.ndarray]:
  return measures.distribution([numbers[f'client/{name}'] for numbers in results.values()])
