"""Shakespeare by role: next-character prediction, one client for each role of a play."""

import dataclasses
import os

import numpy as np

from tffpers.datasets import _shakespeare_sources as sources
from tffpers.datasets.federated_dataset import FederatedDataset


@dataclasses.dataclass(frozen=True)
class ShakespeareReport:
  """What a load read, kept and dropped. Characters are those to predict (y ≠ 0).

  Attributes:
    source: `tff`, `leaf` or `plays`.
    rule: Which clients are dropped, in words.
    clients_read: Number of roles in the source.
    clients_kept: Ids of the roles in train, in test or in both.
    clients_dropped: Ids of the others.
    train_characters: Characters to predict in train.
    test_characters: Characters to predict in test.
    dropped_characters: Characters to predict of the dropped roles, train and test.
    unattributed_characters: Text of plays, in characters, that several speak at once
      or that stands under no name.
  """

  source: str
  rule: str
  clients_read: int
  clients_kept: tuple[str, ...]
  clients_dropped: tuple[str, ...]
  train_characters: int
  test_characters: int
  dropped_characters: int
  unattributed_characters: int


def load_shakespeare(
  data_dir: str | os.PathLike[str] | None = None,
  *,
  source: str = 'auto',
  sequence_length: int = 80,
  min_sequences: int = 10,
) -> tuple[FederatedDataset, FederatedDataset]:
  """Shakespeare's roles as clients, for next-character prediction.

  From TFF's file and from plays, a client's snippets or speeches are joined by a
  line break and cut so that every character but the first is predicted once. LEAF's
  windows overlap, as LEAF made them; their target is the window moved on by one.

  Train and test are as distributed in TFF's and LEAF's files; from plays, the first
  80 % of a role's speeches train and the rest test. For validation data use
  `train.split(0.9, 0.1, contiguous=True)`. Nothing is drawn at random.

  Args:
    data_dir: Folder with `shakespeare.sqlite` (or `.sqlite.lzma`), LEAF's JSON files
      (in `train/` and `test/`, or by name) or the plays' `*_gut.txt`; `None` for the
      plays of the installed package `shakespeare`, 2008.
    source: `tff`, `leaf` or `plays`; `auto` takes the first that is there.
    sequence_length: Characters in a sequence; fixed at 80 in LEAF's own files.
    min_sequences: A role with fewer training sequences, by default one batch, is left
      out of train and test. A role without any in train is kept if it has test data
      and the source names it in test only.

  Returns:
    `(train, test)` with `x` and `y` int32 [n, sequence_length]: ids 1–86 of the
    characters and of those that follow, 0 for padding and unknown characters. Both
    hold only roles with n > 0.

  Raises:
    FileNotFoundError: If the data are not there; says how to get them.
    ValueError: If an argument is out of range, the files contradict themselves, or no
      role has enough data.

  Sources: TFF's Shakespeare tutorial (vocabulary); LEAF, Caldas et al., arXiv
  1812.01097; Corinzia et al., arXiv 1906.06268 (roles below one batch dropped).
  """
  train, test, _ = _load(data_dir, source, sequence_length, min_sequences)
  return train, test


def shakespeare_report(
  data_dir: str | os.PathLike[str] | None = None,
  *,
  source: str = 'auto',
  sequence_length: int = 80,
  min_sequences: int = 10,
) -> ShakespeareReport:
  """What `load_shakespeare` with the same arguments reads, keeps and drops."""
  return _load(data_dir, source, sequence_length, min_sequences)[2]


def _load(
  data_dir: str | os.PathLike[str] | None, source: str, length: int, min_sequences: int
) -> tuple[FederatedDataset, FederatedDataset, ShakespeareReport]:
  if length < 1 or min_sequences < 1:
    raise ValueError(
      'sequence_length and min_sequences must be at least 1. '
      f'Received: sequence_length={length}, min_sequences={min_sequences}'
    )
  roles = sources.read(data_dir, source, length)
  names = list(dict.fromkeys([*roles.train, *roles.test]))
  kept = {name for name in names if _enough(roles, name, min_sequences)}
  train, test = (
    {name: value for name, value in part.items() if name in kept and len(value[1])}
    for part in (roles.train, roles.test)
  )
  if not train or not test:
    raise ValueError(
      f'No role has {min_sequences} training sequences, or none of those has test data. '
      f'Received: {len(names)} roles, min_sequences={min_sequences}'
    )
  report = ShakespeareReport(
    roles.source,
    f'fewer than {min_sequences} training sequences of {length} characters; in test only: none',
    len(names),
    tuple(name for name in names if name in kept),
    tuple(name for name in names if name not in kept),
    _characters(train),
    _characters(test),
    _characters(roles.train) + _characters(roles.test) - _characters(train) - _characters(test),
    roles.unattributed,
  )
  return FederatedDataset.from_arrays(train), FederatedDataset.from_arrays(test), report


def _enough(roles: sources.Roles, name: str, min_sequences: int) -> bool:
  if name in roles.train:
    return len(roles.train[name][1]) >= min_sequences
  return len(roles.test[name][1]) > 0


def _characters(part: sources.Sequences) -> int:
  return int(sum(np.count_nonzero(y) for _, y in part.values()))
