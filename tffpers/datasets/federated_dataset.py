"""Data of many clients, each with whole arrays `x` and `y`."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tffpers.datasets import _border, _split
from tffpers.datasets._border import Example


class _Client(NamedTuple):
  num_examples: int
  load: Callable[[], Example]


class FederatedDataset:
  """An immutable collection of clients, built by one of its `from_…` constructors.

  A client id is a non-empty `str` of any Unicode text. Integers are converted to
  decimal wherever an id is taken; two ids that become the same string are refused.
  Ids are opaque: nothing is ever read out of them.

  Every client's data are a pair `(x, y)` of numpy arrays with one leading axis of
  length n ≥ 0 (`x` may be a dict of arrays), of the same dtypes and shapes at all
  clients. Nothing is cast: loaders choose the dtypes. The arrays are read-only views.

  >>> data = FederatedDataset.from_arrays({
  ...     "ann": (np.zeros([4, 2], np.float32), np.zeros([4], np.int32)),
  ...     "bob": (np.ones([1, 2], np.float32), np.ones([1], np.int32))})
  >>> data.client_ids, data.num_examples("ann")
  (['ann', 'bob'], 4)
  >>> train, test = data.split(0.75, 0.25, seed=1)
  >>> train.num_examples("ann"), test.num_examples("ann")
  (3, 1)
  """

  __slots__ = ('_clients', '_signature')

  def __init__(self, clients: dict[str, _Client], signature: _border.Signature):
    """Not for callers: use a `from_…` constructor, which checks what it is given."""
    self._clients = clients
    self._signature = signature

  @classmethod
  def from_arrays(
    cls, arrays: Mapping[Any, tuple[Any, Any]], *, allow_nonfinite: bool = False
  ) -> 'FederatedDataset':
    """A dataset of arrays that are in memory.

    Args:
      arrays: `{id: (x, y)}`; not copied.
      allow_nonfinite: Whether NaN and infinity may occur.

    Raises:
      TypeError: If an id is neither `str` nor integer.
      ValueError: If there is no client, ids collide, a client's data are no pair
        `(x, y)`, its lengths differ, dtypes, shapes or fields differ between
        clients, or a value is not finite. The message names client and field.
    """
    keys = _checked_ids(arrays)
    values = list(map(_border.as_example, keys, arrays.values()))
    reference = _border.signature(values[0])
    clients = {}
    for key, value in zip(keys, values, strict=True):
      example = _border.conform(key, value, keys[0], reference)
      if not allow_nonfinite:
        _border.check_finite(key, example)
      clients[key] = _Client(len(example[1]), functools.partial(_same, example))
    return cls(clients, reference)

  @classmethod
  def from_grouped(
    cls, ids_per_row: Sequence[Any] | np.ndarray, x: Any, y: Any, *, allow_nonfinite: bool = False
  ) -> 'FederatedDataset':
    """Groups rows by client in one pass; clients in order of their first row.

    Args:
      ids_per_row: The client id of each row, [n].
      x: Array [n, …] or dict of such arrays.
      y: Array [n, …].
      allow_nonfinite: Whether NaN and infinity may occur.

    Raises:
      ValueError: As `from_arrays`, or if the number of ids is not n.
    """
    x, y = _border.as_example('all rows', (x, y))
    values = ids_per_row.tolist() if isinstance(ids_per_row, np.ndarray) else list(ids_per_row)
    if len(values) != len(y):
      raise ValueError(f'One id per row is needed, {len(y)}. Received: {len(values)} ids_per_row')
    codes: dict[Any, int] = {}
    code = np.array([codes.setdefault(value, len(codes)) for value in values], np.int64)
    order = np.argsort(code, kind='stable')
    ends = np.cumsum(np.bincount(code, minlength=len(codes)))
    keys = _checked_ids(codes)
    ordered = _take((x, y), order)
    slices = map(slice, [0, *ends[:-1]], ends)
    return cls.from_arrays(
      {key: _take(ordered, rows) for key, rows in zip(keys, slices, strict=True)},
      allow_nonfinite=allow_nonfinite,
    )

  @classmethod
  def from_loader(
    cls,
    num_examples: Mapping[Any, int],
    load: Callable[[str], tuple[Any, Any]],
    *,
    allow_nonfinite: bool = False,
  ) -> 'FederatedDataset':
    """A dataset that reads a client's arrays each time they are asked for.

    Args:
      num_examples: `{id: n}`.
      load: From an id, as `str`, to the client's `(x, y)`. The first client is loaded
        at once, for dtypes and shapes.
      allow_nonfinite: Whether NaN and infinity may occur.

    Raises:
      ValueError: As `from_arrays`, here for the first client and for any other when
        it is loaded; also if its length is not the announced one.
    """
    keys = _checked_ids(num_examples)
    sizes = dict(zip(keys, num_examples.values(), strict=True))
    for key, size in sizes.items():
      if not isinstance(size, int | np.integer) or size < 0:
        raise ValueError(f'Client {key!r} must have an integer ≥ 0 of examples. Received: {size!r}')
    reference = _border.signature(_border.as_example(keys[0], load(keys[0])))

    def checked(key: str) -> Example:
      example = _border.as_example(key, load(key))
      example = _border.conform(key, example, keys[0], reference)
      if len(example[1]) != sizes[key]:
        raise ValueError(
          f'The loader announced {sizes[key]} examples for client {key!r}. '
          f'Received: {len(example[1])} examples'
        )
      if not allow_nonfinite:
        _border.check_finite(key, example)
      return example

    checked(keys[0])
    clients = {key: _Client(size, functools.partial(checked, key)) for key, size in sizes.items()}
    return cls(clients, reference)

  @classmethod
  def from_client_data(
    cls,
    client_data: Any,
    *,
    x: str | Callable[[Any], Any] | None = None,
    y: str | Callable[[Any], Any] | None = None,
    allow_nonfinite: bool = False,
  ) -> 'FederatedDataset':
    """Reads every client of a `tff.simulation.datasets.ClientData` into memory.

    Args:
      client_data: Anything with `client_ids` and `create_tf_dataset_for_client(id)`.
      x: Where an element's features are: the key of a dict element, a function of a
        batch of elements, or `None` if elements are pairs `(x, y)`.
      y: The same for the targets.
      allow_nonfinite: Whether NaN and infinity may occur.

    Raises:
      ValueError: As `from_arrays`, or if only one of `x` and `y` is given.

    Example: `from_client_data(emnist_train, x="pixels", y="label")`.
    """
    if (x is None) != (y is None):
      raise ValueError(f'Give both x and y, or neither. Received: x={x!r}, y={y!r}')
    # The ids are checked before the dict below, which would merge equal ones.
    keys = _checked_ids(client_data.client_ids)
    arrays = {}
    for key, original in zip(keys, client_data.client_ids, strict=True):
      rows = _rows(client_data.create_tf_dataset_for_client(original))
      arrays[key] = rows if x is None or y is None else (_field(rows, x), _field(rows, y))
    return cls.from_arrays(arrays, allow_nonfinite=allow_nonfinite)

  @property
  def client_ids(self) -> list[str]:
    """The ids, in the order of construction."""
    return list(self._clients)

  @property
  def element_spec(self) -> tuple[tf.TensorSpec | dict[str, tf.TensorSpec], tf.TensorSpec]:
    """`(x, y)` as `tf.TensorSpec` of one example, without the leading axis."""
    specs = {path: tf.TensorSpec(shape, dtype) for path, (dtype, shape) in self._signature.items()}
    y = specs.pop(('y',))
    return specs.get(('x',)) or {path[1]: spec for path, spec in specs.items()}, y

  def num_examples(self, client_id: str) -> int:
    """Number of examples of one client; raises `KeyError` for an unknown id."""
    return self._client(client_id).num_examples

  def load(self, client_id: str) -> Example:
    """The client's `(x, y)`, read-only, leading axis n; `KeyError` for an unknown id."""
    return self._client(client_id).load()

  def select(self, client_ids: Iterable[Any]) -> 'FederatedDataset':
    """The named clients, in the given order; `KeyError` for an unknown id."""
    keys = _checked_ids(client_ids)
    return FederatedDataset({key: self._client(key) for key in keys}, self._signature)

  def split(
    self, *parts: float | int | None, seed: int = 0, contiguous: bool = False
  ) -> tuple['FederatedDataset', ...]:
    """Splits every client's rows into disjoint parts that together hold all of them.

    Which rows go where depends on the seed, the client's id and its n only, not on
    other clients or their order. Rows keep their order. Every part has all the
    clients, some perhaps with n = 0.

    Args:
      *parts: Shares that sum to 1 (`0.8, 0.2`) or sizes that sum to every client's n
        (`600, 100`); one `None` takes the rest.
      seed: Non-negative seed of the choice of rows.
      contiguous: Cut in order instead, as text and time series need; no seed then.

    Returns:
      One dataset for each part.

    Raises:
      ValueError: If the parts do not cover a client's rows exactly once.
    """
    _split.check_parts(parts, seed)
    clients: list[dict[str, _Client]] = [{} for _ in parts]
    for key, client in self._clients.items():
      edges = _split.bounds(parts, client.num_examples, key)
      order = None if contiguous else _split.permutation(seed, key, client.num_examples)
      for part, start, end in zip(clients, edges[:-1], edges[1:], strict=True):
        rows = slice(start, end) if order is None else np.sort(order[start:end])
        part[key] = _Client(end - start, functools.partial(_load_rows, client.load, rows))
    return tuple(FederatedDataset(part, self._signature) for part in clients)

  def __len__(self) -> int:
    return len(self._clients)

  def __repr__(self) -> str:
    total = sum(client.num_examples for client in self._clients.values())
    return (
      f'FederatedDataset(num_clients={len(self)}, num_examples={total}, '
      f'element_spec={self.element_spec})'
    )

  def _client(self, client_id: Any) -> _Client:
    key = _border.client_id(client_id)
    if key not in self._clients:
      raise KeyError(f'No such client. Received: client_id={client_id!r}')
    return self._clients[key]


def _checked_ids(values: Iterable[Any]) -> list[str]:
  keys = _border.client_ids(values)
  if not keys:
    raise ValueError('A dataset needs at least one client. Received: no client ids')
  return keys


def _same(example: Example) -> Example:
  # A new dict each time: the caller may change what `load` returns, not the dataset.
  x, y = example
  return (dict(x) if isinstance(x, dict) else x), y


def _load_rows(load: Callable[[], Example], rows: np.ndarray | slice) -> Example:
  return _take(load(), rows)


def _take(example: Example, rows: np.ndarray | slice) -> Example:
  x, y = example
  if isinstance(x, dict):
    result: Example = ({key: x[key][rows] for key in x}, y[rows])
  else:
    result = (x[rows], y[rows])
  for array in _border.fields(result).values():
    array.flags.writeable = False
  return result


def _rows(dataset: tf.data.Dataset) -> Any:
  """All elements of a dataset stacked into arrays, with n = 0 if there are none."""
  batches = list(dataset.batch(4096).as_numpy_iterator())
  if batches:
    return tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *batches)
  return tf.nest.map_structure(
    lambda spec: np.zeros([0, *spec.shape], spec.dtype.as_numpy_dtype), dataset.element_spec
  )


def _field(rows: Any, where: str | Callable[[Any], Any]) -> Any:
  return where(rows) if callable(where) else rows[where]
