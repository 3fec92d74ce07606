"""Human activity recognition with smartphones: one client for each subject."""

import os
import pathlib

import numpy as np

from tffpers.datasets import _table
from tffpers.datasets.federated_dataset import FederatedDataset

_STAND_IN = 'har561_from_hapt.npz'
_GET = (
  "Unpack 'UCI HAR Dataset.zip' of "
  'https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones there. '
  '`load_watch` loads sensor data of wearers from a package instead.'
)


def load_har(
  data_dir: str | os.PathLike[str] | None = None, *, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Six activities by 561 features of the sensors; every subject, 30 in all, is a client.

  The published training and test sets hold different subjects. They are merged, and
  each subject's rows are split anew, 75 % for training. Features are as published,
  scaled to [−1, 1] over all subjects. Windows overlap by half, so neighbours, of which
  one may train and the other test, have signals in common.

  Args:
    data_dir: Folder with `UCI HAR Dataset/`, or that folder; or one with
      `har561_from_hapt.npz`, a stand-in with the features recomputed from the same
      subjects' recordings: arrays `X` [n, 561], `y` 1–6 and `subject`.
    seed: Non-negative seed of the split.

  Returns:
    `(train, test)`, both with all subjects in increasing order, ids their numbers;
    `x` float32 [n, 561] and `y` int32 [n] in [0, 5]: walking, walking upstairs,
    walking downstairs, sitting, standing, lying.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If `seed` is negative or a file is damaged.

  Sources: Anguita et al., ESANN 2013; setting of Corinzia et al., arXiv 1906.06268.
  """
  x, y, subjects = _read(data_dir)
  order = np.argsort(subjects, kind='stable')
  data = FederatedDataset.from_grouped(subjects[order], x[order], y[order])
  train, test = data.split(0.75, 0.25, seed=seed)
  return train, test


def _read(data_dir: str | os.PathLike[str] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  if data_dir is None:
    raise FileNotFoundError(f'No data_dir was given, and no package holds these data. {_GET}')
  folder = pathlib.Path(data_dir)
  for root in (folder / 'UCI HAR Dataset', folder):
    if (root / 'train' / 'X_train.txt').is_file():
      parts = [_read_split(root, split) for split in ('train', 'test')]
      x, y, subjects = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
      return _checked(root, x, y, subjects)
  if (folder / _STAND_IN).is_file():
    with np.load(folder / _STAND_IN, allow_pickle=False) as archive:
      arrays = archive['X'].astype(np.float32), archive['y'], archive['subject']
    return _checked(folder / _STAND_IN, *arrays)
  raise FileNotFoundError(
    f"No 'UCI HAR Dataset/train/X_train.txt' nor {_STAND_IN} in {folder}. {_GET}"
  )


def _read_split(root: pathlib.Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  folder = root / split
  x = _table.read(folder / f'X_{split}.txt', 561)
  y, subjects = (_table.read(folder / f'{name}_{split}.txt', 1)[:, 0] for name in ('y', 'subject'))
  if not len(x) == len(y) == len(subjects):
    raise ValueError(
      'X, y and subject must have the same number of rows. '
      f'Received: {len(x)}, {len(y)} and {len(subjects)} in {folder}'
    )
  return x, y, subjects


def _checked(
  path: pathlib.Path, x: np.ndarray, y: np.ndarray, subjects: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Labels 1–6 as int32 0–5, subjects as int64."""
  wrong = np.flatnonzero(~np.isin(y, np.arange(1, 7)))
  if wrong.size:
    raise ValueError(
      'Labels must be 1 to 6; the later release HAPT has 12 activities. '
      f'Received: {path}, subject {subjects[wrong[0]]:g}, label {y[wrong[0]]:g}'
    )
  numbers = subjects.astype(np.int64)
  if (numbers != subjects).any():
    raise ValueError(f'Subjects must be integers. Received: {path}, {set(subjects.tolist())}')
  return x, y.astype(np.int32) - 1, numbers
