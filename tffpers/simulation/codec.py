"""Values of TFF types as flat lists of numpy arrays, and back."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

Shape = tuple[int | None, ...]


class Leaf(NamedTuple):
  """One tensor of a type.

  Attributes:
    path: Names and positions from the root, joined by `/`.
    dtype: Its numpy dtype.
    shape: Its dimensions, None where a dimension is not fixed; None if nothing is.
  """

  path: str
  dtype: np.dtype
  shape: Shape | None

  @property
  def is_text(self) -> bool:
    """Whether this is a string, as in the state of TFF's differential privacy."""
    return self.dtype.kind in 'USO'

  def accepts(self, dtype: str, shape: Shape) -> bool:
    """Whether an array of this dtype (by name) and shape (None for any size) belongs here."""
    if self.is_text:
      return dtype.startswith(('str', 'bytes')) and shape == ()
    if dtype != self.dtype.name:
      return False
    if self.shape is None:
      return True
    return len(shape) == len(self.shape) and all(
      size in (None, actual) for size, actual in zip(self.shape, shape, strict=True)
    )


@functools.lru_cache(maxsize=64)
def leaves(tff_type: tff.Type) -> tuple[Leaf, ...]:
  """The tensors of a type, in order.

  Args:
    tff_type: A tensor, a struct of such types, or either with a placement.

  Raises:
    TypeError: The type holds something other than tensors.
  """
  return tuple(_leaves(member(tff_type), ()))


def member(tff_type: tff.Type) -> tff.Type:
  """The type without its placement."""
  return tff_type.member if isinstance(tff_type, tff.FederatedType) else tff_type


def _leaves(tff_type: tff.Type, path: tuple[str, ...]) -> Iterable[Leaf]:
  if isinstance(tff_type, tff.StructType):
    for name, child in named_children(tff_type):
      yield from _leaves(child, (*path, name))
    return
  if not isinstance(tff_type, tff.TensorType):
    raise TypeError(
      'State, data and metrics must be tensors. '
      f'Received: {"/".join(path) or "value"} of type {tff_type}'
    )
  shape = tff_type.shape
  if np.dtype(tff_type.dtype).kind in 'USO' and shape != ():
    raise TypeError(
      f'Strings must be scalars. Received: {"/".join(path) or "value"} of type {tff_type}'
    )
  yield Leaf('/'.join(path), np.dtype(tff_type.dtype), None if shape is None else tuple(shape))


def named_children(tff_type: tff.StructType) -> list[tuple[str, tff.Type]]:
  """Name, or position where there is none, and type of each element of a struct."""
  return [
    (str(i) if name is None else name, child)
    for i, (name, child) in enumerate(tff.structure.iter_elements(tff_type))
  ]


def flatten(value: Any, tff_type: tff.Type) -> list[np.ndarray]:
  """The arrays of a value, in the order of `leaves`.

  Args:
    value: What TFF returned for `tff_type`: structs as mappings, named tuples, attrs
      classes, lists or tuples.
    tff_type: Its type.

  Raises:
    TypeError: An array's dtype or shape is not that of its type.
  """
  arrays = [np.asarray(leaf) for leaf in _values(value, member(tff_type))]
  for leaf, array in zip(leaves(tff_type), arrays, strict=True):
    if not leaf.accepts(array.dtype.name, array.shape):
      raise TypeError(
        f'{leaf.path} must be {leaf.dtype.name} of shape {leaf.shape}. '
        f'Received: {array.dtype.name} of shape {array.shape}'
      )
  return arrays


def _values(value: Any, tff_type: tff.Type) -> Iterable[Any]:
  if not isinstance(tff_type, tff.StructType):
    yield value
    return
  elements = tff.structure.iter_elements(tff_type)
  for i, (name, child) in enumerate(elements):
    if isinstance(value, Mapping):
      item = value[name]
    else:
      item = value[i] if name is None or isinstance(value, (list, tuple)) else getattr(value, name)
    yield from _values(item, child)


def unflatten(arrays: Iterable[Any], tff_type: tff.Type) -> Any:
  """The inverse of `flatten`, in the containers that TFF itself would return."""
  rest = iter(arrays)

  def build(current: tff.Type) -> Any:
    if not isinstance(current, tff.StructType):
      return next(rest)
    return tff.structure.Struct(
      [(name, build(child)) for name, child in tff.structure.iter_elements(current)]
    )

  return tff.types.type_to_py_container(build(member(tff_type)), member(tff_type))


def scalars(value: Any, tff_type: tff.Type) -> dict[str, int | float]:
  """Metrics as Python numbers by path.

  Args:
    value: What TFF returned for `tff_type`.
    tff_type: Its type. A vector gives one entry per element, `path/0`, `path/1`, …

  Returns:
    Integers (and booleans) as `int`, other numbers as `float`.
  """
  numbers: dict[str, int | float] = {}
  for leaf, array in zip(leaves(tff_type), flatten(value, tff_type), strict=True):
    convert = int if leaf.dtype.kind in 'biu' else float
    for index, item in enumerate(array.reshape(-1)):
      numbers[leaf.path if array.ndim == 0 else f'{leaf.path}/{index}'] = convert(item)
  return numbers


def missing_scalars(tff_type: tff.Type) -> dict[str, int | float]:
  """What `scalars` gives, for a value that does not exist: counts 0, other numbers NaN."""
  numbers: dict[str, int | float] = {}
  for leaf in leaves(tff_type):
    value = 0 if leaf.dtype.kind in 'biu' else float('nan')
    sizes = [] if leaf.shape is None else [size or 0 for size in leaf.shape]
    if leaf.shape == ():
      numbers[leaf.path] = value
    else:
      numbers.update({f'{leaf.path}/{i}': value for i in range(int(np.prod(sizes)))})
  return numbers
