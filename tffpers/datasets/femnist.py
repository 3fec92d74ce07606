"""FEMNIST: handwritten characters, one client for each writer."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from tffpers.datasets import _leaf, _tff_sqlite
from tffpers.datasets.federated_dataset import FederatedDataset

_Clients = dict[str, tuple[np.ndarray, np.ndarray]]
_GET = (
  "Either will do: TFF's file, written by "
  '`tff.simulation.datasets.emnist.load_data(cache_dir=data_dir)`, or the JSON files that '
  'data/femnist in the repository TalwalkarLab/leaf makes.'
)


def load_femnist(
  data_dir: str | os.PathLike[str],
  *,
  num_clients: int = 100,
  digits_only: bool = True,
  seed: int = 0,
) -> tuple[FederatedDataset, FederatedDataset]:
  """Characters by writer, `num_clients` writers drawn at random.

  Writers are drawn among those with training data. Train and test are as
  distributed: test has the drawn writers as far as they have test data, and every
  writer whom the source names in test only (LEAF's division by user).

  TFF's and LEAF's images are upright, black on white with white as 1; here they are
  white on black as MNIST's are: ink 1, background 0, first axis from top to bottom.

  Args:
    data_dir: Folder with `emnist_all.sqlite` (or `.sqlite.lzma`) of TFF, or with
      LEAF's JSON files (in `train/` and `test/`, or by name); TFF's first.
    num_clients: Number of writers in train.
    digits_only: Whether only digits are kept, labels 0–9; otherwise also letters,
      upper case 10–35 and lower case 36–61.
    seed: Non-negative seed of the draw of writers.

  Returns:
    `(train, test)` with `x` float32 [n, 28, 28, 1] in [0, 1] and `y` int32 [n]; all
    n > 0. Ids are the source's.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If an argument is out of range, the files contradict themselves, there
      are too few writers, or the drawn ones have no test data.

  Sources: Caldas et al., arXiv 1812.01097; setting of Corinzia et al., arXiv 1906.06268.
  """
  if num_clients < 1 or seed < 0:
    raise ValueError(
      'num_clients must be at least 1 and seed not negative. '
      f'Received: num_clients={num_clients}, seed={seed}'
    )
  folder = pathlib.Path(data_dir)
  databases = [folder / name for name in ('emnist_all.sqlite', 'emnist_all.sqlite.lzma')]
  database = next((file for file in databases if file.is_file()), None)
  if database:
    return _load_tff(database, num_clients, digits_only, seed)
  files = [_leaf.find(folder, split, 'femnist') for split in ('train', 'test')]
  if not all(files):
    raise FileNotFoundError(f'No emnist_all.sqlite nor LEAF JSON in {folder}. {_GET}')
  return _load_leaf(files, num_clients, digits_only, seed)


def _load_tff(
  file: pathlib.Path, num_clients: int, digits_only: bool, seed: int
) -> tuple[FederatedDataset, FederatedDataset]:
  prefix, largest = ('digits_only', 9) if digits_only else ('all', 61)
  parts = [_tff_sqlite.read(file, f'{prefix}_{split}') for split in ('train', 'test')]
  sizes = [{key: len(part[key]) for key in part} for part in parts]
  drawn = _draw(sizes[0], sizes[1], num_clients, seed)
  train, test = (
    FederatedDataset.from_arrays({key: _parse(key, part[key], largest) for key in ids})
    for part, ids in zip(parts, drawn, strict=True)
  )
  return train, test


def _load_leaf(
  files: list[list[pathlib.Path]], num_clients: int, digits_only: bool, seed: int
) -> tuple[FederatedDataset, FederatedDataset]:
  parts = [_read_leaf(shards, digits_only) for shards in files]
  sizes = [{key: len(part[key][1]) for key in part} for part in parts]
  drawn = _draw(sizes[0], sizes[1], num_clients, seed)
  train, test = (
    FederatedDataset.from_arrays({key: part[key] for key in ids})
    for part, ids in zip(parts, drawn, strict=True)
  )
  return train, test


def _draw(
  train: dict[str, int], test: dict[str, int], num_clients: int, seed: int
) -> tuple[list[str], list[str]]:
  """Ids of the writers in train and in test; the draw does not depend on their order.

  Args:
    train: Number of examples of every writer whom the training data name.
    test: The same of the test data.
    num_clients: Number of ids in train.
    seed: Non-negative.
  """
  writers = sorted(key for key, size in train.items() if size)
  if num_clients > len(writers):
    raise ValueError(
      f'Only {len(writers)} writers have training data. Received: num_clients={num_clients}'
    )
  drawn = np.random.default_rng(seed).choice(len(writers), num_clients, replace=False)
  chosen = [writers[k] for k in np.sort(drawn)]
  unseen = sorted(key for key, size in test.items() if size and key not in train)
  test_ids = [key for key in chosen if test.get(key)] + unseen
  if not test_ids:
    raise ValueError(f'None of the drawn writers has test data. Received: {chosen[:3]} …')
  return chosen, test_ids


def _parse(key: str, blobs: list[bytes], largest: int) -> tuple[np.ndarray, np.ndarray]:
  features = tf.io.parse_example(
    blobs,
    {
      'pixels': tf.io.FixedLenFeature([28, 28], tf.float32),
      'label': tf.io.FixedLenFeature([], tf.int64),
    },
  )
  return _ink(key, features['pixels'].numpy(), features['label'].numpy(), largest)


def _read_leaf(files: list[pathlib.Path], digits_only: bool) -> _Clients:
  """Shard by shard: as Python numbers, all of FEMNIST would take 20 GB."""
  clients: _Clients = {}
  for file in files:
    for user, data in _leaf.read([file]).items():
      if user in clients:
        raise ValueError(
          f'A user must occur in one shard only. Received: {user!r} again in {file.name}'
        )
      if lengths := {len(image) for image in data['x']} - {784}:
        raise ValueError(
          'An image has 784 pixels. '
          f'Received: client {user!r} in {file.name}, {min(lengths)} pixels'
        )
      y = np.array(data['y'], np.int64)
      kept = np.flatnonzero(y <= 9) if digits_only else np.arange(len(y))
      x = np.array([data['x'][row] for row in kept], np.float32).reshape(-1, 28, 28)
      clients[user] = _ink(user, x, y[kept], 61)
  return clients


def _ink(
  key: str, pixels: np.ndarray, labels: np.ndarray, largest: int
) -> tuple[np.ndarray, np.ndarray]:
  if labels.size and (labels.min() < 0 or labels.max() > largest):
    raise ValueError(
      f'Labels must be in [0, {largest}]. '
      f'Received: client {key!r}, labels in [{labels.min()}, {labels.max()}]'
    )
  if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):
    raise ValueError(
      'Pixels must be in [0, 1]. '
      f'Received: client {key!r}, pixels in [{pixels.min()}, {pixels.max()}]'
    )
  return (1 - pixels)[..., np.newaxis], labels.astype(np.int32)
