"""The studies' data sets, and Table I: how large their clients are."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import study_reports
from study_setting import Setting

from tffpers import datasets

_PARTS = ('mnist', 'pmnist', 'femnist', 'fashion_mnist', 'digits', 'permuted_digits')
NUM_CLASSES = {**dict.fromkeys(_PARTS, 10), 'har': 6, 'vsn': 2, 'watch': 7}
Pair = tuple[datasets.FederatedDataset, datasets.FederatedDataset]


def load(name: str, data_dir: str | None = None, *, num_clients: int, seed: int) -> Pair:
  """Train and test data of a data set of `NUM_CLASSES`.

  Args:
    name: Its name.
    data_dir: Folder of its own files, where it needs them.
    num_clients: Clients K, for images; sensors have clients of their own.
    seed: Seed of parts, permutations and splits.

  Raises:
    FileNotFoundError: The data are not there.
  """
  parts = {'num_clients': num_clients, 'seed': seed}
  if name.endswith('digits'):
    return datasets.load_digits(permuted=name != 'digits', **parts)
  if data_dir is None and name in ('femnist', 'vsn'):
    raise FileNotFoundError(f'{name} needs its published files in --data_dir')
  loader = getattr(datasets, f'load_{name}')
  if name in _PARTS:
    return loader(data_dir, **parts)
  pair = loader(data_dir, seed=seed)
  return datasets.standardize(*pair)


def statistics(setting: Setting, data_dir: str | None, num_clients: int) -> None:
  """Table I: sizes of the clients of every data set that is there."""
  loaders = {
    name: functools.partial(load, name, num_clients=num_clients, seed=setting.seed)
    for name in NUM_CLASSES
  }
  loaders['shakespeare'] = datasets.load_shakespeare
  found, rows = present(loaders, data_dir)
  note = (
    'Table I: number of clients, and mean, standard deviation (divisor K), minimum and maximum of '
    f'their numbers of training and test examples. Images are in {num_clients} parts; Shakespeare '
    'in sequences. Nothing is trained: of what follows, data set, rounds and rates do not matter.'
  )
  study_reports.write_table(setting.folder, 'statistics', rows, setting.caption(note))
  lines = {name: _sizes(train) for name, (train, _) in found.items()}
  study_reports.draw(
    setting.folder,
    'statistics',
    {'training examples of a client': lines},
    setting.caption(note),
    xlabel='share of clients, by size',
  )


def present(
  loaders: Mapping[str, Callable[..., Pair]], data_dir: str | None
) -> tuple[dict[str, Pair], list[dict[str, Any]]]:
  """The data sets that are there, and one row for each one, there or not."""
  found: dict[str, Pair] = {}
  rows: list[dict[str, Any]] = []
  for name, loader in loaders.items():
    try:
      found[name] = _anywhere(loader, data_dir)
    except FileNotFoundError as error:
      rows.append({'dataset': name, 'absent': str(error).partition('. ')[0]})
    else:
      rows.append({'dataset': name, **datasets.dataset_statistics(*found[name])})
  return found, rows


def _anywhere(loader: Callable[..., Pair], data_dir: str | None) -> Pair:
  """From the folder, or else from an installed package."""
  try:
    return loader(data_dir=data_dir)
  except FileNotFoundError as error:
    try:
      return loader(data_dir=None)
    except FileNotFoundError:
      raise error from None


def _sizes(train: datasets.FederatedDataset) -> tuple[np.ndarray, np.ndarray]:
  sizes = np.sort([train.num_examples(key) for key in train.client_ids])
  return np.linspace(0, 1, len(sizes)), sizes
