"""Vehicle sensor network: one client for each sensor beside the road."""

import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np

from tffpers.datasets import _table
from tffpers.datasets.federated_dataset import FederatedDataset

_Clients = dict[str, tuple[np.ndarray, np.ndarray]]
_GET = (
  'Put there the folder `events/` of the collection SensIT Vehicle, or the `vehicle.mat` that '
  'comes with Smith et al., Federated Multi-Task Learning (arXiv 1705.10467).'
)
_FEATURES = 50


def load_vsn(
  data_dir: str | os.PathLike[str], *, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Two kinds of vehicle by 50 acoustic and 50 seismic features; 23 sensors are clients.

  Each sensor's rows are split, 75 % for training. Features are as published, on scales
  of their own; `standardize` brings them to one.

  Args:
    data_dir: Folder with `events/runs/<run>/s<number>/*feat*`, an acoustic and a
      seismic text file for each run and sensor, or with `vehicle.mat`, whose cells `X`
      and `Y` have an entry for each sensor; the events come first.
    seed: Non-negative seed of the split.

  Returns:
    `(train, test)`, both with all sensors; ids are `'s1'`, … by number from events,
    `'1'`, … by position from `vehicle.mat`. `x` is float32 [n, 100], acoustic before
    seismic, `y` int32 [n]: 1 for runs of an AAV (or +1), 0 for the others (or −1).

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If `seed` is negative or a file is damaged.

  Sources: Duarte and Hu, J. Parallel Distrib. Comput. 64 (2004); setting of Corinzia et
  al., arXiv 1906.06268.
  """
  folder = pathlib.Path(data_dir)
  if (folder / 'events' / 'runs').is_dir():
    clients = _read_events(folder / 'events' / 'runs')
  elif (folder / 'vehicle.mat').is_file():
    clients = _read_mat(folder / 'vehicle.mat')
  else:
    raise FileNotFoundError(f'No events/runs/ nor vehicle.mat in {folder}. {_GET}')
  train, test = FederatedDataset.from_arrays(clients).split(0.75, 0.25, seed=seed)
  return train, test


def _read_events(runs: pathlib.Path) -> _Clients:
  pieces: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
  for run, sensor, files in _recordings(runs):
    pieces.setdefault(sensor, []).append(_read_recording(run, sensor, files))
  if not pieces:
    raise FileNotFoundError(f'No <run>/s<number>/*feat* in {runs}. {_GET}')
  clients = {}
  for sensor in sorted(pieces, key=lambda name: int(name[1:])):
    x, y = zip(*pieces[sensor], strict=True)
    clients[sensor] = (np.concatenate(x), np.concatenate(y))
  return clients


def _recordings(runs: pathlib.Path) -> Iterator[tuple[str, str, list[pathlib.Path]]]:
  """Run, sensor and feature files, in order of names; sensors that recorded nothing are skipped."""
  for folder in sorted(runs.glob('*/s*')):
    files = sorted(file for file in folder.glob('*feat*') if file.is_file())
    if re.fullmatch(r's\d+', folder.name) and files:
      yield folder.parent.name, folder.name, files


def _read_recording(
  run: str, sensor: str, files: list[pathlib.Path]
) -> tuple[np.ndarray, np.ndarray]:
  tables = [_table.read(file, _FEATURES, or_more=True) for file in files]
  if len(tables) != 2 or len(tables[0]) != len(tables[1]):
    rows = {file.name: len(table) for file, table in zip(files, tables, strict=True)}
    raise ValueError(
      'A recording needs two feature files of the same number of rows. '
      f'Received: run {run!r}, sensor {sensor!r}, rows by file {rows}'
    )
  x = np.concatenate(tables, axis=1)
  return x, np.full([len(x)], 'aav' in run.lower(), np.int32)


def _read_mat(path: pathlib.Path) -> _Clients:
  from scipy import io  # Only this layout needs it.

  content = io.loadmat(path)
  if missing := {'X', 'Y'} - content.keys():
    raise ValueError(f'Expected cells X and Y. Received: {path} without {sorted(missing)}')
  features, labels = content['X'].ravel(), content['Y'].ravel()
  if len(features) != len(labels):
    raise ValueError(
      f'X and Y must have as many cells. Received: {path} with {len(features)} and {len(labels)}'
    )
  return {
    str(number): _cell(number, x, np.asarray(y).ravel())
    for number, (x, y) in enumerate(zip(features, labels, strict=True), start=1)
  }


def _cell(number: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  # Labels come as a row in some copies of the file and as a column in others.
  if x.shape != (len(y), 2 * _FEATURES):
    raise ValueError(
      f'X must be [n, {2 * _FEATURES}] with n labels. '
      f'Received: client {str(number)!r}, X {x.shape} and {len(y)} labels'
    )
  if not np.isin(y, [-1, 1]).all():
    raise ValueError(
      f'Labels must be -1 or 1. Received: client {str(number)!r}, labels {np.unique(y)[:5]}'
    )
  return x.astype(np.float32), (y > 0).astype(np.int32)
