"""The studies of adaptive expert models: methods, p, J, ε, choices, rotations."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import experts_measures
import numpy as np
import study_measures
import study_reports
from experts_data import ANGLES
from experts_setting import Setting
from matplotlib import colors, ticker
from matplotlib import figure as figure_lib
from matplotlib.backends import backend_agg

from tffpers import metrics, simulation

_STATISTICS = ('mean', 'weighted', 'std', 'p5', 'p10', 'p50', 'p90', 'worst10_mean')
_EXPLAINED = (
  'Test accuracy of the clients’ models after the last round and the second phase, in %: mean '
  'over seeds ± standard deviation over seeds.'
)


def methods(setting: Setting) -> None:
  """The table of all methods, statistics over clients, and the distribution over clients."""
  rows, lines = [], {}
  for method in setting.methods:
    found = [setting.accuracies(method, seed) for seed in setting.seeds]
    rows.append({'method': method} | statistics(found))
    lines[method] = study_measures.distribution(np.concatenate([100 * a for a, _ in found]))
  caption = setting.caption(f'{_EXPLAINED} Statistics are over clients, std is their deviation.')
  study_reports.write_table(setting.folder, 'methods', rows, caption)
  note = 'Distribution of the test accuracy over clients, all seeds together.'
  study_reports.draw(
    setting.folder,
    'cdf',
    {'share of clients': lines},
    setting.caption(note),
    xlabel='test accuracy up to, %',
  )


def statistics(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, str]:
  """Statistics over clients, in %, their mean over seeds ± deviation over seeds.

  Args:
    found: Accuracies and sizes of the clients, for each seed.
  """
  by_seed = [metrics.summarize(accuracies, sizes) for accuracies, sizes in found]
  return {name: percent([one[name] for one in by_seed]) for name in _STATISTICS}


def percent(values: Sequence[float]) -> str:
  """Mean in %, ± deviation where there are several values."""
  spread = f' ± {100 * np.std(values, ddof=1):.2f}' if len(values) > 1 else ''
  return f'{100 * np.mean(values):.2f}{spread}'


def sweep(setting: Setting, study: str, argument: str, label: str, values: Sequence[float]) -> None:
  """Table and figure of every method's mean client accuracy against a number.

  Args:
    setting: What is run.
    study: Name of the files.
    argument: What is changed, an argument of `Setting.run`.
    label: Of the number in table and figure.
    values: Values of the number.
  """
  rows: list[dict[str, Any]] = []
  means: dict[str, list[np.ndarray]] = {method: [] for method in setting.methods}
  for value in values:
    row: dict[str, Any] = {label: f'{value:g}'}
    for method, line in means.items():
      found = [setting.accuracies(method, seed, **{argument: value}) for seed in setting.seeds]
      line.append(np.array([accuracies.mean() for accuracies, _ in found]))
      row[method] = percent(line[-1])
    rows.append(row)
  caption = setting.caption(f'{_EXPLAINED} Mean over clients, for each {label}.')
  study_reports.write_table(setting.folder, study, rows, caption)
  panel = 'mean client test accuracy, %'
  lines = {m: (values, [100 * v.mean() for v in line]) for m, line in means.items()}
  bands = {}
  if len(setting.seeds) > 1:
    for method, line in means.items():
      mean, spread = (100 * np.array([f(v) for v in line]) for f in (np.mean, _deviation))
      bands[method] = mean - spread, mean + spread
  study_reports.draw(
    setting.folder, study, {panel: lines}, caption, xlabel=label, bands={panel: bands}
  )


def _deviation(values: np.ndarray) -> float:
  return float(np.std(values, ddof=1))


def choices(setting: Setting, fractions: Sequence[float | None]) -> None:
  """Which client picked which model in each round, for ε = 0 and ε-greedy; a picture.

  Args:
    setting: What is run, with its first seed.
    fractions: p of each row of panels; None where there is none.
  """
  seed, number = setting.seeds[0], setting.values.num_models
  runs = {'ifca': 0.0, 'experts': setting.values.epsilon}
  figure = figure_lib.Figure(figsize=(10, 0.5 + 4 * len(fractions)), layout='constrained')
  backend_agg.FigureCanvasAgg(figure)
  grid = figure.subplots(len(fractions), len(runs), squeeze=False)
  for fraction, row in zip(fractions, grid, strict=True):
    for (run, epsilon), axes in zip(runs.items(), row, strict=True):
      image = _draw_picks(axes, setting.run(run, seed, fraction=fraction), number)
      shown = '' if fraction is None else f', p = {fraction:g}'
      axes.set(title=f'ε = {epsilon:g}{shown}', xlabel='round', ylabel='client')
  bar = figure.colorbar(image, ax=grid, ticks=range(-1, number))
  bar.set_ticklabels(['none', *(f'model {j}' for j in range(number))])
  note = f'The model that each client trained in each round, seed {seed}.'
  study_reports.put_caption(figure, setting.caption(note), 150)
  figure.savefig(setting.folder / 'choices.png', format='png', dpi=120)


def _draw_picks(axes: Any, result: simulation.Result, number: int) -> Any:
  keys, rounds = list(result.clients), result.summary['rounds']
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(ticker.MaxNLocator(integer=True))
  return axes.imshow(
    experts_measures.picks(result.client_history, keys, number, rounds),
    colors.ListedColormap(['white', *(f'C{j}' for j in range(number))]),
    vmin=-1.5,
    vmax=number - 0.5,
    aspect='auto',
    interpolation='nearest',
    extent=(0.5, rounds + 0.5, len(keys) - 0.5, -0.5),
  )


def rotations(setting: Setting) -> None:
  """Whether every client ends on its rotation's model, for each seed (ε = 0)."""
  rows = [
    {'seed': seed, 'initial models': setting.values.initial_models}
    | _split(setting, seed, setting.values.initial_models, seed)
    for seed in setting.seeds
  ]
  caption = setting.caption(_SPLIT)
  study_reports.write_table(setting.folder, 'rotations', rows, caption)


def starts(setting: Setting, number: int) -> None:
  """On how many random and balanced starts, on the same data, clients split by rotation (ε = 0).

  Args:
    setting: What is run.
    number: Starts of each kind: seeds 1 … number of the run.
  """
  rows = [
    {'initial models': kind, 'start': seed} | _split(setting, seed, kind, setting.seeds[0])
    for kind in ('random', 'balanced')
    for seed in range(1, number + 1)
  ]
  split = collections.Counter(r['initial models'] for r in rows if r['split'] == 'yes')
  note = (
    f'{_SPLIT} {split["random"]} of {number} random and {split["balanced"]} of {number} balanced '
    f'starts split the clients: runs with seeds 1 … {number} on the data of seed '
    f'{setting.seeds[0]}; a balanced one spends its first round on a vote.'
  )
  study_reports.write_table(setting.folder, 'starts', rows, setting.caption(note))


_SPLIT = (
  'IFCA (ε = 0) at the last round: clients whose best cluster model is the one of their rotation.'
)


def _split(setting: Setting, seed: int, initial_models: str, data_seed: int) -> Mapping[str, Any]:
  result = setting.run('clusters', seed, initial_models=initial_models, data_seed=data_seed)
  best = experts_measures.best_models(result.clients, setting.values.num_models)
  groups = setting.deal(setting.fraction, data_seed).groups
  share = experts_measures.own_group_model(best, groups, len(ANGLES))
  last = [row['client_accuracy'] for row in result.clients.values()]
  return {
    'clients on their rotation’s model, %': 100 * share,
    'split': 'yes' if share == 1 else 'no',
    'mean client accuracy of IFCA, %': 100 * float(np.mean(last)),
  }
