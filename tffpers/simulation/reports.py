"""The files of a run. All of them are derived from the store and can be written again."""

import asyncio
import concurrent.futures
import contextlib
import csv
import io
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow_federated as tff

from tffpers import metrics, plots
from tffpers.simulation import history as history_lib

_ALWAYS = ('config.json', 'metrics.csv', 'clients.csv', 'summary.json', 'curves.png')
FILES = (*_ALWAYS, 'clients.png')
_EVENTS = 'tensorboard'


def write_tables(
  folder: pathlib.Path,
  history: Iterable[history_lib.Row],
  clients: Iterable[history_lib.Row],
  summary: dict[str, Any],
) -> None:
  """Writes `metrics.csv`, `clients.csv` and, last of all, `summary.json`, each at one stroke."""
  for name, rows in (('metrics.csv', history), ('clients.csv', clients)):
    with replacing(folder / name) as path:
      path.write_text(_csv(list(rows)), encoding='utf-8', newline='')
  write_json(folder / 'summary.json', summary)


def finished_rounds(folder: pathlib.Path) -> int | None:
  """The number of rounds that a folder's reports cover; None if they are not all there."""
  if not all((folder / name).exists() for name in _ALWAYS):
    return None
  try:
    return json.loads((folder / 'summary.json').read_text(encoding='utf-8'))['rounds']
  except (ValueError, KeyError, TypeError):  # Damaged: it is written again.
    return None


def write_json(path: pathlib.Path, value: Any) -> None:
  """Writes JSON at one stroke; NaN and infinity, which JSON has not, become null."""
  with replacing(path) as temporary:
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    temporary.write_text(text + '\n', encoding='utf-8')


def draw(
  folder: pathlib.Path,
  method: str,
  history: tuple[history_lib.Row, ...],
  clients: list[history_lib.Row],
) -> None:
  """Draws `curves.png` and, if accuracies were measured, `clients.png`."""
  plots.curves({method: history}, folder / 'curves.png')
  accuracy = metrics.history_accuracy(history[-1]) if history else None
  values = {
    label: [
      row[f'{model}_{accuracy}'] for row in clients if row.get(f'{model}_{accuracy}') is not None
    ]
    for label, model in (('S', 'server'), ('MT', 'client'))
  }
  values = {label: column for label, column in values.items() if column}
  if values:
    plots.clients(values, folder / 'clients.png')


class Events:
  """TensorBoard events of a run, through TFF's release manager.

  Args:
    folder: The run's folder. Events of an earlier part of the run are written again:
      the manager flushes on its own schedule, and a killed run loses the last ones.
    history: Rows so far.
  """

  def __init__(self, folder: pathlib.Path, history: Iterable[history_lib.Row]):
    shutil.rmtree(folder / _EVENTS, ignore_errors=True)
    self._manager = tff.program.TensorBoardReleaseManager(folder / _EVENTS)
    for row in history:
      self.release(row)

  def release(self, row: history_lib.Row) -> None:
    """Writes one row of the history."""
    value = {_tag(name): number for name, number in row.items() if name != 'round'}
    # The manager is a coroutine; a thread of its own works inside a notebook's loop too.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
      thread.submit(asyncio.run, self._manager.release(value, row['round'])).result()


def _tag(column: str) -> str:
  group, _, name = column.partition('_')
  return f'{group}/{name}'


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a temporary path whose file takes the place of `path` if nothing fails."""
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def _csv(rows: list[history_lib.Row]) -> str:
  text = io.StringIO(newline='')
  columns = list(dict.fromkeys(name for row in rows for name in row))
  writer = csv.DictWriter(text, columns, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue()


def _finite(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _finite(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_finite(item) for item in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
