"""One compiled TensorFlow block of a computation, ready to be called many times.

A block is a `GraphDef` with named inputs and outputs and, where it makes variables
or tables, an operation that initialises them. It is imported once, as concrete
functions. Two things a session would give each call of its own have to be kept apart
here, because all calls share one eager runtime: variables, which become function
inputs fed from a pool, and tables and iterators, which are made afresh per call.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
import itertools

import tensorflow as tf
from tensorflow.python.ops import handle_data_util  # types a resource input; nothing public does

from tffpers.runtime.in_process import graph_def as graph_defs

_uid = itertools.count()


class Graph:
  """A compiled TensorFlow block as a function from flat tensors to flat tensors.

  Args:
    graph_def: The block's graph; changed in place.
    inputs: Name (`'x:0'`) and spec of each input tensor, in call order.
    outputs: Names of the output tensors, in result order.
    initializer: Name of the operation to run before each call, or ''.

  Raises:
    NotImplementedError: The graph holds a shared resource, such as a queue, that
      cannot be kept apart between concurrent calls.
  """

  def __init__(
      self,
      graph_def: tf.compat.v1.GraphDef,
      inputs: Sequence[tuple[str, tf.TensorSpec]],
      outputs: Sequence[str],
      initializer: str,
  ):
    graph_defs.make_function_names_unique(graph_def, f'_tffpers{next(_uid)}')
    fed = [name for name, _ in inputs]
    used = graph_defs.reachable(graph_def, [*outputs, *filter(None, [initializer])], fed)
    graph_defs.refuse_shared_resources(used, graph_def.library)
    self._variables = [node for node in used if node.op == 'VarHandleOp']
    tables = [node for node in used if node.op in graph_defs.ANONYMOUS]
    self._pool = collections.deque([[_make_variable(node) for node in self._variables]])

    resources = [(f'{n.name}:0', tf.TensorSpec((), tf.resource)) for n in self._variables + tables]
    feeds = [*resources, *inputs]
    handles = [variable.handle for variable in self._pool[0]]
    make = [f'{node.name}:0' for node in tables]
    self._tables = _function(graph_def, inputs, make) if tables else None
    self._initialize = _function(graph_def, feeds, [], initializer, handles) if initializer else None
    self._body = _function(graph_def, feeds, outputs, '', handles)

  def __call__(self, args: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Runs the initialiser, then the block, on resources no other running call holds."""
    try:
      variables = self._pool.pop()  # atomic, so no lock
    except IndexError:
      variables = [_make_variable(node) for node in self._variables]
    try:
      tables = self._tables(*args) if self._tables else ()
      feeds = [*(variable.handle for variable in variables), *tables, *args]
      if self._initialize:
        self._initialize(*feeds)
      return self._body(*feeds)
    finally:
      self._pool.append(variables)


def _make_variable(node: tf.compat.v1.NodeDef) -> tf.Variable:
  """An eager variable of the dtype, shape and device of a `VarHandleOp` node."""
  dtype, shape = tf.as_dtype(node.attr['dtype'].type), tf.TensorShape(node.attr['shape'].shape)
  zeros = tf.zeros([] if shape.rank is None else [size or 0 for size in shape], dtype)
  with tf.device(node.device or None):
    return tf.Variable(zeros, dtype=dtype, shape=shape)


def _function(
    graph_def: tf.compat.v1.GraphDef,
    feeds: Sequence[tuple[str, tf.TensorSpec]],
    outputs: Sequence[str],
    initializer: str = '',
    handles: Iterable[tf.Tensor] = (),
) -> Callable[..., Sequence[tf.Tensor]]:
  """Imports what `outputs` (or the initialiser) need as one function of `feeds`."""
  names = [name for name, _ in feeds]
  part = graph_defs.extract(graph_def, [initializer] if initializer else outputs, names)
  wired = graph_defs.input_names(part)

  def body(*args):
    for handle, arg in zip(handles, args):
      handle_data_util.copy_handle_data(handle, arg)
    given = dict(zip(names, args))
    inputs = {name: arg for name, arg in given.items() if name in wired}
    wanted = [initializer] if initializer else [name for name in outputs if name not in given]
    found = tf.import_graph_def(part, input_map=inputs, return_elements=wanted, name='')
    if initializer:
      with tf.control_dependencies(found):
        return [tf.constant(True)]
    given.update(zip(wanted, found))
    return [tf.identity(given[name]) for name in outputs]

  # The public call checks and flattens a signature each time, which costs several times
  # the call itself; the arguments here are flat and checked already.
  return tf.compat.v1.wrap_function(body, [spec for _, spec in feeds])._inference_function
