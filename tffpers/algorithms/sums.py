"""Sums over clients: the frame they share, and sums of float32 values that lose nothing."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


class ExactSum(tff.aggregators.UnweightedAggregationFactory):
  """Adds nested float32 values in float64.

  TFF's `SumFactory` adds in the dtype that travels, so that a sum in float64 takes twice the
  bytes of float32 values. The aggregate has the value's structure, float64.
  """

  def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
    """The aggregation process of values of a type."""
    specs = specs_of(value_type)

    @tff.tensorflow.computation
    def zero():
      return tf.nest.map_structure(lambda s: tf.zeros(s.shape, tf.float64), specs)

    @tff.tensorflow.computation(zero.type_signature.result, value_type)
    def accumulate(total, value):
      return tf.nest.map_structure(lambda t, v: t + tf.cast(v, tf.float64), total, value)

    return summing(value_type, zero, accumulate)


def summing(
  value_type: tff.Type, zero: tff.Computation, accumulate: tff.Computation
) -> tff.templates.AggregationProcess:
  """A stateless aggregation process that adds.

  Args:
    value_type: What each client sends.
    zero: `() -> total`, nested tensors.
    accumulate: `(total, value) -> total`.
  """
  total_type = zero.type_signature.result

  @tff.tensorflow.computation(total_type, total_type)
  def merge(a, b):
    return tf.nest.map_structure(tf.add, a, b)

  @tff.tensorflow.computation(total_type)
  def report(total):
    return total

  @tff.federated_computation
  def initialize():
    return tff.federated_value((), tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
  )
  def next_sum(state, value):
    total = tff.federated_aggregate(value, zero(), accumulate, merge, report)
    return tff.templates.MeasuredProcessOutput(state, total, tff.federated_value((), tff.SERVER))

  return tff.templates.AggregationProcess(initialize, next_sum)


def specs_of(value_type: tff.Type) -> Any:
  """Tensor specs in the Python containers that a computation over the type is given."""
  found: list[Any] = []

  @tff.tensorflow.computation(value_type)
  def record(value):
    found.append(tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), value))
    return 0

  del record
  return found[0]
