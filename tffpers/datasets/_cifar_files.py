"""Reads the files of CIFAR-10 and CIFAR-100: Python's pickles and binary records."""

import pathlib
from typing import NamedTuple

import numpy as np

from tffpers.datasets import _safe_pickle

_PIXELS = 3 * 32 * 32
ImagesAndLabels = tuple[np.ndarray, np.ndarray]


class Layout(NamedTuple):
  """How one of the data sets is published, and which of its labels are wanted.

  Attributes:
    name: What TFDS and TFF call it.
    pickles: Folder of the pickles.
    records: Folder of the binary records.
    train: Files of the training set, there and, with `.bin`, here.
    test: Files of the test set.
    label_bytes: Labels before the pixels of a binary record.
    key: The wanted labels' key in a pickle.
    byte: Their place in a binary record.
    feature: What TFDS and TFF call them.
    num_classes: They are in [0, num_classes − 1].
  """

  name: str
  pickles: str
  records: str
  train: tuple[str, ...]
  test: tuple[str, ...]
  label_bytes: int
  key: str
  byte: int
  feature: str
  num_classes: int


def read_pickles(layout: Layout, folder: pathlib.Path, split: str) -> ImagesAndLabels:
  """Images and labels of `train` or `test`.

  Returns:
    `(images, labels)`, uint8 [n, 32, 32, 3] and int64 [n].

  Raises:
    FileNotFoundError: If a file is not there; names it.
    ValueError: If a file is damaged, or runs code; names it.
  """
  return _joined([_read_pickle(path, layout) for path in _paths(layout, folder, split, '')])


def read_records(layout: Layout, folder: pathlib.Path, split: str) -> ImagesAndLabels:
  """As `read_pickles`, from binary records."""
  return _joined([_read_records(path, layout) for path in _paths(layout, folder, split, '.bin')])


def check_labels(where: object, labels: np.ndarray, num_classes: int) -> None:
  """Raises `ValueError`, naming `where`, if a label is not in [0, num_classes − 1]."""
  if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
    raise ValueError(
      f'Labels must be in [0, {num_classes - 1}]. '
      f'Received: {where} with labels in [{labels.min()}, {labels.max()}]'
    )


def _paths(layout: Layout, folder: pathlib.Path, split: str, suffix: str) -> list[pathlib.Path]:
  names = [f'{name}{suffix}' for name in getattr(layout, split)]
  for name in names:
    if not (folder / name).is_file():
      raise FileNotFoundError(f'The {split} images are in {names}. No {name} in {folder}')
  return [folder / name for name in names]


def _joined(parts: list[ImagesAndLabels]) -> ImagesAndLabels:
  pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
  # A row has all red pixels, then the green and the blue ones.
  planes = pixels.reshape(-1, 3, 32, 32)
  return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _read_pickle(path: pathlib.Path, layout: Layout) -> ImagesAndLabels:
  content = _safe_pickle.load(path)
  if not isinstance(content, dict):
    raise ValueError(f'Expected a dict. Received: {path} with {type(content).__name__}')
  named = {key.decode() if isinstance(key, bytes) else str(key): content[key] for key in content}
  if missing := {'data', layout.key} - named.keys():
    raise ValueError(f'The dict needs {sorted(missing)}. Received: {path} with {list(named)}')
  pixels, labels = np.asarray(named['data']), np.asarray(named[layout.key])
  if (
    pixels.dtype != np.uint8
    or labels.dtype.kind not in 'iu'
    or labels.ndim != 1
    or not labels.size
    or pixels.shape != (labels.size, _PIXELS)
  ):
    raise ValueError(
      f'Expected bytes [n, {_PIXELS}] and n integer labels. Received: {path} '
      f'with {pixels.dtype} {pixels.shape} and {labels.dtype} {labels.shape}'
    )
  check_labels(path, labels, layout.num_classes)
  return pixels, labels.astype(np.int64)


def _read_records(path: pathlib.Path, layout: Layout) -> ImagesAndLabels:
  content = np.frombuffer(path.read_bytes(), np.uint8)
  size = layout.label_bytes + _PIXELS
  if not content.size or content.size % size:
    raise ValueError(
      f'Expected records of {size} bytes. Received: {path} with {content.size} bytes'
    )
  records = content.reshape(-1, size)
  labels = records[:, layout.byte].astype(np.int64)
  check_labels(path, labels, layout.num_classes)
  return records[:, layout.label_bytes :], labels
