"""Exercises recorded by a smartwatch: sensor data of natural clients from a package."""

import importlib.util
import os
import pathlib
from typing import Any

import numpy as np

from tffpers.datasets.federated_dataset import FederatedDataset

_GET = (
  '`pip install --no-deps seglearn==1.2.5` (found without data_dir), or put its file '
  'watch_dataset.npy there.'
)
_QUANTILES = (0.25, 0.5, 0.75)


def load_watch(
  data_dir: str | os.PathLike[str] | None = None, *, window: int = 100, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Seven shoulder exercises by features of a watch's sensors; ten wearers are clients.

  Stands in for data sets of sensors, such as HAR, whose files no package holds; it is
  not one of those the papers use. Each recording of acceleration and rotation, six
  channels at 50 Hz, is cut into windows without overlap, so no sample is in both train
  and test; a rest shorter than a window is left out. Each wearer's windows are split,
  75 % for training. Features are raw; `standardize` brings them to one scale.

  Args:
    data_dir: Folder with `watch_dataset.npy`, or `None` for the one in the installed
      package `seglearn`. The file is a pickle, which can run code when it is read:
      take it from the package only.
    window: Samples in a window, at least 2; 100 are two seconds.
    seed: Non-negative seed of the split.

  Returns:
    `(train, test)`, both with all wearers in increasing order, ids their numbers; `x`
    float32 [n, 48]: for each statistic (mean, standard deviation, minimum, maximum,
    quartiles, mean absolute difference from one sample to the next) the six channels;
    `y` int32 [n], the exercise.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If an argument is out of range or no recording is as long as a window.

  Source: Burns et al., arXiv 1802.01489.
  """
  if window < 2:
    raise ValueError(f'window must be at least 2. Received: window={window}')
  path = _package_file() if data_dir is None else pathlib.Path(data_dir) / 'watch_dataset.npy'
  if not path.is_file():
    raise FileNotFoundError(f'No {path.name} in {path.parent}. {_GET}')
  x, y, wearers = _examples(np.load(path, allow_pickle=True).item(), window)
  order = np.argsort(wearers, kind='stable')
  data = FederatedDataset.from_grouped(wearers[order], x[order], y[order])
  train, test = data.split(0.75, 0.25, seed=seed)
  return train, test


def _package_file() -> pathlib.Path:
  # Found, not imported: the package needs versions of others that may not be there.
  spec = importlib.util.find_spec('seglearn')
  if spec is None or not spec.submodule_search_locations:
    raise FileNotFoundError(f'No data_dir was given and no package `seglearn` is installed. {_GET}')
  return pathlib.Path(spec.submodule_search_locations[0]) / 'data' / 'watch_dataset.npy'


def _examples(content: dict[str, Any], window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  features = [_features(np.asarray(recording), window) for recording in content['X']]
  counts = [len(part) for part in features]
  if not sum(counts):
    raise ValueError(f'No recording is as long as a window. Received: window={window}')
  y, wearers = (np.repeat(np.asarray(content[name]), counts) for name in ('y', 'subject'))
  return np.concatenate(features), y.astype(np.int32), wearers.astype(np.int64)


def _features(recording: np.ndarray, window: int) -> np.ndarray:
  """Statistics of every whole window of a recording [samples, channels]."""
  count = len(recording) // window
  windows = recording[: count * window].reshape(count, window, recording.shape[1])
  statistics = [
    windows.mean(axis=1),
    windows.std(axis=1),
    windows.min(axis=1),
    windows.max(axis=1),
    *np.quantile(windows, _QUANTILES, axis=1),
    np.abs(np.diff(windows, axis=1)).mean(axis=1),
  ]
  return np.concatenate(statistics, axis=1).astype(np.float32)
