"""How values look while a computation runs in this process, and how they get in and out.

Tensors are eager tensors and structures are tuples (their names are in the types).
A value at SERVER is the value itself; at CLIENTS it is a list in client order, or
`Everywhere` where one value is known to be held by all. Sequences are `Elements`.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import tensorflow as tf
import tensorflow_federated as tff


class Everywhere:
  """One value that every client holds."""

  __slots__ = ('value',)

  def __init__(self, value: Any):
    self.value = value


class Elements:
  """A sequence: a `tf.data` variant, a list of elements, or each made from the other.

  Args:
    element_type: The TFF type of the elements.
    variant: The dataset as a scalar variant tensor, or None.
    items: The elements as runtime values, or None.
  """

  def __init__(
    self,
    element_type: tff.Type,
    variant: tf.Tensor | None = None,
    items: Sequence[Any] | None = None,
  ):
    self._type = element_type
    self._variant = variant
    self._items = items

  @property
  def variant(self) -> tf.Tensor:
    if self._variant is None:
      self._variant = tf.data.experimental.to_variant(self._from_items())
    return self._variant

  def dataset(self, structure: Any) -> tf.data.Dataset:
    """The dataset, with elements in the Python containers of `structure`."""
    return tf.data.experimental.from_variant(self.variant, structure)

  def __iter__(self) -> Iterator[Any]:
    if self._items is not None:
      return iter(self._items)
    unflatten, order = unflattener(self._type), _variant_order(self._type)
    elements = self.dataset(tuple(tensor_specs(self._type)[i] for i in order))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return (unflatten(iter([flat[i] for i in inverse])) for flat in elements)

  def _from_items(self) -> tf.data.Dataset:
    """A dataset whose variant has the order of tensors that TFF's graphs expect."""
    flatten, order = flattener(self._type), _variant_order(self._type)
    specs = [tensor_specs(self._type)[i] for i in order]
    rows = [[flatten(item)[i] for i in order] for item in self._items or ()]
    if not rows:
      # An element of the right type that is then dropped: there is no other way to say the type.
      return tf.data.Dataset.from_tensors(tuple(zeros(spec) for spec in specs)).take(0)
    columns = list(zip(*rows, strict=True))
    if all(len({tuple(tensor.shape) for tensor in column}) == 1 for column in columns):
      return tf.data.Dataset.from_tensor_slices(tuple(tf.stack(column) for column in columns))
    datasets = [tf.data.Dataset.from_tensors(tuple(row)) for row in rows]
    return _concatenate(datasets)


def _concatenate(datasets: list[tf.data.Dataset]) -> tf.data.Dataset:
  """Datasets one after another, in a tree: a chain would nest as deep as there are elements."""
  while len(datasets) > 1:
    pairs = zip(datasets[::2], datasets[1::2], strict=False)  # an odd one out is kept
    joined = [first.concatenate(second) for first, second in pairs]
    datasets = joined + datasets[len(joined) * 2 :]
  return datasets[0]


def members(tff_type: tff.StructType) -> list[tuple[str | None, tff.Type]]:
  """The names (None where unnamed) and types of a structure's fields."""
  return tff.structure.to_elements(tff_type)


def name_of(field: tuple[Any, ...]) -> str:
  """The name of a named field given as (name, …), to sort by."""
  return field[0]


def zeros(spec: tf.TensorSpec) -> tf.Tensor:
  """The smallest tensor of zeros that fits `spec`."""
  sizes = [] if spec.shape.rank is None else [size or 0 for size in spec.shape]
  return tf.zeros(sizes, spec.dtype)


def tensor_specs(tff_type: tff.Type | None) -> list[tf.TensorSpec]:
  """Specs of the tensors that make up a value of an unplaced type, in order."""
  if tff_type is None:
    return []
  if isinstance(tff_type, tff.TensorType):
    return [tf.TensorSpec(tff_type.shape, tf.as_dtype(tff_type.dtype.type))]
  if isinstance(tff_type, tff.SequenceType):
    return [tf.TensorSpec((), tf.variant)]
  return [spec for _, member in members(tff_type) for spec in tensor_specs(member)]


def flattener(tff_type: tff.Type | None) -> Callable[[Any], list[tf.Tensor]]:
  """A function from a value of `tff_type` to its tensors."""
  if tff_type is None:
    return lambda value: []
  append = _appender(tff_type)

  def flatten(value: Any) -> list[tf.Tensor]:
    out: list[tf.Tensor] = []
    append(value, out)
    return out

  return flatten


def _appender(tff_type: tff.Type) -> Callable[[Any, list], None]:
  if isinstance(tff_type, tff.TensorType):
    return lambda value, out: out.append(value)
  if isinstance(tff_type, tff.SequenceType):
    return lambda value, out: out.append(value.variant)
  appenders = [_appender(member) for _, member in members(tff_type)]

  def append(value: Any, out: list) -> None:
    for append_member, member in zip(appenders, value, strict=True):
      append_member(member, out)

  return append


def unflattener(tff_type: tff.Type) -> Callable[[Iterator[tf.Tensor]], Any]:
  """A function from an iterator of tensors to a value of `tff_type`."""
  if isinstance(tff_type, tff.TensorType):
    return next
  if isinstance(tff_type, tff.SequenceType):
    element = tff_type.element
    return lambda tensors: Elements(element, variant=next(tensors))
  parts = [unflattener(member) for _, member in members(tff_type)]
  return lambda tensors: tuple(part(tensors) for part in parts)


def _variant_order(element_type: tff.Type) -> list[int]:
  """Positions of an element's tensors in the order in which a dataset variant keeps them.

  TFF's graphs read elements as `OrderedDict`s, which `tf.data` flattens by sorted name.
  """
  flat = iter(range(len(tensor_specs(element_type))))
  numbered = unflattener(element_type)(flat)

  def ordered(tff_type: tff.Type, value: Any) -> list[int]:
    if not isinstance(tff_type, tff.StructType):
      return [value]
    fields = [(name, t, v) for (name, t), v in zip(members(tff_type), value, strict=True)]
    if fields and fields[0][0] is not None:
      fields.sort(key=name_of)
    return [i for _, t, v in fields for i in ordered(t, v)]

  return ordered(element_type, numbered)


def element_structure(element_type: tff.Type) -> Any:
  """Tensor specs of a sequence's elements in the Python containers that users see."""
  if isinstance(element_type, tff.TensorType):
    return tensor_specs(element_type)[0]
  specs = [(name, element_structure(member)) for name, member in members(element_type)]
  return container_builder(element_type)(specs)


def container_builder(tff_type: tff.StructType) -> Callable[[list[tuple[str | None, Any]]], Any]:
  """A function from (name, value) pairs to the Python container that `tff_type` records."""
  names = [name for name, _ in members(tff_type)]
  container = tff_type.python_container
  if any(names) and not all(names):
    raise ValueError(
      'A result must be a structure with all fields named or none; no Python container '
      f'has both. Received: type={tff_type}'
    )
  if container is not None and (attrs.has(container) or hasattr(container, '_fields')):
    return lambda pairs: container(**dict(pairs))
  if any(names):
    return container or collections.OrderedDict
  container = container or tuple
  return lambda pairs: container([value for _, value in pairs])
