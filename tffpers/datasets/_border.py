"""Checks at the border of a federated dataset: client ids and one client's arrays."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Features = np.ndarray | dict[str, np.ndarray]
Example = tuple[Features, np.ndarray]
Path = tuple[str, ...]
Signature = dict[Path, tuple[np.dtype, tuple[int, ...]]]


def client_id(value: Any) -> str:
  """The id as `str`: strings as they are, integers in decimal.

  Args:
    value: A non-empty `str` (or `numpy.str_`) of any Unicode text, or an integer.

  Raises:
    TypeError: If it is neither, for instance a float, a bool or bytes.
    ValueError: If it is empty, or holds a lone surrogate or a control character, which
      not every file can store.

  >>> client_id(7), client_id("7")
  ('7', '7')
  """
  if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
    return str(int(value))
  if not isinstance(value, str):
    raise TypeError(f'A client id must be a str or an integer. Received: client_id={value!r}')
  if not value:
    raise ValueError("A client id must not be empty. Received: client_id=''")
  if any('\ud800' <= character <= '\udfff' for character in value):
    raise ValueError(f'A client id must be valid Unicode. Received: client_id={value!r}')
  if any(unicodedata.category(character) == 'Cc' for character in value):
    raise ValueError(f'A client id must have no control characters. Received: client_id={value!r}')
  return str(value)


def client_ids(values: Iterable[Any]) -> list[str]:
  """The ids as `str`, in their order.

  Raises:
    ValueError: If two of them are, or become, the same string.
  """
  seen: dict[str, Any] = {}
  for value in values:
    key = client_id(value)
    if key in seen:
      raise ValueError(
        'Client ids must be different from one another as strings. '
        f'Received: client_ids with {seen[key]!r} and {value!r}'
      )
    seen[key] = value
  return list(seen)


def fields(example: Example) -> dict[Path, np.ndarray]:
  """The arrays of one client by path: `('x',)` or `('x', key)` for each key, then `('y',)`."""
  x, y = example
  named: dict[Path, np.ndarray] = {('y',): y}
  if isinstance(x, dict):
    return {('x', key): x[key] for key in x} | named
  return {('x',): x} | named


def name(path: Path) -> str:
  """How messages call a field: `x`, `x['key']` or `y`."""
  return path[0] + ''.join(f'[{key!r}]' for key in path[1:])


def signature(example: Example) -> Signature:
  """Dtype and shape without the leading axis of every field."""
  return {path: (array.dtype, array.shape[1:]) for path, array in fields(example).items()}


def as_example(key: str, value: Any) -> Example:
  """One client's `(x, y)` as read-only arrays of one leading length n ≥ 0.

  Args:
    key: The client's id, for the message.
    value: The pair `(x, y)`; `x` an array or a dict of arrays.

  Raises:
    ValueError: If it is not a pair, an array holds no numbers or has no leading
      axis, or the lengths differ.
  """
  if not isinstance(value, (tuple, list)) or len(value) != 2:
    size = f'{len(value)} elements' if isinstance(value, (tuple, list)) else type(value).__name__
    raise ValueError(
      "A client's data must be a pair (x, y); a third element such as sample weights is not "
      f'supported and would be ignored. Received: client {key!r} with {size}'
    )
  x, y = value
  if isinstance(x, Mapping):
    if not x:
      raise ValueError(f'x must hold at least one array. Received: client {key!r} with x={x!r}')
    x = {field: _read_only(x[field]) for field in x}
  else:
    x = _read_only(x)
  example = (x, _read_only(y))
  _check_arrays(key, example)
  return example


def _read_only(value: Any) -> np.ndarray:
  view = np.asarray(value).view()
  view.flags.writeable = False
  return view


def _check_arrays(key: str, example: Example) -> None:
  length = None
  for path, array in fields(example).items():
    if array.dtype.kind not in 'biuf':
      raise ValueError(
        'Data must be numbers or booleans. '
        f'Received: client {key!r}, field {name(path)}, dtype {array.dtype}'
      )
    if array.ndim == 0:
      raise ValueError(
        f'Data need a leading axis. Received: client {key!r}, field {name(path)}, a scalar'
      )
    length = len(array) if length is None else length
    if len(array) != length:
      raise ValueError(
        f'All fields of a client need one leading length, {length} as in its first field. '
        f'Received: client {key!r}, field {name(path)}, shape {array.shape}'
      )


def conform(key: str, example: Example, reference_id: str, reference: Signature) -> Example:
  """The example with its fields in the reference's order.

  Raises:
    ValueError: If the fields, a dtype or a shape differ from the reference client's.
  """
  received = signature(example)
  if received.keys() != reference.keys():
    raise ValueError(
      f'All clients need the same fields, {_names(reference)} as in client {reference_id!r}. '
      f'Received: client {key!r} with {_names(received)}'
    )
  for path, expected in reference.items():
    if received[path] != expected:
      raise ValueError(
        f'All clients need the same dtype and shape: field {name(path)} is {_text(expected)} in '
        f'client {reference_id!r}. '
        f'Received: client {key!r}, field {name(path)}, {_text(received[path])}'
      )
  x, y = example
  if isinstance(x, dict):
    x = {path[1]: x[path[1]] for path in reference if path[0] == 'x'}
  return x, y


def _names(fields_: Iterable[Path]) -> str:
  return ', '.join(map(name, fields_))


def _text(field: tuple[np.dtype, tuple[int, ...]]) -> str:
  return f'{field[0]} of shape [{", ".join(map(str, ["n", *field[1]]))}]'


def check_finite(key: str, example: Example) -> None:
  """Raises `ValueError` naming client, field and row of the first NaN or infinity."""
  for path, array in fields(example).items():
    if array.dtype.kind == 'f' and not np.isfinite(array).all():
      row = np.argwhere(~np.isfinite(array))[0][0]
      raise ValueError(
        'Data must be finite; construct with allow_nonfinite=True to keep such clients. '
        f'Received: client {key!r}, field {name(path)}, NaN or infinity in row {row}'
      )
