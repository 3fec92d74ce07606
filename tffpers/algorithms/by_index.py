"""Sums by index: many models at the server, one of them from each client.

A client sends one model's worth of numbers and the place they belong to; the server adds
what belongs to a place. That is how clustered and cross-silo methods keep several models
while every client uploads one.
"""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers.algorithms import sums


class Indexed(NamedTuple):
  """A client's value for one of the server's places.

  Attributes:
    index: int32 in [0, num_places); another one belongs nowhere and is dropped.
    value: Nested float tensors.
  """

  index: tf.Tensor
  value: Any


class SumByIndex(tff.aggregators.UnweightedAggregationFactory):
  """Adds `Indexed` values by their index.

  The aggregate has the value's structure with a leading axis [num_places]; a place that
  nobody sent anything to holds zeros. What goes up from each client is one `Indexed`.

  Args:
    num_places: Number of places, ≥ 1.

  Raises:
    ValueError: `num_places` is out of range.
  """

  def __init__(self, num_places: int):
    if num_places < 1:
      raise ValueError(f'num_places must be ≥ 1. Received: num_places={num_places!r}')
    self._num_places = num_places

  def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
    return sums.summing(value_type, *_by_place(value_type, self._num_places))


def _by_place(value_type: tff.Type, num_places: int) -> tuple[tff.Computation, tff.Computation]:
  """Zeros in every place, and how one client's value is added in its own."""
  specs = sums.specs_of(value_type.value)

  @tff.tensorflow.computation
  def zero():
    return tf.nest.map_structure(lambda s: tf.zeros([num_places, *s.shape], s.dtype), specs)

  @tff.tensorflow.computation(zero.type_signature.result, value_type)
  def accumulate(totals, sent):
    inside = tf.logical_and(sent.index >= 0, sent.index < num_places)
    places = tf.boolean_mask([[sent.index]], [inside])
    return tf.nest.map_structure(
      lambda total, v: tf.tensor_scatter_nd_add(total, places, tf.boolean_mask([v], [inside])),
      totals,
      sent.value,
    )

  return zero, accumulate
