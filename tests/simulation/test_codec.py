import collections
from typing import NamedTuple

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers.simulation import codec


class Pair(NamedTuple):
  first: object
  second: object


@attrs.define
class Box:
  content: object


VALUE = Pair(
  [np.float32(1.5), {'z': np.arange(6, dtype=np.int64).reshape(2, 3), 'a': np.bool_(True)}],
  (
    Box(np.zeros([0, 2], np.float64)),
    collections.OrderedDict(w=tf.cast([1.0, 0.3], tf.bfloat16).numpy()),
    (),
  ),
)
TYPE = tff.types.tensorflow_to_type(
  tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), VALUE)
)
PATHS = ['first/0', 'first/1/z', 'first/1/a', 'second/0/content', 'second/1/w']


def test_leaves_are_named_by_path_in_the_type_s_own_order():
  assert [leaf.path for leaf in codec.leaves(TYPE)] == PATHS
  assert codec.leaves(TYPE)[1] == ('first/1/z', np.dtype(np.int64), (2, 3))
  assert codec.leaves(tff.FederatedType(TYPE, tff.CLIENTS)) == codec.leaves(TYPE)


def test_values_come_back_in_their_containers():
  back = codec.unflatten(codec.flatten(VALUE, TYPE), TYPE)
  tf.nest.assert_same_structure(back, VALUE, check_types=True)
  assert isinstance(back.second[0], Box)
  assert list(back.first[1]) == ['z', 'a']
  tf.nest.map_structure(np.testing.assert_array_equal, back, VALUE)


def test_a_type_with_free_dimensions_takes_any_size_of_the_same_rank():
  (leaf,) = codec.leaves(tff.TensorType(np.float32, [None, 2]))
  assert leaf.accepts('float32', (7, 2))
  assert leaf.accepts('float32', (None, 2))
  assert not leaf.accepts('float32', (7, 3))
  assert not leaf.accepts('float32', (2,))
  assert not leaf.accepts('float64', (7, 2))


def test_values_of_another_dtype_or_shape_are_refused():
  with pytest.raises(TypeError, match=r'must be float32 of shape \(2,\). Received: float64'):
    codec.flatten(np.zeros(2), tff.TensorType(np.float32, [2]))


@pytest.mark.parametrize(
  'tff_type', [tff.TensorType(np.str_, [2]), tff.SequenceType(np.float32)], ids=str
)
def test_what_is_no_number_is_refused(tff_type):
  with pytest.raises(TypeError, match='k of type'):
    codec.leaves(tff.StructType([('k', tff_type)]))


def test_scalars_are_whole_or_real_and_vectors_are_spread():
  tff_type = tff.types.to_type(
    collections.OrderedDict(n=np.int32, x=np.float32, v=tff.TensorType(np.float32, [2]))
  )
  value = {'v': np.array([1, 2], np.float32), 'n': np.int32(3), 'x': np.float32(0.5)}
  numbers = codec.scalars(value, tff_type)
  assert numbers == {'n': 3, 'x': 0.5, 'v/0': 1.0, 'v/1': 2.0}
  assert isinstance(numbers['n'], int)
  missing = codec.missing_scalars(tff_type)
  assert list(missing) == list(numbers)
  assert missing['n'] == 0
  assert np.isnan(missing['v/1'])


def test_a_string_in_a_state_is_kept_as_it_is():
  """TFF's differential privacy has names in its state."""
  tff_type = tff.types.to_type(collections.OrderedDict(name=np.str_, x=np.float32))
  arrays = codec.flatten({'name': b'gaussian', 'x': np.float32(2)}, tff_type)
  assert [array.dtype.kind for array in arrays] == ['S', 'f']
