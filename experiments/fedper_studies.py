"""FedPer's figures: cases side by side, several seeds, before and after local training."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import fedper_methods
import numpy as np
import study_reports

from tffpers import metrics, simulation

STATISTICS = ('mean', 'weighted', 'std', 'p5', 'p10', 'p50', 'p90', 'worst10_mean')


@dataclasses.dataclass(frozen=True)
class Case:
  """One curve: a method on one data set.

  Attributes:
    panel: The panel it is drawn in, such as 'k = 4'.
    label: Its own name.
    method: Which method, for where its columns are.
    build: Makes the process.
    data: From a seed to train and test data.
  """

  panel: str
  label: str
  method: str
  build: fedper_methods.Build
  data: Any


@dataclasses.dataclass(frozen=True)
class Setting:
  """How every case is run.

  Attributes:
    folder: Where tables, figures and `runs/` go.
    rounds: Rounds of a run.
    clients_per_round: Clients of a round; None takes all.
    evaluate_every: Rounds between evaluations.
    seeds: Seeds of the partition and of the run.
    caption: What holds for all cases, and the command.
    dataset: Name for reports.
    progress: Whether runs show a progress bar.
  """

  folder: pathlib.Path
  rounds: int
  clients_per_round: int | None
  evaluate_every: int
  seeds: Sequence[int]
  caption: str
  dataset: str
  progress: bool


def compare(setting: Setting, study: str, note: str, cases: Sequence[Case]) -> None:
  """Runs all cases on all seeds; writes the table and the figure of a study."""
  runs = {
    (case.panel, case.label): [_run(setting, study, case, seed) for seed in setting.seeds]
    for case in cases
  }
  rows = []
  for case in cases:
    results = runs[case.panel, case.label]
    reference = runs.get((case.panel, 'fed_avg'))
    for point, prefix in fedper_methods.points(case.method).items():
      if f'{prefix}_accuracy_mean' in results[0].history[-1]:
        rows.append(
          {'case': case.panel, 'method': case.label, 'measured': point}
          | _statistics(results, prefix)
          | _worse(results, reference, prefix, point)
        )
  caption = (
    f'{note} Client accuracies at the last round: statistics over clients, mean over seeds, ± '
    f'standard deviation over seeds. {setting.caption}'
  )
  study_reports.write_table(setting.folder, study, rows, caption)
  _draw(setting, study, cases, runs, caption)


def _run(setting: Setting, study: str, case: Case, seed: int) -> simulation.Result:
  name = f'{case.panel}_{case.label}_seed{seed}'.replace(' ', '').replace('=', '')
  print(f'{study}/{name}', flush=True)
  train, test = case.data(seed)
  return simulation.run(
    case.build(),
    train,
    test_data=test,
    rounds=setting.rounds,
    clients_per_round=setting.clients_per_round,
    evaluate_every=setting.evaluate_every,
    personalize_every=1,
    seed=seed,
    output_dir=setting.folder / 'runs' / study / name,
    resume=True,
    progress=setting.progress,
    method=case.label,
    dataset=setting.dataset,
  )


def _statistics(results: Sequence[simulation.Result], prefix: str) -> dict[str, str]:
  cells = {}
  for statistic in STATISTICS:
    values = [result.history[-1][f'{prefix}_accuracy_{statistic}'] for result in results]
    spread = f' ± {np.std(values, ddof=1):.3f}' if len(values) > 1 else ''
    cells[statistic] = f'{np.mean(values):.4f}{spread}'
  return cells


def _worse(
  results: Sequence[simulation.Result],
  reference: Sequence[simulation.Result] | None,
  prefix: str,
  point: str,
) -> dict[str, float]:
  """Share of clients that are worse off than with FedAvg at the same point."""
  if reference is None:
    return {}
  other = fedper_methods.points('fed_avg')[point]
  shares = []
  for result, fed_avg in zip(results, reference, strict=True):
    pairs = [
      (row[_column(prefix)], fed_avg.clients[key][_column(other)], row['num_test'])
      for key, row in result.clients.items()
      if row['num_test']
    ]
    shares.append(metrics.share_worse_than(*zip(*pairs, strict=True)))
  return {'worse than FedAvg': float(np.mean(shares))}


def _column(prefix: str) -> str:
  """The column of a client's own row for a prefix of the history's."""
  return f'{prefix.replace("clients", "client")}_accuracy'


def _draw(
  setting: Setting,
  study: str,
  cases: Sequence[Case],
  runs: Mapping[tuple[str, str], Sequence[simulation.Result]],
  caption: str,
) -> None:
  """Mean accuracy before local training over rounds, mean of the seeds, a panel per case."""
  panels: dict[str, dict[str, Any]] = {}
  bands: dict[str, dict[str, Any]] = {}
  for case in cases:
    histories = [result.history for result in runs[case.panel, case.label]]
    prefix = fedper_methods.points(case.method)['before']
    rounds = [row['round'] for row in histories[0]]
    mean, spread = (
      np.mean([[row[f'{prefix}_accuracy_{s}'] for row in h] for h in histories], 0)
      for s in ('mean', 'std')
    )
    panel = f'client accuracy before local training, {case.panel}'
    panels.setdefault(panel, {})[case.label] = rounds, mean
    bands.setdefault(panel, {})[case.label] = mean - spread, mean + spread
  study_reports.draw(setting.folder, study, panels, caption, xlabel='round', bands=bands)
