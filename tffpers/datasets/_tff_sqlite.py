"""Reads the SQLite files in which TFF keeps its simulation data sets."""

import contextlib
import lzma
import pathlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator


def read(path: pathlib.Path, split: str) -> dict[str, list[bytes]]:
  """All examples of one split.

  Client ids are bound as parameters, so an apostrophe in one, on which TFF's own
  reader stumbles, is a character like any other.

  Args:
    path: The database, or the same compressed as `.lzma`.
    split: `train` or `test`.

  Returns:
    `{client id: serialised tf.train.Example of each example}`, in the file's order;
    clients without examples are there with an empty list.

  Raises:
    ValueError: If it is not such a database, or a client's number of examples is not
      the one in its metadata.
  """
  with (
    _database(path) as file,
    contextlib.closing(
      sqlite3.connect(f'{file.absolute().as_uri()}?mode=ro', uri=True)
    ) as connection,
  ):
    try:
      metadata = connection.execute(
        'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?', (split,)
      ).fetchall()
      rows = connection.execute(
        'SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? '
        'ORDER BY rowid',
        (split,),
      ).fetchall()
    except sqlite3.DatabaseError as error:
      raise ValueError(
        "Expected a SQLite database with TFF's tables `client_metadata` and `examples`. "
        f'Received: path={str(path)!r} ({error})'
      ) from error
  return _group(metadata, rows, split)


def _group(
  metadata: list[tuple[str, int]], rows: list[tuple[str, bytes]], split: str
) -> dict[str, list[bytes]]:
  examples: dict[str, list[bytes]] = {}
  for client_id, _ in metadata:
    if client_id in examples:
      raise ValueError(f'A client must occur once in the {split} metadata. Received: {client_id!r}')
    examples[client_id] = []
  for client_id, blob in rows:
    if client_id not in examples:
      raise ValueError(f'No {split} metadata for this client. Received: {client_id!r}')
    examples[client_id].append(blob)
  for client_id, expected in metadata:
    if len(examples[client_id]) != expected:
      raise ValueError(
        f'The metadata promise {expected} {split} examples for client {client_id!r}. '
        f'Received: {len(examples[client_id])} examples'
      )
  return examples


@contextlib.contextmanager
def _database(path: pathlib.Path) -> Iterator[pathlib.Path]:
  if path.suffix != '.lzma':
    yield path
    return
  with tempfile.TemporaryDirectory() as folder:
    target = pathlib.Path(folder) / path.stem
    with lzma.open(path) as source, target.open('wb') as sink:
      shutil.copyfileobj(source, sink)
    yield target
