"""Reads LEAF's JSON files: users, num_samples, user_data."""

import json
import pathlib
from collections.abc import Iterable
from typing import Any


def find(folder: pathlib.Path, split: str, name: str) -> list[pathlib.Path]:
  """The JSON shards of a split: all in `folder/<split>/`, or those named `*<split>*.json`.

  Where several data sets lie in one folder, only files with `name` in theirs count.
  """
  files = sorted((folder / split).glob('*.json')) or sorted(folder.glob(f'*{split}*.json'))
  return [file for file in files if name in file.name.lower()] or files


def read(files: Iterable[pathlib.Path]) -> dict[str, dict[str, list[Any]]]:
  """Merges the shards of one split.

  Returns:
    `{user: {"x": […], "y": […]}}`, in the files' order.

  Raises:
    ValueError: If a user occurs twice, in one file or in two, `users` and `user_data`
      differ, or a user's data disagree with `num_samples`.
  """
  users: dict[str, dict[str, list[Any]]] = {}
  for file in files:
    for user, data in _read_file(file).items():
      if user in users:
        raise ValueError(
          f'A user must occur in one shard only. Received: {user!r} again in {file.name}'
        )
      users[user] = data
  return users


def _read_file(file: pathlib.Path) -> dict[str, dict[str, list[Any]]]:
  content = json.loads(file.read_text(encoding='utf-8'), object_pairs_hook=_unique)
  missing = {'users', 'num_samples', 'user_data'} - content.keys()
  if missing:
    raise ValueError(
      f'LEAF JSON needs {sorted(missing)}. Received: {file.name} with {list(content)}'
    )
  names, data = content['users'], content['user_data']
  if len(set(names)) < len(names):
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f'A user must occur once. Received: {twice!r} twice in {file.name}')
  if set(names) != data.keys() or len(names) != len(content['num_samples']):
    raise ValueError(
      f'`users`, `num_samples` and `user_data` must name the same users. Received: {file.name} '
      f'with {len(names)}, {len(content["num_samples"])} and {len(data)}, '
      f'differing in {sorted(set(names) ^ data.keys())[:3]}'
    )
  for name, expected in zip(names, content['num_samples'], strict=True):
    lengths = len(data[name]['x']), len(data[name]['y'])
    if lengths != (expected, expected):
      raise ValueError(
        f'num_samples is {expected} for user {name!r} in {file.name}. '
        f'Received: {lengths[0]} x and {lengths[1]} y'
      )
  return {name: data[name] for name in names}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """A JSON object as dict; json's own would silently keep the last of equal keys."""
  result = dict(pairs)
  if len(result) < len(pairs):
    keys = [key for key, _ in pairs]
    twice = next(key for key in keys if keys.count(key) > 1)
    raise ValueError(f'A user must occur once. Received: {twice!r} twice in a JSON object')
  return result
