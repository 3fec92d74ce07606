"""Sums of float32 values in float64."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers.algorithms import sums


def test_small_values_are_not_lost_beside_large_ones():
  value_type = tff.types.tensorflow_to_type({'a': tf.TensorSpec([2]), 'b': [tf.TensorSpec([])]})
  process = sums.ExactSum().create(value_type)
  # 2²⁴ + 1 is no float32.
  values = [
    {'a': np.array([large, 0.5], np.float32), 'b': [np.float32(3)]}
    for large in (2**24, 1, -(2**24))
  ]
  total = process.next(process.initialize(), values).result
  np.testing.assert_array_equal(total['a'], [1, 1.5])
  np.testing.assert_array_equal(total['b'], [9])
  assert total['a'].dtype == np.float64


def test_what_travels_is_float32():
  value_type = tff.types.tensorflow_to_type([tf.TensorSpec([3])])
  process = sums.ExactSum().create(value_type)
  assert process.next.type_signature.parameter[1].member == value_type
  total = process.next.type_signature.result.result.member
  assert [t.dtype.type for t in tff.structure.flatten(total)] == [np.float64]
