"""Every operator of TFF on both runtimes, with numbers that can be checked by hand."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import runtime

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
CLIENT_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
SERVER_INT = tff.FederatedType(np.int32, tff.SERVER)
INTS = tff.SequenceType(np.int32)


@tff.tensorflow.computation(np.int32)
def double(x):
  return 2 * x


@tff.tensorflow.computation(np.int32, np.int32)
def add(x, y):
  return x + y


@tff.tensorflow.computation(np.int32)
def count_up(n):
  return tf.data.Dataset.range(tf.cast(n, tf.int64)).map(lambda i: tf.cast(i, tf.int32))


@tff.tensorflow.computation(INTS)
def total(numbers):
  return numbers.reduce(0, lambda a, b: a + b)


def over(*types):
  """`fn` of arguments of `types` as a federated computation."""
  return lambda fn: tff.federated_computation(fn, *types)


def aggregate(values):
  @tff.tensorflow.computation
  def zero():
    return 100

  return tff.federated_aggregate(values, zero(), add, add, double)


def eval_at(placement):
  return tff.federated_eval(tff.tensorflow.computation(lambda: tf.constant(7)), placement)


def select(keys, database):
  pick = tff.tensorflow.computation(
    lambda values, key: tf.gather(values, key), tff.TensorType(np.int32, [4]), np.int32
  )
  max_key = tff.federated_value(4, tff.SERVER)
  chosen = tff.federated_select(keys, max_key, database, pick)
  return tff.federated_map(total, chosen)


CLIENT_KEYS = tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS)
SERVER_DATABASE = tff.FederatedType(tff.TensorType(np.int32, [4]), tff.SERVER)
EVERYWHERE = tff.FederatedType(np.int32, tff.CLIENTS, all_equal=True)

CASES = {
  'map': (over(CLIENT_INTS)(lambda x: tff.federated_map(double, x)), [[1, 2, 3]], [2, 4, 6]),
  'map of lambda': (
    over(CLIENT_INTS)(
      lambda x: tff.federated_map(
        tff.federated_computation(lambda v: (double(v), add(v, v)), np.int32), x
      )
    ),
    [[1, 2]],
    [(2, 2), (4, 4)],
  ),
  'map of one value for all': (
    over(EVERYWHERE, CLIENT_INTS)(lambda x, y: (x, tff.federated_map(double, x))),
    [4, [1, 2]],
    (4, [8, 8]),
  ),
  'apply': (over(SERVER_INT)(lambda x: tff.federated_map(double, x)), [5], 10),
  'broadcast': (
    over(SERVER_INT, CLIENT_INTS)(
      lambda s, c: tff.federated_map(add, (tff.federated_broadcast(s), c))
    ),
    [10, [1, 2]],
    [11, 12],
  ),
  'value at clients': (
    over(CLIENT_INTS)(lambda x: tff.federated_map(add, (x, tff.federated_value(3, tff.CLIENTS)))),
    [[1, 2]],
    [4, 5],
  ),
  'value at server': (over(CLIENT_INTS)(lambda x: tff.federated_value(3, tff.SERVER)), [[1]], 3),
  'eval at clients': (
    over(CLIENT_INTS)(lambda x: (x, eval_at(tff.CLIENTS))),
    [[1, 2]],
    ([1, 2], [7, 7]),
  ),
  'eval at server': (over(CLIENT_INTS)(lambda x: eval_at(tff.SERVER)), [[1, 2]], 7),
  'zip at clients': (
    over(CLIENT_INTS, CLIENT_FLOATS)(lambda x, y: tff.federated_zip((x, (y, x)))),
    [[1, 2], [0.5, 1.5]],
    [(1, (0.5, 1)), (2, (1.5, 2))],
  ),
  'zip at server': (
    over(SERVER_INT, SERVER_INT)(lambda x, y: tff.federated_zip((x, y))),
    [1, 2],
    (1, 2),
  ),
  'aggregate': (over(CLIENT_INTS)(aggregate), [[1, 2, 3]], 212),
  'sum': (over(CLIENT_INTS)(tff.federated_sum), [[1, 2, 3]], 6),
  'mean': (over(CLIENT_FLOATS)(lambda x: tff.federated_mean(x)), [[1.0, 2.0, 6.0]], 3.0),
  'weighted mean': (
    over(CLIENT_FLOATS, CLIENT_FLOATS)(lambda x, w: tff.federated_mean(x, w)),
    [[1.0, 3.0], [3.0, 1.0]],
    1.5,
  ),
  'min': (over(CLIENT_INTS)(tff.federated_min), [[3, 1, 2]], 1),
  'max': (over(CLIENT_INTS)(tff.federated_max), [[3, 1, 2]], 3),
  'sequence in': (
    over(tff.FederatedType(INTS, tff.CLIENTS))(lambda x: tff.federated_map(total, x)),
    [[[1, 2], [], tf.data.Dataset.from_tensor_slices([4, 5])]],
    [3, 0, 9],
  ),
  'sequence between blocks': (
    over(CLIENT_INTS)(lambda x: tff.federated_map(total, tff.federated_map(count_up, x))),
    [[3, 5]],
    [3, 10],
  ),
  'sequence map': (over(INTS)(lambda x: total(tff.sequence_map(double, x))), [[1, 2, 3]], 12),
  'sequence map of none': (over(INTS)(lambda x: total(tff.sequence_map(double, x))), [[]], 0),
  'sequence reduce': (
    over(INTS)(lambda x: tff.sequence_reduce(x, tff.to_value(5, tff.TensorType(np.int32)), add)),
    [[1, 2, 3]],
    11,
  ),
  'sequence sum': (over(INTS)(tff.sequence_sum), [[1, 2, 3]], 6),
  'select': (
    over(CLIENT_KEYS, SERVER_DATABASE)(select),
    [[[0, 1], [3, 3]], [1, 10, 100, 1000]],
    [11, 2000],
  ),
}


# The C++ runtime cannot hand a mapped sequence on to TensorFlow, nor sum one.
NOT_NATIVE = {'sequence map', 'sequence map of none', 'sequence sum'}
RUNS = [
  (r, c) for r in ('in_process', 'native') for c in CASES if r != 'native' or c not in NOT_NATIVE
]


@pytest.mark.parametrize(('any_runtime', 'name'), RUNS, indirect=['any_runtime'])
def test_operator_gives_what_is_computed_by_hand(any_runtime, name):
  computation, arguments, expected = CASES[name]
  assert computation(*arguments) == expected


def test_map_all_equal_computes_one_value_for_all_clients(in_process):
  mapping = tff.framework.Intrinsic(
    tff.framework.FEDERATED_MAP_ALL_EQUAL.uri,
    tff.FunctionType([double.type_signature, EVERYWHERE], EVERYWHERE),
  )
  value = tff.framework.Reference('x', EVERYWHERE)
  call = tff.framework.Call(
    mapping, tff.framework.Struct([double.to_compiled_building_block(), value])
  )
  block = tff.framework.Lambda('x', EVERYWHERE, call)
  assert tff.framework.ConcreteComputation.from_building_block(block)(4) == 8


def test_generic_zero_is_zero_of_its_type(in_process):
  kind = tff.StructType([('a', np.int32), ('b', tff.TensorType(np.float32, [2]))])
  block = tff.framework.Lambda(None, None, tff.framework.Intrinsic('generic_zero', kind))
  zero = tff.framework.ConcreteComputation.from_building_block(block)()
  assert zero['a'] == 0
  np.testing.assert_array_equal(zero['b'], [0.0, 0.0])


SECURE = {
  'secure sum': (lambda x: tff.federated_secure_sum(x, 5), 6),
  'secure sum bitwidth': (lambda x: tff.federated_secure_sum_bitwidth(x, 3), 6),
}


@pytest.mark.parametrize('name', SECURE)
def test_secure_sum_is_a_sum_with_its_bound_checked(in_process, name):
  operator, expected = SECURE[name]
  computation = tff.federated_computation(operator, CLIENT_INTS)
  assert computation([1, 2, 3]) == expected
  with pytest.raises(RuntimeError, match='position 1 of 2'):
    computation([1, 9])


def test_secure_select_gives_each_client_its_slices(in_process):
  pick = tff.tensorflow.computation(
    lambda values, key: tf.gather(values, key), tff.TensorType(np.int32, [4]), np.int32
  )

  @tff.federated_computation(CLIENT_KEYS, SERVER_DATABASE)
  def computation(keys, database):
    return tff.federated_secure_select(keys, tff.federated_value(4, tff.SERVER), database, pick)

  first, second = computation([[0, 1], [3, 0]], [1, 10, 100, 1000])
  assert [int(x) for x in first] == [1, 10]
  assert [int(x) for x in second] == [1000, 1]
  with pytest.raises(RuntimeError, match=r'position 0.*key=4'):
    computation([[0, 4]], [1, 10, 100, 1000])


def test_select_of_slices_of_different_shapes_keeps_their_order(in_process):
  rows = tff.TensorType(np.int32, [None])
  pick = tff.tensorflow.computation(lambda n, key: tf.fill([key], n), np.int32, np.int32)
  count = tff.tensorflow.computation(
    lambda ds: ds.map(tf.size).batch(10).get_single_element(), tff.SequenceType(rows)
  )

  @tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.int32, [3]), tff.CLIENTS), SERVER_INT
  )
  def computation(keys, n):
    chosen = tff.federated_select(keys, tff.federated_value(9, tff.SERVER), n, pick)
    return tff.federated_map(count, chosen)

  np.testing.assert_array_equal(computation([[3, 0, 5], [1, 2, 2]], 7), [[3, 0, 5], [1, 2, 2]])


def test_sequence_of_records_keeps_fields_apart_whatever_their_order(in_process):
  element = collections.OrderedDict(y=np.int32, x=tff.TensorType(np.int32, [2]))

  @tff.tensorflow.computation(tff.SequenceType(element))
  def weigh(ds):
    return ds.reduce(0, lambda a, e: a + 100 * e['y'] + tf.reduce_sum(e['x']))

  @tff.tensorflow.computation(element)
  def bump(e):
    return collections.OrderedDict(y=e['y'] + 1, x=e['x'])

  mapped = tff.federated_computation(
    lambda ds: weigh(tff.sequence_map(bump, ds)), tff.SequenceType(element)
  )
  point = collections.namedtuple('point', ['y', 'x'])
  slices = {'x': [[1, 2], [3, 4]], 'y': [1, 2]}
  datasets = [
    [collections.OrderedDict(x=[1, 2], y=1), collections.OrderedDict(y=2, x=[3, 4])],
    tf.data.Dataset.from_tensor_slices(slices),
    tf.data.Dataset.from_tensor_slices(slices).map(lambda e: point(e['y'], e['x'])),
  ]
  assert [weigh(ds) for ds in datasets] == [310, 310, 310]
  assert [mapped(ds) for ds in datasets] == [510, 510, 510]


def test_f13_sums_are_bit_equal_on_both_runtimes():
  compute = tff.federated_computation(
    lambda x, w: tff.federated_mean(x, w), CLIENT_FLOATS, CLIENT_FLOATS
  )
  rng = np.random.default_rng(0)
  values, weights = rng.normal(size=(2, 37)).astype(np.float32)
  results = []
  for name in ('in_process', 'native'):
    with runtime.running(name):
      results.append(compute(list(values), list(weights)))
  assert results[0] == results[1]
