"""Checks, once per run, that the data are what the process takes."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow_federated as tff

from tffpers import process as process_lib
from tffpers.simulation import codec

_FIELDS = ('train', 'test', 'validation')


class Dataset(Protocol):
  """What a run needs of `tffpers.datasets.FederatedDataset`."""

  @property
  def client_ids(self) -> list[str]: ...

  @property
  def element_spec(self) -> tuple[Any, Any]: ...

  def num_examples(self, client_id: str) -> int: ...

  def load(self, client_id: str) -> tuple[Any, np.ndarray]: ...


def data_type(computation: tff.Computation) -> tff.Type:
  """Type of one client's data, the third argument of a process's computations."""
  return codec.member(computation.type_signature.parameter[2])


def check_data(process: process_lib.PersonalizedProcess, datasets: Mapping[str, Dataset]) -> None:
  """Compares the data sets with the process's types and hyper-parameters.

  Args:
    process: The algorithm.
    datasets: `train` and, where given, `test` and `validation`.

  Raises:
    TypeError: A data set's fields, dtypes or shapes are not the process's.
    ValueError: The process needs a data set or a client's data that are not there, or
      was built for other clients.
  """
  for computation in (process.next, process.personalize, process.evaluate):
    if computation is not None:
      for name, child in codec.named_children(data_type(computation)):
        if name != 'seed':
          _check_field(name, child, datasets)
  for computation in (process.next, process.personalize):
    if computation is not None:
      _check_complete(data_type(computation), datasets)
  _check_hyper_parameters(process.hyper_parameters, datasets['train'])


def check_classes(name: str, client_id: str, y: np.ndarray, num_classes: int) -> None:
  """Refuses targets below 0 or from `num_classes` on: a GPU would turn them into NaN.

  Raises:
    ValueError: With client and value.
  """
  wrong = y[(y < 0) | (y >= num_classes)]
  if wrong.size:
    raise ValueError(
      f'Targets must be classes from 0 to {num_classes - 1}. '
      f'Received: {name} data of client {client_id!r}, field y, value {wrong.flat[0]}'
    )


def _check_field(name: str, tff_type: tff.Type, datasets: Mapping[str, Dataset]) -> None:
  if name not in _FIELDS:
    raise TypeError(
      f'Client data may have the fields {_FIELDS} and seed. Received: {name} of {tff_type}'
    )
  # Validation data are evaluated as test data are.
  for used in ('test', 'validation') if name == 'test' else (name,):
    if used in datasets:
      _check_spec(used, datasets[used], tff_type)


def _check_spec(name: str, dataset: Dataset, tff_type: tff.Type) -> None:
  x, y = dataset.element_spec
  specs = {f'x/{key}': spec for key, spec in x.items()} if isinstance(x, dict) else {'x': x}
  received: dict[str, tuple[str, codec.Shape]] = {
    path: (spec.dtype.name, (None, *spec.shape)) for path, spec in {**specs, 'y': y}.items()
  }
  expected = {leaf.path: leaf for leaf in codec.leaves(tff_type)}
  for path in [*expected, *received]:
    leaf, found = expected.get(path), received.get(path)
    if leaf is None or found is None or not leaf.accepts(*found):
      wanted = 'no such field' if leaf is None else f'{leaf.dtype.name} of shape {leaf.shape}'
      got = 'no such field' if found is None else '{} of shape {}'.format(*found)
      raise TypeError(
        f'{name}_data do not fit the process. Expected: field {path}: {wanted}. '
        f'Received: {got} in client {dataset.client_ids[0]!r} and all others'
      )


def _check_complete(tff_type: tff.Type, datasets: Mapping[str, Dataset]) -> None:
  for name, _ in codec.named_children(tff_type):
    if name == 'seed':
      continue
    if name not in datasets:
      raise ValueError(f'The process needs {name}_data. Received: {name}_data=None')
    known = set(datasets[name].client_ids)
    for key in datasets['train'].client_ids:
      if key not in known:
        raise ValueError(
          f'The process needs {name} data of every training client, perhaps with no rows. '
          f'Received: client {key!r} is not in {name}_data'
        )


def _check_hyper_parameters(values: Mapping[str, Any], train: Dataset) -> None:
  actual = {key: train.num_examples(key) for key in train.client_ids}
  sizes = values.get('client_num_examples')
  if sizes is not None:
    # In order: a client's index is its place in the training data.
    named = isinstance(sizes, Mapping)
    given = list(sizes.items() if named else sizes)
    expected: list[Any] = list(actual.items()) if named else list(actual.values())
    if given != expected:
      raise ValueError(
        'The process was built for other clients: client_num_examples must be the numbers of '
        f'training examples in the order of train_data.client_ids, {expected[:5]} and so on. '
        f'Received: client_num_examples={given[:5]} and so on'
      )
  if values.get('num_clients', len(actual)) != len(actual):
    raise ValueError(
      f'The process was built for another number of clients. Expected: {len(actual)}. '
      f'Received: num_clients={values["num_clients"]}'
    )
