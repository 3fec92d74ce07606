"""Images as APPLE's paper deals them to clients, and its networks."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import image_sets
import numpy as np
import tensorflow as tf

from tffpers import datasets
from tffpers.datasets import partition
from tffpers.keras import models

NAMES = ('digits', 'fashion_mnist', 'mnist', 'cifar10', 'medmnist')
PARTITIONS = {'practical': partition.practical, 'pathological': partition.pathological}

_SIDE = 28
_SUBSET = 13  # Sets this draw apart from others of the same seed.


class Clients(NamedTuple):
  """The clients' data.

  Attributes:
    train: What they train on.
    validation: What was kept of their training data; None if nothing was.
    test: Dealt by the same shares as the training data.
  """

  train: datasets.FederatedDataset
  validation: datasets.FederatedDataset | None
  test: datasets.FederatedDataset


def read(name: str, data_dir: str | None, medmnist_name: str) -> datasets.Arrays:
  """A whole data set, scaled to mean 0.5 and deviation 0.5: 2x − 1, in [−1, 1].

  Args:
    name: One of `NAMES`.
    data_dir: Folder of its own files; None for where its package keeps them.
    medmnist_name: Which set of MedMNIST.

  Raises:
    FileNotFoundError: The data are not there; says how to get them.
    ValueError: A file is damaged, or an image has several labels.
  """
  if name == 'medmnist':
    arrays = datasets.read_medmnist(medmnist_name, data_dir)
  else:
    arrays = image_sets.read(name, data_dir)
  if arrays.y_train.ndim != 1:
    raise ValueError(
      'The partitions need one class per image; choose another set. '
      f'Received: medmnist_name={medmnist_name!r}'
    )
  return arrays._replace(x_train=_scaled(arrays.x_train), x_test=_scaled(arrays.x_test))


def _scaled(x: np.ndarray) -> np.ndarray:
  if min(x.shape[1:3]) > _SIDE:
    # The authors resize whole pictures; CIFAR-10 has 32 pixels a side.
    x = tf.image.resize(x, [_SIDE, _SIDE], antialias=True).numpy()
  return 2 * x - 1


def stratified(arrays: datasets.Arrays, train: float, test: float, seed: int) -> datasets.Arrays:
  """The same share of the rows of every class, drawn at random.

  Args:
    arrays: A whole data set.
    train: Share of training rows, in (0, 1]; 1 keeps all as they are.
    test: Share of test rows.
    seed: Seed of the draw.
  """
  kept: list[np.ndarray] = []
  random = np.random.default_rng([seed, _SUBSET])
  for x, y, share in (
    (arrays.x_train, arrays.y_train, train),
    (arrays.x_test, arrays.y_test, test),
  ):
    chosen = [
      random.permutation(rows)[: round(share * len(rows))]
      for rows in (np.flatnonzero(y == value) for value in np.unique(y))
    ]
    rows = np.sort(np.concatenate(chosen))
    kept += [x, y] if share == 1 else [x[rows], y[rows]]
  return datasets.Arrays(*kept)


def clients(
  arrays: datasets.Arrays, kind: str, num_clients: int, validation_share: float, seed: int
) -> Clients:
  """Deals a data set to clients.

  Args:
    arrays: What is dealt.
    kind: One of `PARTITIONS`.
    num_clients: N.
    validation_share: Share of each client's training data that is kept for validation.
    seed: Seed of the partition and of what is kept.
  """
  plan = PARTITIONS[kind](
    num_classes=image_sets.num_classes(arrays), num_clients=num_clients, seed=seed
  )
  train, test = partition.federate(plan, *arrays)
  if not validation_share:
    return Clients(train, None, test)
  train, validation = train.split(1 - validation_share, validation_share, seed=seed)
  return Clients(train, validation, test)


def network(arrays: datasets.Arrays) -> Callable[[], tf.keras.Model]:
  """The paper's network, 5×5×20 – pool – 5×5×50 – pool – dense 500; a perceptron for digits."""
  shape = arrays.x_train.shape[1:]
  common = {'input_shape': shape, 'num_classes': image_sets.num_classes(arrays)}
  # Two convolutions need more than the eight pixels of a digit's side.
  if min(shape[:2]) < 16:
    return functools.partial(models.mlp, **common)
  return functools.partial(models.cnn, filters=(20, 50), hidden=(500,), **common)
