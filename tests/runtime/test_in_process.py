import asyncio
import collections
import gc
import os
import threading
import time

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import runtime
from tffpers.runtime import in_process as in_process_runtime

FLOATS = tff.TensorType(np.float32, [None])
CLIENT_FLOATS = tff.FederatedType(FLOATS, tff.CLIENTS)
CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)


def mapped(fn, client_type):
  fn = tff.tensorflow.computation(fn, client_type)
  return tff.federated_computation(
    lambda x: tff.federated_map(fn, x), tff.FederatedType(client_type, tff.CLIENTS)
  )


@pytest.fixture
def sum_up(in_process):
  return tff.federated_computation(lambda x: (x, tff.federated_sum(x)), CLIENT_INTS)


@pytest.mark.parametrize('number', [1, 99, 100, 300])
@pytest.mark.parametrize('container', [list, tuple, iter])
def test_f8_clients_come_in_any_iterable_and_keep_their_order(sum_up, number, container):
  items, total = sum_up(container(range(number)))
  assert items == list(range(number))
  assert total == number * (number - 1) // 2


def test_no_clients_sum_to_zero(sum_up):
  assert sum_up([]) == ([], 0)


def test_i4_call_inside_a_running_event_loop(sum_up):
  async def main():
    return sum_up([1, 2])

  assert asyncio.run(main()) == sum_up([1, 2])


def test_i4_native_call_inside_a_running_event_loop():
  compute = tff.federated_computation(tff.federated_sum, CLIENT_INTS)

  async def main():
    with runtime.running('native'):
      return compute([1, 2])

  assert asyncio.run(main()) == 3


def variable_counter(steps):
  def count(x):
    variable = tf.Variable(0)

    @tf.function
    def loop():
      for _ in tf.range(steps):
        variable.assign_add(x)
      return variable.read_value()

    return loop()

  return mapped(count, np.int32)


def test_variables_are_not_shared_between_clients_nor_kept_between_calls(in_process):
  count = variable_counter(steps=50)
  for _ in range(3):
    assert count(range(100)) == [50 * i for i in range(100)]


def test_tables_and_iterators_are_not_shared_between_clients(in_process):
  def look_up(x):
    keys = tf.constant(['a', 'b'])
    fixed = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [x, -x]), 0)
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int32, 0)
    dense = tf.lookup.experimental.DenseHashTable(tf.int32, tf.int32, 0, -1, -2)
    iterator = tf.compat.v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(x))
    with tf.control_dependencies(
      [table.insert(keys, [x, x]), dense.insert(x, x), iterator.initializer]
    ):
      return fixed.lookup(keys)[1], table.size(), dense.size(), iterator.get_next()

  with tf.device('/cpu:0'):
    compute = mapped(look_up, np.int32)
  for _ in range(3):
    assert compute(range(40)) == [(-i, 2, 1, i) for i in range(40)]


def test_queue_is_refused_by_name(in_process):
  def through_queue(x):
    queue = tf.queue.FIFOQueue(3, tf.int32)
    with tf.control_dependencies([queue.enqueue(x)]):
      return queue.dequeue()

  compute = mapped(through_queue, np.int32)
  with pytest.raises(NotImplementedError, match='FIFOQueue'):
    compute([1])


def test_control_flow_datasets_and_functions_of_two_graphs_do_not_collide(in_process):
  def build(factor):
    @tf.function
    def scale(x):
      return factor * x

    def compute(ds):
      total = ds.map(scale).reduce(0, lambda a, b: a + b)
      for element in ds:
        if element > 2:
          total += scale(element)
      return tf.while_loop(lambda t: t < 100, lambda t: (t + scale(1),), [total])[0]

    return mapped(tf.function(compute), tff.SequenceType(np.int32))

  two, seven = build(2), build(7)
  # 2·(1+2+3) + 2·3 = 18, then up to 100; 7·6 + 7·3 = 63, then 70 … 105.
  assert two([[1, 2, 3], []]) == [100, 100]
  assert seven([[1, 2, 3], [20]]) == [105, 280]


def test_p2_nothing_is_traced_after_the_first_call(in_process):
  traces = []

  def step(x):
    variable = tf.Variable(2.0)

    @tf.function
    def body(x):
      traces.append(None)
      return tf.reduce_sum(x * variable)

    return body(x)

  compute = mapped(step, FLOATS)
  compute([np.ones(3, np.float32)])
  before = len(traces)
  for size in range(10):
    assert compute([np.ones(size + i, np.float32) for i in range(size)]) == [
      2.0 * (size + i) for i in range(size)
    ]
  assert len(traces) == before


def run_at(parallelism, compute, values):
  context = in_process_runtime.InProcessContext(parallelism)
  with tff.framework.get_context_stack().install(context):
    return compute(values)


def test_f13_parallelism_and_repetition_do_not_change_a_bit():
  @tff.tensorflow.computation(FLOATS)
  def work(x):
    weights = tf.Variable(tf.random.stateless_normal([50], seed=[1, 2]))
    for _ in range(3):
      weights.assign_add(0.1 * tf.tanh(weights * tf.reduce_sum(x)))
    return weights.read_value()

  compute = tff.federated_computation(
    lambda x: (tff.federated_map(work, x), tff.federated_mean(tff.federated_map(work, x))),
    CLIENT_FLOATS,
  )
  rng = np.random.default_rng(0)
  values = [rng.normal(size=n).astype(np.float32) for n in range(23)]
  runs = [run_at(p, compute, values) for p in (1, 2, 8, 8)]
  for clients, mean in runs[1:]:
    np.testing.assert_array_equal(clients, runs[0][0])
    np.testing.assert_array_equal(mean, runs[0][1])


def test_no_more_clients_than_the_parallelism_work_at_once():
  running, most, lock = [0], [0], threading.Lock()

  def enter(x):
    with lock:
      running[0] += 1
      most[0] = max(most[0], running[0])
    time.sleep(0.01)
    with lock:
      running[0] -= 1
    return x

  from tffpers.runtime.in_process import clients

  assert clients.Threads(3).map(enter, list(range(12))) == list(range(12))
  assert most[0] == 3


@pytest.mark.parametrize('parallelism', [0, -1])
def test_parallelism_below_one_is_refused(parallelism):
  with pytest.raises(ValueError, match='parallelism=' + str(parallelism)):
    in_process_runtime.InProcessContext(parallelism)


def test_error_inside_a_client_names_the_first_that_failed(in_process):
  def positive(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x)]):
      return tf.identity(x)

  compute = mapped(positive, np.int32)
  with pytest.raises(in_process_runtime.ClientError, match='position 2 of 5') as caught:
    compute([1, 1, -1, 1, -1])
  assert caught.value.position == 2
  assert compute([1, 2]) == [1, 2]


RECORD = collections.OrderedDict(x=FLOATS, y=np.int32)


@attrs.define
class Record:
  x: object
  y: object


GOOD = {
  'numpy': {'x': np.ones(2, np.float32), 'y': np.int32(3)},
  'tensors': {'x': tf.ones(2), 'y': tf.constant(3)},
  'variable': {'x': tf.Variable([1.0, 1.0]), 'y': 3},
  'numbers': {'x': [1.0, 1.0], 'y': 3},
  'other order': collections.OrderedDict(y=3, x=[1.0, 1.0]),
  'named tuple': collections.namedtuple('R', ['x', 'y'])([1.0, 1.0], 3),
  'attrs': Record([1.0, 1.0], 3),
  'tuple': ([1.0, 1.0], 3),
  'struct': tff.structure.Struct([('x', [1.0, 1.0]), ('y', 3)]),
  'small integer': {'x': [1.0, 1.0], 'y': np.int16(3)},
}


@pytest.mark.parametrize('name', GOOD)
def test_argument_in_any_container_and_kind(in_process, name):
  compute = mapped(lambda r: (tf.reduce_sum(r['x']), r['y']), RECORD)
  assert compute([GOOD[name]]) == [(2.0, 3)]


BAD = {
  'dtype': (
    {'x': np.ones(2), 'y': 3},
    r'position 1: argument\.x: expected float32\[\?\].*float64\[2\]',
  ),
  'tensor dtype': (
    {'x': tf.ones(2, tf.float64), 'y': 3},
    r'argument\.x: expected float32.*float64',
  ),
  'rank': ({'x': tf.ones([2, 2]), 'y': 3}, r'argument\.x: expected float32\[\?\].*float32\[2, 2\]'),
  'kind': ({'x': [1.0], 'y': 3.5}, r'argument\.y: expected int32\[\].*float 3\.5'),
  'range': ({'x': [1.0], 'y': 2**40}, r'argument\.y: expected int32'),
  'ragged': ({'x': [[1.0], [1.0, 2.0]], 'y': 3}, r'argument\.x: expected float32'),
  'missing field': ({'x': [1.0]}, r"expected fields \['x', 'y'\].*\['x'\]"),
  'other field': ({'x': [1.0], 'z': 1}, r"expected fields \['x', 'y'\].*\['x', 'z'\]"),
  'no structure': (5, r'expected a structure.*int 5'),
}


@pytest.mark.parametrize('name', BAD)
def test_d6_argument_of_the_wrong_type_is_named(in_process, name):
  bad, message = BAD[name]
  compute = mapped(lambda r: r['y'], RECORD)
  with pytest.raises(TypeError, match=message):
    compute([GOOD['numpy'], bad])


@pytest.mark.parametrize('bad', [5, {'a': 1}, np.ones(3, np.int32), 'abc'])
def test_clients_in_no_list_are_refused(sum_up, bad):
  with pytest.raises(TypeError, match='one item per client'):
    sum_up(bad)


def test_different_numbers_of_clients_are_named(in_process):
  compute = tff.federated_computation(
    lambda x, y: tff.federated_zip((x, y)), CLIENT_INTS, CLIENT_INTS
  )
  with pytest.raises(ValueError, match=r"'argument.x': 2, 'argument.y': 3"):
    compute([1, 2], [1, 2, 3])


def test_dataset_of_other_elements_is_refused(in_process):
  compute = mapped(lambda ds: ds.reduce(0, lambda a, b: a + b), tff.SequenceType(np.int32))
  with pytest.raises(TypeError, match='position 0: argument: expected a dataset of int32'):
    compute([tf.data.Dataset.range(3)])


def test_results_are_what_the_native_runtime_returns():
  @attrs.define
  class Result:
    a: object
    b: object

  @tff.tensorflow.computation(FLOATS)
  def compute(x):
    return Result(
      a=collections.OrderedDict(v=x, s=tf.reduce_sum(x)), b=[tf.constant('é'), tf.constant(['s'])]
    )

  results = {}
  for name in ('in_process', 'native'):
    with runtime.running(name):
      results[name] = compute(np.ones(2, np.float32))
  ours, theirs = results['in_process'], results['native']
  assert type(ours) is type(theirs) is Result
  for a, b in zip(
    tf.nest.flatten([ours.a, ours.b]), tf.nest.flatten([theirs.a, theirs.b]), strict=True
  ):
    assert type(a) is type(b)
    np.testing.assert_array_equal(a, b)
  with pytest.raises(ValueError, match='read-only'):
    ours.a['v'][0] = 5.0


def test_result_does_not_change_with_the_argument(in_process):
  compute = mapped(lambda x: x, FLOATS)
  argument = np.ones(1000, np.float32)
  (result,) = compute([argument])
  argument[:] = 0.0
  assert result.sum() == 1000.0


def test_call_while_a_graph_is_built_is_refused(sum_up):
  with tf.Graph().as_default(), pytest.raises(RuntimeError, match='graph is built'):
    sum_up([1])


def rss():
  with open(f'/proc/{os.getpid()}/statm') as file:
    return int(file.read().split()[1])


def test_p1_memory_is_flat_over_rounds_of_changing_numbers_of_clients(in_process):
  def local(x):
    weights = tf.Variable(tf.zeros([100_000]))
    weights.assign_add(tf.fill([100_000], tf.reduce_sum(x)))
    return weights.read_value()

  local = tff.tensorflow.computation(local, FLOATS)
  compute = tff.federated_computation(
    lambda x: tff.federated_mean(tff.federated_map(local, x)), CLIENT_FLOATS
  )
  for round_num in range(200):
    number = 3 + round_num % 11
    compute([np.ones(1 + i, np.float32) for i in range(number)])
    if round_num == 50:
      gc.collect()
      before = rss()
  assert rss() < 1.2 * before


def test_computations_that_are_gone_leave_nothing_behind():
  context = in_process_runtime.InProcessContext(2)
  with tff.framework.get_context_stack().install(context):
    for i in range(3):
      compute = tff.tensorflow.computation(lambda: tf.constant(i))  # noqa: B023
      assert compute() == i
  del compute
  gc.collect()
  assert not context._by_object
  assert not context._by_content
