"""What APPLE's studies are given, and how they run a method."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import apple_data
import apple_methods
import numpy as np
import tensorflow as tf
import tqdm

from tffpers import datasets, process, simulation


class Followed(NamedTuple):
  """A run of APPLE with what became of the relations.

  Attributes:
    result: Of the run.
    rounds: Rounds finished, [T], from 0 on.
    relations: P after them, [T, N, N], client i's p_i in row i; p_0 in every row at first.
  """

  result: simulation.Result
  rounds: np.ndarray
  relations: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
  """One data set under one preset.

  Attributes:
    folder: Where tables, figures and `runs/` go.
    values: Hyper-parameters of the methods.
    data: From a seed to the clients' data.
    model_fn: Builds the network.
    runs: Keys of `apple_methods.builders` that the methods study compares.
    seeds: Seeds of the partition and of the run.
    evaluate_every: Rounds between evaluations.
    description: What holds for all tables and figures, and the command.
    dataset: Name for reports.
    progress: Whether runs show a progress bar.
  """

  folder: pathlib.Path
  values: apple_methods.Values
  data: Callable[[int], apple_data.Clients]
  model_fn: Callable[[], tf.keras.Model]
  runs: Sequence[str]
  seeds: Sequence[int]
  evaluate_every: int
  description: str
  dataset: str
  progress: bool = True

  def caption(self, note: str) -> str:
    """One line that says what a table or figure was made from."""
    return f'{note} {self.description}'

  def build(self, run: str, seed: int, **changes: object) -> process.PersonalizedProcess:
    """The process of a run on a seed's data, perhaps with changed hyper-parameters."""
    methods = apple_methods.builders(self.data(seed).train, self.model_fn, self.values)
    return methods[run](**changes)

  def run(
    self, name: str, seed: int, built: process.PersonalizedProcess, rounds: int | None = None
  ) -> simulation.Result:
    """Runs a process on all clients, or continues it; a finished run is not repeated.

    Args:
      name: The run is in `runs/<name>_seed<seed>`.
      seed: Of the data and the run.
      built: The process.
      rounds: Where to stop; None for the setting's number of rounds.
    """
    data = self.data(seed)
    return simulation.run(
      built,
      data.train,
      test_data=data.test,
      validation_data=data.validation,
      rounds=rounds or self.values.rounds,
      clients_per_round=None,
      evaluate_every=self.evaluate_every,
      personalize_every=self.evaluate_every,
      seed=seed,
      output_dir=self._folder(name, seed),
      resume=True,
      progress=self.progress and rounds is None,
      method=name,
      dataset=self.dataset,
    )

  def follow(
    self, name: str, seed: int, built: process.PersonalizedProcess, rounds: int, every: int
  ) -> Followed:
    """Runs APPLE as `run` does and keeps every client's p_i after every so many rounds.

    p_i is the client's own and never sent, so no history has it. It is read out of the
    clients' states, for which the run stops and is resumed: that changes no bit of it,
    takes nothing but the public interface, and costs about a second each time.

    Args:
      name: As for `run`.
      seed: As for `run`.
      built: APPLE.
      rounds: Where to stop.
      every: Rounds between looks.
    """
    train = self.data(seed).train
    path = self._folder(name, seed) / 'relations.npz'
    seen, relations = _read(path) if path.exists() else _start(train)
    steps = [r for r in range(1, rounds + 1) if r > seen[-1] and (r % every == 0 or r == rounds)]
    for number in tqdm.tqdm(steps, unit='look', disable=not self.progress):
      result = self.run(name, seed, built, number)
      latest = [result.client_state(key).relations for key in train.client_ids]
      seen, relations = np.append(seen, number), np.append(relations, [latest], axis=0)
      _write(path, seen, relations)
    return Followed(self.run(name, seed, built, rounds), seen, relations)

  def _folder(self, name: str, seed: int) -> pathlib.Path:
    return self.folder / 'runs' / f'{name}_seed{seed}'


@functools.cache
def apple(setting: Setting, seed: int) -> Followed:
  """The run of APPLE with the setting's own M and μ, which several studies look at."""
  name = limited_name('apple', setting.values.max_downloads, setting, seed)
  rounds, every = setting.values.rounds, setting.evaluate_every
  return setting.follow(name, seed, setting.build('apple', seed), rounds, every)


def limited_name(run: str, max_downloads: int, setting: Setting, seed: int) -> str:
  """Name of a run with M downloads, such as `apple_M11`."""
  number = apple_methods.num_downloads(max_downloads, len(setting.data(seed).train))
  return f'{run}_M{number}'


def _start(train: datasets.FederatedDataset) -> tuple[np.ndarray, np.ndarray]:
  """Round 0: p_0 for everybody."""
  sizes = np.array([train.num_examples(key) for key in train.client_ids], np.float32)
  return np.array([0]), np.tile(sizes / sizes.sum(), [1, len(sizes), 1])


def _read(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  with np.load(path) as file:
    return file['rounds'], file['relations']


def _write(path: pathlib.Path, rounds: np.ndarray, relations: np.ndarray) -> None:
  """At one stroke: a run that is killed here finds the file as it was."""
  temporary = path.with_name(f'.{os.getpid()}.npz')
  np.savez(temporary, rounds=rounds, relations=relations)
  os.replace(temporary, path)
