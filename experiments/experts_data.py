"""Images as the paper on adaptive expert models deals them to clients."""

from collections.abc import Callable
from typing import NamedTuple

import image_sets

from tffpers import datasets
from tffpers.datasets import partition

ANGLES = (0, 180)
_SUBSET = 17  # Sets this draw apart from others of the same seed.


class Clients(NamedTuple):
  """The clients' data; no two of the three share an example.

  Attributes:
    train: What they train on.
    validation: What was kept of their training data.
    test: What is reported.
    groups: The group that each client belongs to by construction; empty if there is none.
  """

  train: datasets.FederatedDataset
  validation: datasets.FederatedDataset
  test: datasets.FederatedDataset
  groups: dict[str, int]


# From a fraction p (None where it plays no part) and a seed to the clients.
Deal = Callable[[float | None, int], Clients]


def label_skew(
  arrays: datasets.Arrays,
  *,
  num_clients: int,
  fraction: float,
  num_train: int,
  num_test: int,
  validation_share: float,
  seed: int,
) -> Clients:
  """Two majority classes hold a fraction p of each client's data.

  Args:
    arrays: What is dealt.
    num_clients: K.
    fraction: p.
    num_train: Training rows of a client, those kept for validation included.
    num_test: Test rows of a client.
    validation_share: Share of the training rows that is kept.
    seed: Of the classes, the rows and what is kept.
  """
  plan = partition.majority_classes(
    num_classes=image_sets.num_classes(arrays),
    num_clients=num_clients,
    fraction=fraction,
    seed=seed,
  )
  train, test = (
    partition.as_clients(x, y, plan.deal(y, num_examples=number))
    for x, y, number in (
      (arrays.x_train, arrays.y_train, num_train),
      (arrays.x_test, arrays.y_test, num_test),
    )
  )
  return _held_out(train, test, {}, validation_share, seed)


def rotated(
  arrays: datasets.Arrays,
  *,
  num_clients: int,
  num_train: int,
  num_test: int,
  validation_share: float,
  seed: int,
) -> Clients:
  """Half of the clients see images upright, half upside down; each half has all of them.

  Args:
    arrays: What is dealt.
    num_clients: K, an even number.
    num_train: Training rows of a client, those kept for validation included; fewer than
      the set gives are drawn at random for all.
    num_test: Test rows of a client.
    validation_share: Share of the training rows that is kept.
    seed: Of the draw, the parts and what is kept.
  """
  half = num_clients // 2
  kept = image_sets.subset(arrays, num_train * half, num_test * half, seed)
  plan = partition.groups(num_clients=num_clients, num_groups=len(ANGLES), seed=seed)
  train, test = (
    partition.rotate(data, plan.by_client(ANGLES)) for data in partition.federate(plan, *kept)
  )
  members = plan.by_client(range(len(ANGLES)))
  return _held_out(train, test, members, validation_share, seed)


def writers(data_dir: str, *, num_clients: int, validation_share: float, seed: int) -> Clients:
  """FEMNIST's characters, 62 classes, by writer.

  Args:
    data_dir: Folder of its files.
    num_clients: K.
    validation_share: Share of the training rows that is kept.
    seed: Of the draw of writers and what is kept.
  """
  train, test = datasets.load_femnist(
    data_dir, num_clients=num_clients, digits_only=False, seed=seed
  )
  return _held_out(train, test, {}, validation_share, seed)


def unequal(
  arrays: datasets.Arrays,
  *,
  num_clients: int,
  num_train: int,
  num_test: int,
  validation_share: float,
  seed: int,
) -> Clients:
  """A stand-in for writers: unequal sizes and mixes of classes, by Dirichlet(1) shares.

  Args:
    arrays: What is dealt.
    num_clients: K.
    num_train: Mean training rows of a client.
    num_test: Mean test rows of a client.
    validation_share: Share of the training rows that is kept.
    seed: Of the draw, the shares and what is kept.
  """
  kept = image_sets.subset(arrays, num_train * num_clients, num_test * num_clients, seed)
  plan = partition.dirichlet(
    num_classes=image_sets.num_classes(arrays), num_clients=num_clients, alpha=1.0, seed=seed
  )
  train, test = partition.federate(plan, *kept)
  return _held_out(train, test, {}, validation_share, seed)


def _held_out(
  train: datasets.FederatedDataset,
  test: datasets.FederatedDataset,
  groups: dict[str, int],
  validation_share: float,
  seed: int,
) -> Clients:
  train, validation = train.split(1 - validation_share, validation_share, seed=seed)
  return Clients(train, validation, test, groups)
