"""The file that holds a run: server state, client states and what was measured.

SQLite gives what a run needs: one transaction per round, so that a kill at any moment
or a full disk leaves the last complete round; a lock, so that two runs cannot share
a folder; and reading one client without the others. Without a path the same tables
live in memory.
"""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tffpers.simulation import codec

_APPLICATION_ID = 0x74666670  # 'tffp': what tells this library's files from others'
_SERVER = 'server'
_SCHEMA = (
  f'PRAGMA application_id = {_APPLICATION_ID}',
  # `owner` is 'server' or 'client:' and the id.
  'CREATE TABLE tensors (owner TEXT, position INTEGER, path TEXT, dtype TEXT, shape TEXT, '
  'value BLOB, PRIMARY KEY (owner, position))',
  'CREATE TABLE history (round INTEGER PRIMARY KEY, row TEXT)',
  'CREATE TABLE clients (id TEXT PRIMARY KEY, record TEXT)',
  'CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT)',
)


class StoreError(RuntimeError):
  """The file of a run cannot be read or written, or belongs to something else."""


class Progress(NamedTuple):
  """How far a run is, without its states.

  Attributes:
    round: Rounds finished.
    totals: Sums over all rounds by name, such as `seconds` and `bytes_up`.
    history: One row per evaluated round.
    records: What is known of each client, by id: rounds, last evaluation, ….
  """

  round: int
  totals: dict[str, float]
  history: tuple[dict[str, Any], ...]
  records: dict[str, dict[str, Any]]


class Store:
  """The tables of one run; a context manager that locks the file while it is open.

  After it is closed client states can still be read.

  Args:
    path: The file, or None for memory.
    server_type: Type of the server state.
    client_type: Type of one client's state.
  """

  def __init__(self, path: pathlib.Path | None, server_type: tff.Type, client_type: tff.Type):
    self._path = path
    self._server_type, self._client_type = server_type, client_type
    self._connection: sqlite3.Connection | None = None
    if path is None:
      # Lives as long as this object; results may be read from other threads.
      self._connection = sqlite3.connect(':memory:', check_same_thread=False, isolation_level=None)

  def __enter__(self) -> 'Store':
    if self._path is None:
      return self
    with self._errors('opened'):
      self._connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
      self._connection.execute('PRAGMA locking_mode = EXCLUSIVE')
      # Takes the lock, and rolls back what a killed run left half written.
      self._connection.execute('BEGIN IMMEDIATE')
      self._connection.execute('COMMIT')
      self._check_file(self._connection)
    return self

  def __exit__(self, *unused: object) -> None:
    if self._path is not None and self._connection is not None:
      self._connection.close()
      self._connection = None

  def create(self, config: dict[str, Any], server_state: Any) -> None:
    """Writes round 0: the run's settings and the server's first state."""
    with self._transaction() as connection:
      for statement in _SCHEMA:
        connection.execute(statement)
      self._put(connection, 'config', config)
      self._put_progress(connection, 0, {})
      self._put_tensors(connection, _SERVER, server_state, self._server_type)

  def commit(
    self,
    progress: Progress,
    before: Progress,
    server_state: Any,
    client_states: dict[str, Any],
  ) -> None:
    """Writes one finished round, all of it or nothing.

    Args:
      progress: After the round.
      before: What is there already.
      server_state: After the round.
      client_states: New states of the clients that took part, by id.

    Raises:
      StoreError: It could not be written; the previous round is still there.
    """
    records = [
      (key, json.dumps(record))
      for key, record in progress.records.items()
      if record is not before.records.get(key)
    ]
    rows = [(row['round'], json.dumps(row)) for row in progress.history[len(before.history) :]]
    with self._transaction() as connection:
      self._put_tensors(connection, _SERVER, server_state, self._server_type)
      for client_id, state in client_states.items():
        self._put_tensors(connection, _owner(client_id), state, self._client_type)
      connection.executemany('INSERT OR REPLACE INTO clients VALUES (?, ?)', records)
      connection.executemany('INSERT INTO history VALUES (?, ?)', rows)
      self._put_progress(connection, progress.round, progress.totals)

  def config(self) -> dict[str, Any] | None:
    """The settings given to `create`; None in a new store."""
    with self._reading() as connection:
      if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchone():
        return None
      return self._get(connection, 'config')

  def put_config(self, config: dict[str, Any]) -> None:
    """Replaces the settings."""
    with self._transaction() as connection:
      self._put(connection, 'config', config)

  def drop_rows(self, rounds: Iterable[int]) -> None:
    """Forgets rows of the history."""
    with self._transaction() as connection:
      connection.executemany('DELETE FROM history WHERE round = ?', [(r,) for r in rounds])

  def progress(self) -> Progress:
    """How far the run is."""
    with self._reading() as connection:
      rows = connection.execute('SELECT row FROM history ORDER BY round').fetchall()
      records = connection.execute('SELECT id, record FROM clients ORDER BY id').fetchall()
      return Progress(
        self._get(connection, 'round'),
        self._get(connection, 'totals'),
        tuple(_parsed(row) for (row,) in rows),
        {key: _parsed(record) for key, record in records},
      )

  def server_state(self) -> Any:
    """The server's state after the last finished round."""
    state = self._get_tensors(_SERVER, self._server_type)
    if state is None:
      with self._errors('read'):
        raise _Damaged('it has no server state')
    return state

  def client_state(self, client_id: str) -> Any:
    """A client's state after its last round; None if it never took part."""
    return self._get_tensors(_owner(client_id), self._client_type)

  def client_ids(self) -> list[str]:
    """Clients that have a state, sorted."""
    with self._reading() as connection:
      owners = connection.execute('SELECT DISTINCT owner FROM tensors').fetchall()
    return sorted(owner[len(_owner('')) :] for (owner,) in owners if owner != _SERVER)

  def _put_tensors(self, connection, owner: str, value: Any, tff_type: tff.Type) -> None:
    arrays = codec.flatten(value, tff_type)
    connection.executemany(
      'INSERT OR REPLACE INTO tensors VALUES (?, ?, ?, ?, ?, ?)',
      [
        (owner, i, leaf.path, array.dtype.name, json.dumps(array.shape), array.tobytes())
        for i, (leaf, array) in enumerate(zip(codec.leaves(tff_type), arrays, strict=True))
      ],
    )

  def _get_tensors(self, owner: str, tff_type: tff.Type) -> Any:
    with self._reading() as connection:
      rows = connection.execute(
        'SELECT path, dtype, shape, value FROM tensors WHERE owner = ? ORDER BY position', (owner,)
      ).fetchall()
    if not rows:
      return None
    leaves = codec.leaves(tff_type)
    stored = [(path, dtype, tuple(json.loads(shape))) for path, dtype, shape, _ in rows]
    _check_type(owner, leaves, stored)
    return codec.unflatten(
      (
        _array(leaf, shape, value)
        for leaf, (_, _, shape), (*_, value) in zip(leaves, stored, rows, strict=True)
      ),
      tff_type,
    )

  def _put_progress(self, connection, round_number: int, totals: dict[str, float]) -> None:
    self._put(connection, 'round', round_number)
    self._put(connection, 'totals', totals)

  def _put(self, connection, key: str, value: Any) -> None:
    connection.execute('INSERT OR REPLACE INTO run VALUES (?, ?)', (key, json.dumps(value)))

  def _get(self, connection, key: str) -> Any:
    row = connection.execute('SELECT value FROM run WHERE key = ?', (key,)).fetchone()
    if row is None:
      raise _Damaged(f'it has no {key!r}')
    return _parsed(row[0])

  def _check_file(self, connection) -> None:
    tables = connection.execute('SELECT count(*) FROM sqlite_master').fetchone()[0]
    application = connection.execute('PRAGMA application_id').fetchone()[0]
    if tables and application != _APPLICATION_ID:
      raise sqlite3.DatabaseError("it is another program's database")
    fault = connection.execute('PRAGMA quick_check').fetchone()[0]
    if fault != 'ok':
      raise sqlite3.DatabaseError(fault)

  @contextlib.contextmanager
  def _transaction(self) -> Iterator[sqlite3.Connection]:
    with self._errors('written'):
      assert self._connection is not None, 'the store is closed'
      with self._connection as connection:
        connection.execute('BEGIN')
        yield connection

  @contextlib.contextmanager
  def _reading(self) -> Iterator[sqlite3.Connection]:
    with self._errors('read'):
      if self._connection is not None:
        yield self._connection
        return
      assert self._path is not None
      uri = f'{self._path.absolute().as_uri()}?mode=ro'
      with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        yield connection

  @contextlib.contextmanager
  def _errors(self, action: str) -> Iterator[None]:
    try:
      yield
    except (sqlite3.Error, _Damaged) as error:
      if self._path is not None and action == 'opened':
        self.__exit__()
      hint = ' Another run has it open.' if 'locked' in str(error) else ''
      raise StoreError(
        f"The run's file could not be {action}; it is left as it was after the last complete "
        f'round.{hint} Received: {self._path or "memory"}: {error}'
      ) from error


class _Damaged(Exception):
  """SQLite is content with the file, but what a run needs is not in it."""


def _parsed(text: str) -> Any:
  try:
    return json.loads(text)
  except ValueError as error:
    raise _Damaged(f'an entry is no JSON: {error}') from error


def _owner(client_id: str) -> str:
  return f'client:{client_id}'


def _check_type(owner: str, leaves: tuple[codec.Leaf, ...], stored: list[tuple]) -> None:
  for i in range(max(len(leaves), len(stored))):
    expected, found = leaves[i : i + 1], stored[i : i + 1]
    if (
      expected and found and expected[0].path == found[0][0] and expected[0].accepts(*found[0][1:])
    ):
      continue
    raise StoreError(
      f'The stored state of {owner} is that of another model or algorithm. '
      f'Expected: {tuple(expected[0]) if expected else "nothing more"}. '
      f'Received: {found[0] if found else "nothing more"}'
    )


def _array(leaf: codec.Leaf, shape: tuple[int, ...], value: bytes) -> np.ndarray | bytes:
  if leaf.is_text:
    return value
  if len(value) != leaf.dtype.itemsize * int(np.prod(shape)):
    raise StoreError(
      f'{leaf.path} needs {shape} values of {leaf.dtype.name}. Received: {len(value)} bytes'
    )
  return np.frombuffer(value, leaf.dtype).reshape(shape)
