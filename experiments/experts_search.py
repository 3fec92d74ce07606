"""Hyper-parameters of adaptive expert models by validation data, in the paper's four stages.

Isaksson et al., arXiv 2206.07832: first the local and the global model, each alone; then the
gate that mixes the two (J = 1); then the cluster models (J = 2); then ε. Each stage keeps what
the stages before it found. Optuna's TPE proposes, its SQLite file remembers: an interrupted
search goes on with the trial it was in, and proposes what it would have proposed.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import experts_methods
import numpy as np
import optuna
import study_reports
from experts_setting import Setting

Space = Mapping[str, Callable[[optuna.Trial, str], float]]


def _log(low: float, high: float) -> Callable[[optuna.Trial, str], float]:
  return lambda trial, name: trial.suggest_float(name, low, high, log=True)


def _uniform(low: float, high: float) -> Callable[[optuna.Trial, str], float]:
  return lambda trial, name: trial.suggest_float(name, low, high)


_CLUSTER: Space = {
  'client_learning_rate': _log(1e-3, 0.3),
  'cluster_decay': _log(1e-5, 1e-2),
  'cluster_dropout': _uniform(0.0, 0.7),
}
_LOCAL: Space = {
  'local_learning_rate': _log(1e-4, 1e-2),
  'local_decay': _log(1e-4, 1e-1),
  'local_dropout': _uniform(0.0, 0.7),
}
_GATE: Space = {
  'gate_learning_rate': _log(1e-5, 1e-2),
  'gate_decay': _log(1e-4, 1e-1),
  'gate_dropout': _uniform(0.0, 0.7),
}


@dataclasses.dataclass(frozen=True)
class Part:
  """What a stage searches by one measurement of its run.

  Attributes:
    name: Of Optuna's study.
    space: What proposes a value, by field of `Values`.
    measured: Model whose mean client validation accuracy, after the second phase, is
      maximised.
  """

  name: str
  space: Space
  measured: str


@dataclasses.dataclass(frozen=True)
class Stage:
  """Parts that one run measures at once, as they do not act on each other.

  Attributes:
    run: A key of `experts_methods.builders`.
    num_models: J; None for the setting's.
    parts: What is searched.
  """

  run: str
  num_models: int | None
  parts: tuple[Part, ...]


STAGES = (
  Stage('ifca', 1, (Part('global', _CLUSTER, 'ifca'), Part('local', _LOCAL, 'local'))),
  Stage('ifca', 1, (Part('gate', _GATE, 'client'),)),
  Stage('ifca', 2, (Part('clusters', _CLUSTER, 'ifca'),)),
  Stage('experts', None, (Part('epsilon', {'epsilon': _uniform(0.0, 1.0)}, 'client'),)),
)


def search(setting: Setting, trials: int) -> experts_methods.Values:
  """Searches stage by stage; writes a table of all trials and prints the best flags.

  Args:
    setting: Where the search starts; its first seed is used.
    trials: Trials of each stage in all, also of a search that goes on.

  Returns:
    The setting's values with what was found.
  """
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  values = setting.values
  for stage in STAGES:
    studies = [_study(setting, part) for part in stage.parts]
    while min(map(_finished, studies)) < trials:
      _try(setting, values, stage, studies)
    for study in studies:
      values = dataclasses.replace(values, **study.best_params)
    print(f'{stage.parts[-1].name}: {_flags(values)}', flush=True)
  rows = [row for stage in STAGES for part in stage.parts for row in _rows(setting, part)]
  note = (
    'Mean client accuracy on validation data, in %, of every trial; test data were not looked at. '
    f'Found: {_flags(values)}.'
  )
  study_reports.write_table(setting.folder, 'search', rows, setting.caption(note))
  return values


def _study(setting: Setting, part: Part) -> optuna.Study:
  path = pathlib.Path(setting.folder) / 'search.sqlite'
  study = optuna.create_study(
    storage=f'sqlite:///{path}', study_name=part.name, load_if_exists=True, direction='maximize'
  )
  for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
    # The process that ran it has ended.
    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    study.enqueue_trial(trial.params)
  return study


def _finished(study: optuna.Study) -> int:
  return len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


def _try(
  setting: Setting, values: experts_methods.Values, stage: Stage, studies: list[optuna.Study]
) -> None:
  """One run, of which each part of the stage is told its own measurement."""
  asked = []
  for study, part in zip(studies, stage.parts, strict=True):
    # Its own seed for every trial, so that a search that goes on draws the same.
    study.sampler = optuna.samplers.TPESampler(seed=setting.seeds[0] * 1000 + _finished(study))
    trial = study.ask()
    values = dataclasses.replace(
      values, **{name: propose(trial, name) for name, propose in part.space.items()}
    )
    asked.append(trial)
  if stage.num_models:
    values = dataclasses.replace(values, num_models=stage.num_models)
  clients = measure(setting, values, stage.run)
  for study, part, trial in zip(studies, stage.parts, asked, strict=True):
    scores = [row[f'personalized_{part.measured}_accuracy'] for row in clients.values()]
    study.tell(trial, float(np.mean(scores)))
    print(f'{part.name} {trial.number}: {100 * np.mean(scores):.2f} {trial.params}', flush=True)


def measure(
  setting: Setting, values: experts_methods.Values, run: str
) -> Mapping[str, Mapping[str, Any]]:
  """The clients' results on their validation data; test data are not touched.

  Args:
    setting: What is run, with its first seed.
    values: Hyper-parameters.
    run: A key of `experts_methods.builders`.
  """
  seed = setting.seeds[0]
  data = setting.deal(setting.fraction, seed)
  result = setting.simulate(
    run, values, data, seed, test_data=data.validation, evaluate_every=values.rounds
  )
  return {key: row for key, row in result.clients.items() if row['num_test']}


def _rows(setting: Setting, part: Part) -> Iterator[dict[str, Any]]:
  study = _study(setting, part)
  for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
    values = ', '.join(f'{name}={value:.4g}' for name, value in trial.params.items())
    best = 'yes' if trial.number == study.best_trial.number else ''
    yield {
      'stage': part.name,
      'trial': trial.number,
      'values': values,
      'accuracy': f'{100 * trial.value:.2f}',
      'best': best,
    }


def _flags(values: experts_methods.Values) -> str:
  names = [name for stage in STAGES for part in stage.parts for name in part.space]
  found = {name: getattr(values, name) for name in dict.fromkeys(names)}
  return ' '.join(f'--{name}={value:.4g}' for name, value in found.items())
