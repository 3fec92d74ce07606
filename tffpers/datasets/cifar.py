"""CIFAR-10 and CIFAR-100: whole, for a partitioner, and in TFF's own division."""

import functools
import os
import pathlib
from collections.abc import Callable

import numpy as np

from tffpers.datasets import _cifar_examples, _cifar_files
from tffpers.datasets._cifar_files import ImagesAndLabels, Layout
from tffpers.datasets.arrays import Arrays, as_floats
from tffpers.datasets.federated_dataset import FederatedDataset

_CIFAR10 = Layout(
  name='cifar10',
  pickles='cifar-10-batches-py',
  records='cifar-10-batches-bin',
  train=tuple(f'data_batch_{k}' for k in range(1, 6)),
  test=('test_batch',),
  label_bytes=1,
  key='labels',
  byte=0,
  feature='label',
  num_classes=10,
)
_FINE = Layout(
  name='cifar100',
  pickles='cifar-100-python',
  records='cifar-100-binary',
  train=('train',),
  test=('test',),
  label_bytes=2,
  key='fine_labels',
  byte=1,
  feature='label',
  num_classes=100,
)
_COARSE = _FINE._replace(key='coarse_labels', byte=0, feature='coarse_label', num_classes=20)
_CIFAR100 = {'fine': _FINE, 'coarse': _COARSE}

_CACHES = ('~/.keras/datasets', '~/tensorflow_datasets', '~/.tff')
_GET = (
  'Unpack an archive of https://www.cs.toronto.edu/~kriz/cifar.html there, Python or binary '
  'version; or give the data_dir into which tensorflow-datasets prepared the data set.'
)
_GET_TFF = 'Write it by `tff.simulation.datasets.cifar100.load_data(cache_dir=data_dir)`.'


def read_cifar10(data_dir: str | os.PathLike[str] | None = None) -> Arrays:
  """CIFAR-10's photographs in ten classes, as published.

  Args:
    data_dir: Folder with `cifar-10-batches-py/` (pickles), `cifar-10-batches-bin/`
      (binary records) or `cifar10/<version>/` (TFDS), the first that is there, or one
      of the first two themselves; `None` for the caches of Keras and TFDS. The three
      give the same rows in the same order.

  Returns:
    Images [n, 32, 32, 3], upright, channels red, green, blue, and the classes.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If a file is damaged, or a pickle holds more than arrays.

  Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
  """
  return _read(_CIFAR10, data_dir)


def read_cifar100(
  data_dir: str | os.PathLike[str] | None = None, *, labels: str = 'fine'
) -> Arrays:
  """CIFAR-100's photographs, as published.

  Args:
    data_dir: As in `read_cifar10`, with `cifar-100-python/`, `cifar-100-binary/` and
      `cifar100/<version>/`. Where none of them is, TFF's `cifar100.sqlite` will do,
      whose rows are in another order; `None` looks for it in TFF's cache also.
    labels: `fine`, one hundred classes, or `coarse`, the twenty groups of five.

  Returns:
    As `read_cifar10`.

  Raises:
    FileNotFoundError: As `read_cifar10`.
    ValueError: As `read_cifar10`, or if `labels` is neither.

  Source: as `read_cifar10`.
  """
  return _read(_layout(labels), data_dir)


def load_cifar100(
  data_dir: str | os.PathLike[str] | None = None, *, labels: str = 'fine'
) -> tuple[FederatedDataset, FederatedDataset]:
  """CIFAR-100 in TFF's division: clients with a mixture of classes of their own each.

  The published training set is divided among the clients of train, 500 of 100 images,
  the test set among 100 other clients. TFF counts both from 0; here ids in test begin
  with `test-`, as a client of test has nothing in common with the one of that number in
  train. So nobody's own model is tested; split train for that.

  Args:
    data_dir: Folder with `cifar100.sqlite` or `cifar100.sqlite.lzma`; `None` for TFF's
      cache of downloads.
    labels: As in `read_cifar100`.

  Returns:
    `(train, test)`; `x` float32 [n, 32, 32, 3] in [0, 1] and `y` int32 [n].

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If the file is damaged, or `labels` is neither.

  Sources: TFF's `tff.simulation.datasets.cifar100`; Reddi et al., arXiv 2003.00295.
  """
  layout = _layout(labels)
  folder = pathlib.Path(_CACHES[-1] if data_dir is None else data_dir).expanduser()
  database = _find_tff(folder)
  if database is None:
    raise FileNotFoundError(f'No cifar100.sqlite nor cifar100.sqlite.lzma in {folder}. {_GET_TFF}')
  train, test = (
    FederatedDataset.from_arrays(
      {
        f'{prefix}{key}': (as_floats(images), y.astype(np.int32))
        for key, (images, y) in _cifar_examples.read_tff(layout, database, split).items()
      }
    )
    for split, prefix in (('train', ''), ('test', 'test-'))
  )
  return train, test


def _layout(labels: str) -> Layout:
  if labels not in _CIFAR100:
    raise ValueError(f'labels must be one of {list(_CIFAR100)}. Received: labels={labels!r}')
  return _CIFAR100[labels]


def _read(layout: Layout, data_dir: str | os.PathLike[str] | None) -> Arrays:
  folders = [
    pathlib.Path(folder).expanduser() for folder in (_CACHES if data_dir is None else (data_dir,))
  ]
  read = next(filter(None, (_reader(layout, folder) for folder in folders)), None)
  if read is None:
    or_tff = f' Or else: {_GET_TFF}' if layout.name == 'cifar100' else ''
    raise FileNotFoundError(
      f'No {layout.pickles}/, {layout.records}/ nor {layout.name}/<version>/ in '
      f'{" or ".join(map(str, folders))}. {_GET}{or_tff}'
    )
  arrays = []
  for split in ('train', 'test'):
    images, y = read(split)
    arrays += [as_floats(images), y.astype(np.int32)]
  return Arrays(*arrays)


def _reader(layout: Layout, folder: pathlib.Path) -> Callable[[str], ImagesAndLabels] | None:
  """What reads a split from the first layout that is in the folder."""
  for name, suffix, read in (
    (layout.pickles, '', _cifar_files.read_pickles),
    (layout.records, '.bin', _cifar_files.read_records),
  ):
    for root in (folder / name, folder):
      if (root / f'{layout.train[0]}{suffix}').is_file():
        return functools.partial(read, layout, root)
  if tfds := _cifar_examples.find_tfds(layout, folder):
    return functools.partial(_cifar_examples.read_tfds, layout, tfds)
  database = _find_tff(folder) if layout.name == 'cifar100' else None
  return functools.partial(_read_all_clients, layout, database) if database else None


def _find_tff(folder: pathlib.Path) -> pathlib.Path | None:
  files = (folder / name for name in ('cifar100.sqlite', 'cifar100.sqlite.lzma'))
  return next((file for file in files if file.is_file()), None)


def _read_all_clients(layout: Layout, database: pathlib.Path, split: str) -> ImagesAndLabels:
  images, y = zip(*_cifar_examples.read_tff(layout, database, split).values(), strict=True)
  return np.concatenate(images), np.concatenate(y)
