"""Sums by index against numbers worked by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import runtime
from tffpers.algorithms import by_index

VALUE = by_index.Indexed(
  tf.TensorSpec([], tf.int32),
  {'w': [tf.TensorSpec([2], tf.float32)], 'n': tf.TensorSpec([], tf.float32)},
)


def sent(index, w, n):
  return by_index.Indexed(np.int32(index), {'w': [np.array(w, np.float32)], 'n': np.float32(n)})


@pytest.mark.parametrize('name', ['in_process', 'native'])
def test_values_are_added_at_their_places_and_other_places_are_zero(name):
  process = by_index.SumByIndex(3).create(tff.types.tensorflow_to_type(VALUE))
  with runtime.running(name):
    output = process.next(
      process.initialize(),
      [
        sent(2, [1, 2], 1),
        sent(0, [5, 0], 2),
        sent(2, [10, 20], 3),
        sent(-1, [9, 9], 9),
        sent(3, [9, 9], 9),
      ],
    )
  np.testing.assert_array_equal(output.result['w'][0], [[5, 0], [0, 0], [11, 22]])
  np.testing.assert_array_equal(output.result['n'], [2, 0, 4])


def test_without_clients_the_sums_are_zero():
  process = by_index.SumByIndex(2).create(tff.types.tensorflow_to_type(VALUE))
  output = process.next(process.initialize(), [])
  np.testing.assert_array_equal(output.result['w'][0], np.zeros([2, 2]))


def test_what_goes_up_is_one_value_and_its_index():
  process = by_index.SumByIndex(7).create(tff.types.tensorflow_to_type(VALUE))
  value = process.next.type_signature.parameter[1].member
  assert str(value) == str(tff.types.tensorflow_to_type(VALUE))


def test_no_places_are_refused():
  with pytest.raises(ValueError, match='num_places=0'):
    by_index.SumByIndex(0)
