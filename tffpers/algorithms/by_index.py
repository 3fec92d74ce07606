"""Sums by index: many models at the server, one of them from each client.

A client sends one model's worth of numbers and the place they belong to; the server adds
what belongs to a place. That is how clustered and cross-silo methods keep several models
while every client uploads one.
"""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff


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
    sums = _sums(value_type, self._num_places)

    @tff.federated_computation
    def initialize():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
    )
    def next_sum(state, value):
      total = tff.federated_aggregate(value, sums.zero(), sums.accumulate, sums.merge, sums.report)
      return tff.templates.MeasuredProcessOutput(state, total, tff.federated_value((), tff.SERVER))

    return tff.templates.AggregationProcess(initialize, next_sum)


class _Sums(NamedTuple):
  zero: tff.Computation
  accumulate: tff.Computation
  merge: tff.Computation
  report: tff.Computation


def _sums(value_type: tff.Type, num_places: int) -> _Sums:
  """The four computations of a federated aggregation."""
  specs = specs_of(value_type.value)

  @tff.tensorflow.computation
  def zero():
    return tf.nest.map_structure(lambda s: tf.zeros([num_places, *s.shape], s.dtype), specs)

  sums_type = zero.type_signature.result

  @tff.tensorflow.computation(sums_type, value_type)
  def accumulate(sums, sent):
    inside = tf.logical_and(sent.index >= 0, sent.index < num_places)
    places = tf.boolean_mask([[sent.index]], [inside])
    return tf.nest.map_structure(
      lambda total, v: tf.tensor_scatter_nd_add(total, places, tf.boolean_mask([v], [inside])),
      sums,
      sent.value,
    )

  @tff.tensorflow.computation(sums_type, sums_type)
  def merge(a, b):
    return tf.nest.map_structure(tf.add, a, b)

  @tff.tensorflow.computation(sums_type)
  def report(sums):
    return sums

  return _Sums(zero, accumulate, merge, report)


def specs_of(value_type: tff.Type) -> Any:
  """Tensor specs in the Python containers that a computation over the type is given."""
  found: list[Any] = []

  @tff.tensorflow.computation(value_type)
  def record(value):
    found.append(tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), value))
    return 0

  del record
  return found[0]
