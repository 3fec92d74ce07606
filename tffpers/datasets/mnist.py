"""MNIST, permuted MNIST and Fashion-MNIST, whole or in random parts."""

import os
import pathlib

import numpy as np

from tffpers.datasets import _idx, _npz, partition
from tffpers.datasets.arrays import Arrays, as_floats
from tffpers.datasets.federated_dataset import FederatedDataset

_NAMES = ('x_train', 'y_train', 'x_test', 'y_test')
_KERAS_CACHE = pathlib.Path('~/.keras/datasets')
_DEBIAN = pathlib.Path('/usr/share/datasets/fashion-mnist')
_GET_MNIST = (
  'Either will do: mnist.npz, which `tf.keras.datasets.mnist.load_data()` downloads to '
  '~/.keras/datasets, or the four IDX files of http://yann.lecun.com/exdb/mnist, plain or .gz.'
)
_GET_FASHION = (
  'Install the Debian package `dataset-fashion-mnist`, whose files are found without data_dir, '
  'or get the four IDX files of https://github.com/zalandoresearch/fashion-mnist, plain or .gz.'
)


def read_mnist(data_dir: str | os.PathLike[str] | None = None) -> Arrays:
  """MNIST's digits as published, for a partitioner to deal to clients.

  Args:
    data_dir: Folder with `mnist.npz` in Keras' layout, in any order of rows, or with
      the four IDX files, plain or `.gz`; `None` for Keras' cache of downloads.

  Returns:
    Images [n, 28, 28, 1], ink 1, and the digits.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If a file is damaged.
  """
  folder = (_KERAS_CACHE if data_dir is None else pathlib.Path(data_dir)).expanduser()
  if (folder / 'mnist.npz').is_file():
    # tf.keras.datasets would compare the file's hash and refuse one that was packed anew.
    return _arrays(_npz.read(folder / 'mnist.npz', _NAMES, "Keras' layout"))
  return _arrays(_read_idx(folder, 'mnist.npz nor all IDX files', _GET_MNIST))


def read_fashion_mnist(data_dir: str | os.PathLike[str] | None = None) -> Arrays:
  """Fashion-MNIST's articles of clothing, as `read_mnist` gives digits.

  Args:
    data_dir: Folder with the four IDX files, plain or `.gz`; `None` for those of the
      installed Debian package `dataset-fashion-mnist`.

  Returns:
    Images [n, 28, 28, 1], background 0, and which of ten kinds of article each is.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If a file is damaged.

  Source: Xiao et al., arXiv 1708.07747.
  """
  folder = (_DEBIAN if data_dir is None else pathlib.Path(data_dir)).expanduser()
  return _arrays(_read_idx(folder, 'all IDX files', _GET_FASHION))


def load_mnist(
  data_dir: str | os.PathLike[str] | None = None, *, num_clients: int = 100, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """MNIST's digits in random parts; the 100 default clients hold 600 and 100 examples.

  The published training set is divided among the clients' training sets, the test
  set among their test sets; every image is used once.

  Args:
    data_dir: As in `read_mnist`.
    num_clients: Number of parts.
    seed: Non-negative seed of the draw of parts.

  Returns:
    `(train, test)`, each with clients `'0'` … `'num_clients − 1'`; `x` float32
    [n, 28, 28, 1] in [0, 1], ink 1, and `y` int32 [n], the digit.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If an argument is out of range or a file is damaged.

  Source of the setting: Corinzia et al., arXiv 1906.06268.
  """
  return _in_parts(read_mnist(data_dir), num_clients, seed)


def load_pmnist(
  data_dir: str | os.PathLike[str] | None = None, *, num_clients: int = 100, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Permuted MNIST: as `load_mnist`, with one order of the pixels for each client.

  A client's order is a function of seed and client id, the same for its training and
  test images.

  Args:
    data_dir: As in `load_mnist`.
    num_clients: As in `load_mnist`.
    seed: Non-negative seed of the draw of parts and of the orders.

  Returns:
    As `load_mnist`.

  Raises:
    FileNotFoundError: As `load_mnist`.
    ValueError: As `load_mnist`.

  Source of the setting: Corinzia et al., arXiv 1906.06268.
  """
  train, test = load_mnist(data_dir, num_clients=num_clients, seed=seed)
  return partition.permute_pixels(train, seed=seed), partition.permute_pixels(test, seed=seed)


def load_fashion_mnist(
  data_dir: str | os.PathLike[str] | None = None, *, num_clients: int = 100, seed: int = 0
) -> tuple[FederatedDataset, FederatedDataset]:
  """Fashion-MNIST's articles of clothing in random parts, as `load_mnist` makes them.

  Args:
    data_dir: As in `read_fashion_mnist`.
    num_clients: Number of parts.
    seed: Non-negative seed of the draw of parts.

  Returns:
    As `load_mnist`; `y` is one of ten kinds of article.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If an argument is out of range or a file is damaged.

  Source: Xiao et al., arXiv 1708.07747.
  """
  return _in_parts(read_fashion_mnist(data_dir), num_clients, seed)


def _read_idx(folder: pathlib.Path, what: str, how_to_get: str) -> dict[str, np.ndarray]:
  arrays = {}
  for split in ('train', 'test'):
    try:
      arrays[f'x_{split}'], arrays[f'y_{split}'] = _idx.read_split(folder, split)
    except FileNotFoundError as error:
      raise FileNotFoundError(f'No {what} in {folder}: {error} {how_to_get}') from error
  return arrays


def _arrays(source: dict[str, np.ndarray]) -> Arrays:
  result = []
  for split in ('train', 'test'):
    images, labels = source[f'x_{split}'], source[f'y_{split}']
    _check(split, images, labels)
    result += [as_floats(images[..., np.newaxis]), labels.astype(np.int32)]
  return Arrays(*result)


def _in_parts(
  arrays: Arrays, num_clients: int, seed: int
) -> tuple[FederatedDataset, FederatedDataset]:
  train, test = (
    partition.as_clients(x, y, partition.iid(y, num_clients, seed=seed))
    for x, y in ((arrays.x_train, arrays.y_train), (arrays.x_test, arrays.y_test))
  )
  return train, test


def _check(split: str, images: np.ndarray, labels: np.ndarray) -> None:
  if images.shape != (len(labels), 28, 28) or images.dtype != np.uint8 or labels.ndim != 1:
    raise ValueError(
      'Expected bytes [n, 28, 28] and n labels. '
      f'Received: {split} images {images.dtype} {images.shape} and labels {labels.shape}'
    )
  if len(labels) and not (labels.min() >= 0 and labels.max() <= 9):
    raise ValueError(
      f'Labels must be in [0, 9]. Received: {split} labels in [{labels.min()}, {labels.max()}]'
    )
