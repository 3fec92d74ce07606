"""Turns runtime values into what a caller of a TFF computation gets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers.runtime.in_process import values


def writer(tff_type: tff.Type) -> Callable[[Any, int], Any]:
  """A function from a runtime value and the number of clients to the caller's result.

  Tensors become numpy scalars and read-only numpy arrays (as from TFF's own runtime;
  on the CPU they share memory with the tensor), strings become bytes, structures the
  containers that `tff_type` records, sequences datasets, values at CLIENTS lists.
  """
  if isinstance(tff_type, tff.TensorType):
    return lambda value, n: _to_numpy(value)
  if isinstance(tff_type, tff.SequenceType):
    structure = values.element_structure(tff_type.element)
    return lambda value, n: value.dataset(structure)
  if isinstance(tff_type, tff.StructType):
    return _struct_writer(tff_type)
  if isinstance(tff_type, tff.FederatedType):
    return _federated_writer(tff_type)
  raise TypeError(f'A value of this type cannot be returned. Received: type={tff_type}')


def _to_numpy(tensor: tf.Tensor) -> Any:
  array = np.asarray(tensor)
  if not array.shape:
    return array[()]
  array.flags.writeable = False  # its memory may also be an argument's or a constant's
  return array


def _struct_writer(tff_type: tff.StructType) -> Callable[[Any, int], Any]:
  fields = values.members(tff_type)
  names = [name for name, _ in fields]
  writers = [writer(member) for _, member in fields]
  build = values.container_builder(tff_type)
  return lambda value, n: build(
    [(k, w(v, n)) for k, w, v in zip(names, writers, value, strict=True)]
  )


def _federated_writer(tff_type: tff.FederatedType) -> Callable[[Any, int], Any]:
  write = writer(tff_type.member)
  if tff_type.placement is tff.SERVER:
    return write

  def write_clients(value: Any, n: int) -> Any:
    if isinstance(value, values.Everywhere):
      one = write(value.value, n)
      return one if tff_type.all_equal else [one] * n
    return [write(item, n) for item in value]

  return write_clients
