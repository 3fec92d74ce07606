"""What the studies of adaptive expert models are given, and how they run a method."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import experts_data
import experts_methods
import numpy as np

from tffpers import process, simulation

# What a run does not depend on, of the numbers that studies vary.
_UNUSED = {'fed_avg': ('num_models', 'epsilon'), 'ifca': ('epsilon',)}


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
  """One data set under one preset.

  Attributes:
    folder: Where tables, figures and `runs/` go.
    values: Hyper-parameters of the methods.
    deal: Gives the clients' data.
    fraction: p of the studies that do not vary it; None where there is none.
    num_classes: Number of classes.
    client_fraction: C.
    methods: Keys of `experts_methods.METHODS` that are compared.
    seeds: Seeds of the partition and of the run.
    evaluate_every: Rounds between evaluations.
    description: What holds for all tables and figures, and the command.
    dataset: Name for reports.
    progress: Whether runs show a progress bar.
  """

  folder: pathlib.Path
  values: experts_methods.Values
  deal: experts_data.Deal
  fraction: float | None
  num_classes: int
  client_fraction: float
  methods: Sequence[str]
  seeds: Sequence[int]
  evaluate_every: int
  description: str
  dataset: str
  progress: bool = True

  def caption(self, note: str) -> str:
    """One line that says what a table or figure was made from."""
    return f'{note} {self.description}'

  @functools.cache  # noqa: B019 - one setting lives as long as the script
  def run(
    self,
    run: str,
    seed: int,
    *,
    fraction: float | None = None,
    num_models: int | None = None,
    epsilon: float | None = None,
    initial_models: str | None = None,
    data_seed: int | None = None,
  ) -> simulation.Result:
    """Runs a method to its end; a finished run is not repeated, nor traced again here.

    Args:
      run: A key of `experts_methods.builders`.
      seed: Of the run.
      fraction: p; default the setting's.
      num_models: J; default the setting's.
      epsilon: ε of the run `experts`; default the setting's.
      initial_models: Default the setting's.
      data_seed: Of the data; default the run's.
    """
    fraction = self.fraction if fraction is None else fraction
    given = {'num_models': num_models, 'epsilon': epsilon, 'initial_models': initial_models}
    changed = {name: value for name, value in given.items() if value is not None}
    values = dataclasses.replace(self.values, **changed)
    data_seed = seed if data_seed is None else data_seed
    data = self.deal(fraction, data_seed)
    name = self._name(run, seed, values, fraction, data_seed)
    print(name, flush=True)
    return self.simulate(
      run,
      values,
      data,
      seed,
      test_data=data.test,
      evaluate_every=self.evaluate_every,
      output_dir=self.folder / 'runs' / name,
      resume=True,
      client_history=[] if run == 'fed_avg' else ['picked'],
    )

  def simulate(
    self,
    run: str,
    values: experts_methods.Values,
    data: experts_data.Clients,
    seed: int,
    **options: Any,
  ) -> simulation.Result:
    """Runs a method on clients' data with the setting's share of clients.

    Args:
      run: A key of `experts_methods.builders`.
      values: Hyper-parameters.
      data: The clients' data.
      seed: Of the run.
      **options: More arguments of `simulation.run`, the test data among them.
    """
    return simulation.run(
      _built(run, data.train.element_spec, self.num_classes, values),
      data.train,
      validation_data=data.validation,
      rounds=values.rounds,
      clients_per_round=simulation.clients_of_fraction(self.client_fraction, len(data.train)),
      seed=seed,
      progress=self.progress,
      method=run,
      dataset=self.dataset,
      **options,
    )

  def accuracies(self, method: str, seed: int, **changes: float) -> tuple[np.ndarray, np.ndarray]:
    """Test accuracy of every client at the end of a run, and its number of test examples.

    Args:
      method: A key of `experts_methods.METHODS`.
      seed: Of data and run.
      **changes: As for `run`.
    """
    found = experts_methods.METHODS[method]
    # A run is shared by all values of what it does not depend on.
    used = {key: value for key, value in changes.items() if key not in _UNUSED.get(found.run, ())}
    rows = [row for row in self.run(found.run, seed, **used).clients.values() if row['num_test']]
    return (
      np.array([row[found.column] for row in rows]),
      np.array([row['num_test'] for row in rows]),
    )

  def _name(
    self,
    run: str,
    seed: int,
    values: experts_methods.Values,
    fraction: float | None,
    data_seed: int,
  ) -> str:
    parts = [run]
    if run == 'experts':
      parts.append(f'e{values.epsilon:g}')
    if run != 'fed_avg':
      parts += [f'J{values.num_models}', values.initial_models]
    if fraction is not None:
      parts.append(f'p{fraction:g}')
    parts.append(f'seed{seed}')
    if data_seed != seed:
      parts.append(f'data{data_seed}')
    return '_'.join(parts)


@functools.lru_cache(maxsize=8)
def _built(
  run: str, element_spec: Any, num_classes: int, values: experts_methods.Values
) -> process.PersonalizedProcess:
  """Tracing takes longer than a small run: all seeds and fractions share a process."""
  return experts_methods.builders(element_spec, num_classes, values)[run]()
