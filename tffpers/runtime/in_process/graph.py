"""One compiled TensorFlow block of a computation, ready to be called many times.

A block is a `GraphDef` with named inputs and outputs and, where it makes variables
or tables, an operation that initialises them. It is imported once, as concrete
functions. Two things a session would give each call of its own have to be kept apart
here, because all calls share one eager runtime: variables, which become function
inputs fed from a pool, and tables and iterators, which are made afresh per call.
"""

import collections
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.ops import handle_data_util  # types a resource input; nothing public does

from tffpers.runtime.in_process import graph_def as graph_defs
from tffpers.runtime.in_process import values

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
    graph_def: GraphDef,
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

    made = [f'{node.name}:0' for node in tables]
    resources = [f'{node.name}:0' for node in self._variables] + made
    feeds = [*((name, tf.TensorSpec((), tf.resource)) for name in resources), *inputs]
    handles = [variable.handle for variable in self._pool[0]]
    self._tables = _function(graph_def, inputs, made) if made else None
    self._initialize = _function(graph_def, feeds, [initializer], handles) if initializer else None
    self._body = _function(graph_def, feeds, outputs, handles)

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


def _make_variable(node: NodeDef) -> tf.Variable:
  """An eager variable of the dtype, shape and device of a `VarHandleOp` node."""
  spec = tf.TensorSpec(node.attr['shape'].shape, tf.as_dtype(node.attr['dtype'].type))
  with tf.device(node.device or None):
    return tf.Variable(values.zeros(spec), dtype=spec.dtype, shape=spec.shape)


def _function(
  graph_def: GraphDef,
  feeds: Sequence[tuple[str, tf.TensorSpec]],
  targets: Sequence[str],
  handles: Sequence[tf.Tensor] = (),
) -> Callable[..., Sequence[tf.Tensor]]:
  """Imports what `targets` need as one function of `feeds`.

  Args:
    graph_def: The whole graph.
    feeds: Names and specs of the tensors to feed.
    targets: Names of tensors to return, or of one operation to run.
    handles: Eager resources like those in the first of the feeds.
  """
  names = [name for name, _ in feeds]
  part = graph_defs.extract(graph_def, targets, names)
  wired = graph_defs.input_names(part)

  def body(*args):
    for handle, arg in zip(handles, args[: len(handles)], strict=True):
      handle_data_util.copy_handle_data(handle, arg)
    given = dict(zip(names, args, strict=True))
    inputs = {name: arg for name, arg in given.items() if name in wired}
    wanted = [name for name in targets if name not in given]
    found = tf.import_graph_def(part, input_map=inputs, return_elements=wanted, name='')
    if found and isinstance(found[0], tf.Operation):
      with tf.control_dependencies(found):
        return [tf.constant(True)]
    given.update(zip(wanted, found, strict=True))
    return [tf.identity(given[name]) for name in targets]

  # The public call checks and flattens a signature each time, which costs several times
  # the call itself; the arguments here are flat and checked already.
  return tf.compat.v1.wrap_function(body, [spec for _, spec in feeds])._inference_function
