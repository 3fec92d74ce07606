"""Checks a caller's argument against its TFF type and turns it into runtime values."""

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers.runtime.in_process import values


class ArgumentError(TypeError):
  """An argument that does not have its parameter's type."""


def reader(tff_type: tff.Type, path: str = 'argument') -> Callable[[Any], Any]:
  """A function that turns a Python argument of `tff_type` into a runtime value.

  Args:
    tff_type: The parameter's type.
    path: Where the argument is, for error messages.

  Returns:
    A function that raises `ArgumentError` naming client, field, expected and
    received type where the argument does not fit.
  """
  if isinstance(tff_type, tff.TensorType):
    return _tensor_reader(tff_type, path)
  if isinstance(tff_type, tff.SequenceType):
    return _sequence_reader(tff_type, path)
  if isinstance(tff_type, tff.StructType):
    return _struct_reader(tff_type, path)
  if isinstance(tff_type, tff.FederatedType):
    return _federated_reader(tff_type, path)
  raise ArgumentError(f'{path}: a value of this type cannot be passed. Received: type={tff_type}')


def client_counter(tff_type: tff.Type | None) -> Callable[[Any], int]:
  """A function that counts the clients in a runtime value of `tff_type`.

  Raises:
    ValueError: (by the function) Fields at CLIENTS have different numbers of clients.
  """
  paths = list(_client_paths(tff_type, (), 'argument'))

  def count(value: Any) -> int:
    counts = {name: len(_at(value, path)) for name, path in paths}
    if len(set(counts.values())) > 1:
      raise ValueError(f'Every value at CLIENTS must have one item per client. Received: {counts}')
    return next(iter(counts.values()), 0)

  return count


def _client_paths(tff_type, path, name) -> Iterator[tuple[str, tuple[int, ...]]]:
  if isinstance(tff_type, tff.FederatedType):
    if tff_type.placement is tff.CLIENTS and not tff_type.all_equal:
      yield name, path
  elif isinstance(tff_type, tff.StructType):
    for i, (field, member) in enumerate(values.members(tff_type)):
      yield from _client_paths(member, (*path, i), f'{name}.{i if field is None else field}')


def _at(value: Any, path: tuple[int, ...]) -> Any:
  for index in path:
    value = value[index]
  return value


def _federated_reader(tff_type: tff.FederatedType, path: str) -> Callable[[Any], Any]:
  read_member = reader(tff_type.member, path)
  if tff_type.placement is tff.SERVER:
    return read_member
  if tff_type.all_equal:
    return lambda value: values.Everywhere(read_member(value))

  def read(value: Any) -> list:
    clients = []
    for i, item in enumerate(_client_items(value, path)):
      try:
        clients.append(read_member(item))
      except ArgumentError as error:
        raise ArgumentError(f'Client at position {i}: {error}') from None
    return clients

  return read


def _client_items(value: Any, path: str) -> Iterable:
  not_clients = (Mapping, str, bytes, np.ndarray, tf.Tensor, tf.data.Dataset, tff.structure.Struct)
  if not isinstance(value, Iterable) or isinstance(value, not_clients) or hasattr(value, '_fields'):
    raise ArgumentError(
      f'{path}: expected a list, tuple or iterator with one item per client. '
      f'Received: {type(value).__name__}'
    )
  return value


def _tensor_reader(tff_type: tff.TensorType, path: str) -> Callable[[Any], tf.Tensor]:
  dtype = tf.as_dtype(tff_type.dtype.type)
  shape = tf.TensorShape(tff_type.shape)
  fits = _shape_check(shape)

  def mismatch(received: str) -> ArgumentError:
    return ArgumentError(f'{path}: expected {dtype.name}{_brackets(shape)}. Received: {received}')

  def read(value: Any) -> tf.Tensor:
    if isinstance(value, tf.Variable):
      value = value.read_value()
    if not isinstance(value, tf.Tensor):
      array = _array(value, dtype)
      if array is None or not fits(array.shape):
        raise mismatch(_describe(value))
      return tf.constant(array, dtype)  # a copy, so that the caller may change `value` later
    if not fits(value.shape) or not _widens(value.dtype, dtype):
      raise mismatch(f'{value.dtype.name}{_brackets(value.shape)}')
    return value if value.dtype == dtype else tf.cast(value, dtype)

  return read


def _shape_check(shape: tf.TensorShape) -> Callable[[Any], bool]:
  """A function that says whether a tuple or `TensorShape` fits `shape`.

  Plain comparisons: `TensorShape`'s own take longer than the rest of reading a tensor.
  """
  if shape.rank is None:
    return lambda received: True
  expected = tuple(shape.as_list())
  if None not in expected:
    return lambda received: tuple(received) == expected

  def check(received: Any) -> bool:
    sizes = tuple(received)
    return len(sizes) == len(expected) and all(
      want is None or want == size for want, size in zip(expected, sizes, strict=True)
    )

  return check


def _array(value: Any, dtype: tf.DType) -> np.ndarray | None:
  """`value` as an array that fits `dtype` without loss of kind or range, or None."""
  plain = _is_plain(value)
  try:
    array = np.asarray(value)
  except ValueError:  # rows of different lengths
    return None
  if dtype == tf.string:
    return array if array.dtype.kind in 'SUO' else None
  if array.size == 0 and plain:
    return array.astype(dtype.as_numpy_dtype)
  if array.dtype.kind == 'O' or not (plain or _widens(tf.as_dtype(array.dtype), dtype)):
    return None
  if plain and not _plain_fits(array, dtype):
    return None
  return array.astype(dtype.as_numpy_dtype, copy=False)


def _is_plain(value: Any) -> bool:
  """Whether `value` is Python numbers only, which have a kind but no size of their own."""
  if isinstance(value, (list, tuple)):
    return all(_is_plain(item) for item in value)
  return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def _plain_fits(array: np.ndarray, dtype: tf.DType) -> bool:
  if dtype.is_integer:
    return array.dtype.kind in 'iu' and dtype.min <= array.min() and array.max() <= dtype.max
  return array.dtype.kind == ('f' if dtype.is_floating else 'c' if dtype.is_complex else 'b')


def _widens(source: tf.DType, target: tf.DType) -> bool:
  """Whether `source` is of the same kind as `target` and no larger, as TFF itself allows."""
  if source == target:
    return True
  if not source.is_numpy_compatible:
    return False
  same = (source.is_integer and target.is_integer) or (source.is_floating and target.is_floating)
  same = same or (source.is_complex and target.is_complex)
  return same and np.can_cast(source.as_numpy_dtype, target.as_numpy_dtype)


def _brackets(shape: tf.TensorShape) -> str:
  if shape.rank is None:
    return ' of unknown rank'
  return str(shape.as_list()).replace('None', '?')


def _describe(value: Any) -> str:
  if isinstance(value, (np.ndarray, np.generic)):
    return f'{value.dtype.name}{list(value.shape)}'
  if isinstance(value, (bool, int, float, complex, str, bytes)):
    return f'{type(value).__name__} {value!r}'
  return type(value).__name__


def _struct_reader(tff_type: tff.StructType, path: str) -> Callable[[Any], tuple]:
  fields = values.members(tff_type)
  names = [name for name, _ in fields]
  readers = [
    reader(member, f'{path}.{i if name is None else name}')
    for i, (name, member) in enumerate(fields)
  ]

  def read(value: Any) -> tuple:
    return tuple(r(item) for r, item in zip(readers, _fields(value, names, path), strict=True))

  return read


def _fields(value: Any, names: list[str | None], path: str) -> list:
  """The values of a structure's fields, in the order of the type."""
  found = _named_items(value)
  if found is None:
    raise ArgumentError(
      f'{path}: expected a structure with fields {names}. Received: {_describe(value)}'
    )
  keys = [key for key, _ in found]
  if keys == names:
    return [item for _, item in found]
  # The order of keys is not what a mapping means, so fields are matched by name.
  if None not in names and len(keys) == len(names) and set(keys) == set(names):
    by_name = dict(found)
    return [by_name[name] for name in names]
  if len(keys) == len(names) and (set(keys) == {None} or set(names) == {None}):
    return [item for _, item in found]
  raise ArgumentError(f'{path}: expected fields {names}. Received: fields={keys}')


def _named_items(value: Any) -> list[tuple[str | None, Any]] | None:
  if isinstance(value, tff.structure.Struct):
    return tff.structure.to_elements(value)
  if isinstance(value, Mapping):
    return list(value.items())
  if hasattr(value, '_fields'):
    return list(zip(value._fields, value, strict=True))
  if isinstance(value, (list, tuple)):
    return [(None, item) for item in value]
  if attrs.has(type(value)):
    return [(field.name, getattr(value, field.name)) for field in attrs.fields(type(value))]
  return None


def _sequence_reader(tff_type: tff.SequenceType, path: str) -> Callable[[Any], values.Elements]:
  element = tff_type.element
  read_element = reader(element, f'{path}[element]')

  def read(value: Any) -> values.Elements:
    if isinstance(value, tf.data.Dataset):
      dataset = _conforming(value, element, path)
      return values.Elements(element, variant=tf.data.experimental.to_variant(dataset))
    if isinstance(value, (list, tuple)):
      return values.Elements(element, items=[read_element(item) for item in value])
    raise ArgumentError(
      f'{path}: expected a tf.data.Dataset or a list of elements. Received: {_describe(value)}'
    )

  return read


def _conforming(dataset: tf.data.Dataset, element: tff.Type, path: str) -> tf.data.Dataset:
  """`dataset` with its tensors in the order in which TFF's graphs take them apart."""
  received = tff.types.tensorflow_to_type(dataset.element_spec)
  if not _sorted_type(element).is_assignable_from(_sorted_type(received)):
    raise ArgumentError(f'{path}: expected a dataset of {element}. Received: dataset of {received}')
  if _has_unsorted_record(dataset.element_spec):
    return dataset.map(_as_dicts)
  return dataset


def _sorted_type(tff_type: tff.Type) -> tff.Type:
  """The type with named fields in the order of their names, in no container."""
  if not isinstance(tff_type, tff.StructType):
    return tff_type
  fields = [(name, _sorted_type(member)) for name, member in values.members(tff_type)]
  if all(name is not None for name, _ in fields):
    return tff.StructType(sorted(fields, key=values.name_of))
  return tff.StructType([member if name is None else (name, member) for name, member in fields])


def _has_unsorted_record(spec: Any) -> bool:
  """Whether a named tuple or attrs class, which `tf.data` does not sort, is out of order."""
  items = _named_items(spec) or []
  names = [name for name, _ in items]
  record = not isinstance(spec, Mapping) and None not in names
  return (record and items != sorted(items, key=values.name_of)) or any(
    _has_unsorted_record(s) for _, s in items
  )


def _as_dicts(element: Any, *rest: Any) -> Any:
  if rest:  # `Dataset.map` spreads a tuple over arguments
    return tuple(_as_dicts(item) for item in (element, *rest))
  items = None if isinstance(element, tf.Tensor) else _named_items(element)
  if items is None:
    return element
  if items and items[0][0] is None:
    return tuple(_as_dicts(item) for _, item in items)
  return collections.OrderedDict((name, _as_dicts(item)) for name, item in items)
