"""Learning rate, β and damping: the grid search, and Figure 2."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import study_measures as measures
import study_reports
import tensorflow_federated as tff
from study_setting import Build, Setting

from tffpers import simulation

BETAS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
LEARNING_RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
DAMPINGS = (None, 1.0)
VALIDATION_SHARE = 0.1


def with_rate(build: Build, learning_rate: float, **changes: Any) -> Build:
  """The same method at another learning rate, with further changes."""
  optimizer = tff.learning.optimizers.build_sgdm(learning_rate)
  return functools.partial(build, optimizer=optimizer, **changes)


def grid(
  setting: Setting,
  *,
  learning_rates: Sequence[float] = LEARNING_RATES,
  betas: Sequence[float] = BETAS,
  dampings: Sequence[float | None] = DAMPINGS,
  num_seeds: int = 3,
) -> None:
  """Tries every point without test data; runs the best one on several seeds with them."""
  fit, validation = setting.train.split(1 - VALIDATION_SHARE, VALIDATION_SHARE, seed=setting.seed)
  sizes = [fit.num_examples(key) for key in fit.client_ids]
  virtual = functools.partial(setting.methods['virtual'], client_num_examples=sizes)
  points = [(rate, beta, d) for rate in learning_rates for beta in betas for d in dampings]
  split = {'train_data': fit, 'validation_data': validation}
  rows = []
  for rate, beta, damping in points:
    build = with_rate(virtual, rate, beta=beta, damping=damping)
    result = setting.run('grid', _name(rate, beta, damping), build(), test_data=None, **split)
    rows.append(_trial_row(setting, (rate, beta, damping), result))
  chosen = max(range(len(rows)), key=lambda i: score(rows[i]))
  rows[chosen]['chosen'] = 'yes'
  note = (
    'Grid: VIRTUAL at each point, trained on 90 % of every client’s training data, measured on the '
    'other 10 %, at the round with the best validation S; no test data. Best validation S (MT '
    'where equal) is chosen among the points whose verdict is ok, if there are any.'
  )
  study_reports.write_table(setting.folder, 'grid', rows, setting.caption(note))
  _draw_grid(setting, rows, note)
  _run_chosen(setting, virtual, points[chosen], split, num_seeds)


def beta(setting: Setting, *, learning_rate: float, betas: Sequence[float] = BETAS) -> None:
  """Figure 2: S and MT accuracy against β."""
  rows = []
  for value in betas:
    build = with_rate(setting.methods['virtual'], learning_rate, beta=value)
    result = setting.run('beta', _name(learning_rate, value, None), build())
    rows.append({'beta': value, **accuracies(result), **sigma_ratio(result)})
  note = (
    f'Figure 2: test accuracy of VIRTUAL against β at learning rate {learning_rate} (this one, and '
    'these β, hold here); last: after the last round; max: the best round on test data, which is '
    'optimistic.'
  )
  caption = setting.caption(note)
  study_reports.write_table(setting.folder, 'beta', rows, caption)
  lines = {
    f'{model} {which}': (betas, [row[f'{model}_{which}'] for row in rows])
    for model in measures.ACCURACY
    for which in ('last', 'max')
  }
  # β = 0 is among them, which a logarithmic axis has not.
  xscale = {'value': 'symlog', 'linthresh': 1e-6}
  study_reports.draw(
    setting.folder, 'beta', {'test accuracy': lines}, caption, xlabel='β', xscale=xscale
  )


def chosen_learning_rate(setting: Setting) -> float | None:
  """What the grid chose on this data set, if its table is in the folder."""
  caption, rows = study_reports.read_table(setting.folder, 'grid')
  if f'Data set {setting.dataset}, preset {setting.preset},' not in caption:
    return None
  return next((float(row['learning_rate']) for row in rows if row.get('chosen')), None)


def accuracies(result: simulation.Result) -> dict[str, float]:
  """S and MT test accuracy after the last round, and of their best rounds."""
  values = {
    model: measures.column(result.history, name) for model, name in measures.ACCURACY.items()
  }
  return {
    **{f'{model}_last': float(column[-1]) for model, column in values.items()},
    **{f'{model}_max': float(np.nanmax(column)) for model, column in values.items()},
  }


def sigma_ratio(result: simulation.Result) -> dict[str, float]:
  """Percentiles of the server's σ/σ⁰ after the last round."""
  return {f'sigma_ratio_p{q}': result.history[-1][f'report_sigma_ratio_p{q}'] for q in (5, 50, 95)}


def _trial_row(
  setting: Setting, point: tuple[float, float, float | None], result: simulation.Result
) -> dict[str, Any]:
  history, (rate, beta_value, damping) = result.history, point
  row = measures.best_row(history, 'validation_server_accuracy')
  scaled = int((measures.column(history, 'round_back_scaling') < 1).sum())
  return {
    'learning_rate': rate,
    'beta': beta_value,
    'damping': f'1/{setting.clients_per_round}' if damping is None else damping,
    'validation_S': row['validation_server_accuracy'],
    'validation_MT': row['validation_clients_accuracy_weighted'],
    'round': row['round'],
    'last_validation_S_loss': history[-1]['validation_server_loss'],
    'rounds_scaled_back': scaled,
    'rounds_looked_at': len(history),
    'least_back_scaling': float(measures.column(history, 'round_back_scaling').min()),
    'nonfinite_results': history[-1]['total_nonfinite'],
    'verdict': verdict(history),
    'chosen': '',
  }


def verdict(history: measures.History) -> str:
  """What went wrong with a run, `ok` if nothing.

  `not finite`: the last loss, or what a client trained. `loss rose`: S's validation loss
  is larger in the last round than in the first one. `scaled back`: the server had to keep
  precisions positive, in a round that was evaluated.
  """
  losses = measures.column(history, 'validation_server_loss')
  found = {
    'not finite': not math.isfinite(losses[-1]) or history[-1]['total_nonfinite'],
    'loss rose': losses[-1] > losses[0],
    'scaled back': (measures.column(history, 'round_back_scaling') < 1).any(),
  }
  return ', '.join(name for name, true in found.items() if true) or 'ok'


def score(row: dict[str, Any]) -> tuple[bool, float, float]:
  """What the grid goes by.

  A point that went wrong can have the best round on a small validation set, and falls
  from it in the next one: it is chosen only if all did.
  """
  return row['verdict'] == 'ok', row['validation_S'], row['validation_MT']


def _run_chosen(
  setting: Setting,
  virtual: Build,
  point: tuple[float, float, float | None],
  split: dict[str, Any],
  num_seeds: int,
) -> None:
  """The chosen point on several seeds, on test data at the round validation data choose."""
  rate, beta_value, damping = point
  built = with_rate(virtual, rate, beta=beta_value, damping=damping)()
  rows: list[dict[str, Any]] = []
  for seed in range(setting.seed, setting.seed + num_seeds):
    name = f'chosen_{_name(rate, beta_value, damping)}_seed{seed}'
    result = setting.run('grid', name, built, seed=seed, **split)
    row = measures.best_row(result.history, 'validation_server_accuracy')
    selected = {model: row[column] for model, column in measures.ACCURACY.items()}
    rows.append({'seed': seed, 'round': row['round'], **selected, **accuracies(result)})
  numbers = [name for name in rows[0] if name not in ('seed', 'round')]
  columns = {name: [row[name] for row in rows] for name in numbers}
  means = {name: float(np.mean(values)) for name, values in columns.items()}
  spreads = {
    name: float(np.std(values, ddof=1)) for name, values in columns.items() if len(values) > 1
  }
  rows += [{'seed': 'mean', **means}, {'seed': 'sd', **spreads}]
  note = (
    f'The grid’s choice, learning rate {rate}, β {beta_value}, damping {damping or "1/C"} (these '
    'hold here), on test data: S and MT at the round with the best validation S, after the last '
    'round, and of the best round on test data (optimistic). Data split as for the first seed.'
  )
  caption = setting.caption(note, seeds=num_seeds)
  study_reports.write_table(setting.folder, 'grid_chosen', rows, caption)


def _draw_grid(setting: Setting, rows: list[dict[str, Any]], note: str) -> None:
  lines: dict[str, tuple[list[float], list[float]]] = {}
  for row in rows:
    x, y = lines.setdefault(f'β={row["beta"]:g}, d={row["damping"]}', ([], []))
    x.append(row['learning_rate'])
    y.append(row['validation_S'])
  study_reports.draw(
    setting.folder,
    'grid',
    {'validation accuracy, S': lines},
    setting.caption(note),
    xlabel='learning rate',
    xscale='log',
  )


def _name(rate: float, beta_value: float, damping: float | None) -> str:
  return f'lr{rate:g}_beta{beta_value:g}_damping{"1overC" if damping is None else f"{damping:g}"}'
