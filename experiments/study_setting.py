"""What every study is given: data, methods and settings, and how it runs a method."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tffpers import datasets, process, simulation

Build = Callable[..., process.PersonalizedProcess]


@dataclasses.dataclass(frozen=True)
class Setting:
  """One data set under one preset.

  Attributes:
    dataset: Its name.
    preset: The preset's name.
    command: The command that was given, for captions.
    folder: Where tables, figures and `runs/` go.
    train: Training data.
    test: Test data.
    methods: What builds the processes, by method; takes changed hyper-parameters.
    rounds: Rounds of a run.
    clients_per_round: C.
    evaluate_every: Rounds between evaluations, where a study needs none of its own.
    seed: Seed of the data's split and of the (first) run.
    values: Further settings, for captions.
    progress: Whether runs show a progress bar.
  """

  dataset: str
  preset: str
  command: str
  folder: pathlib.Path
  train: datasets.FederatedDataset
  test: datasets.FederatedDataset
  methods: Mapping[str, Build]
  rounds: int
  clients_per_round: int
  evaluate_every: int
  seed: int
  values: Mapping[str, Any]
  progress: bool = True

  def run(
    self, study: str, name: str, built: process.PersonalizedProcess, **changes: Any
  ) -> simulation.Result:
    """Runs a process, or continues it; one that has all its rounds is not repeated.

    Args:
      study: The study, and
      name: a name in it: the run is in `runs/<study>/<name>`.
      built: The process.
      **changes: Arguments of `simulation.run` in place of the setting's.
    """
    print(f'{study}/{name}', flush=True)
    arguments = {
      'train_data': self.train,
      'test_data': self.test,
      'rounds': self.rounds,
      'clients_per_round': self.clients_per_round,
      'evaluate_every': self.evaluate_every,
      'seed': self.seed,
      **changes,
    }
    return simulation.run(
      built,
      output_dir=self.folder / 'runs' / study / name,
      resume=True,
      progress=self.progress,
      method=name,
      dataset=self.dataset,
      config=dict(self.values),
      **arguments,
    )

  def caption(self, note: str, *, seeds: int = 1) -> str:
    """One line that says what a table or figure was made from.

    Args:
      note: What is shown.
      seeds: Number of seeds, counted up from the setting's.
    """
    listed = ', '.join(str(self.seed + i) for i in range(seeds))
    settings = ', '.join(f'{name}={value}' for name, value in self.values.items())
    return (
      f'{note} Data set {self.dataset}, preset {self.preset}, {self.rounds} rounds, seed {listed}, '
      f'K={len(self.train)}, C={self.clients_per_round}, {settings}. Command: {self.command}'
    )
