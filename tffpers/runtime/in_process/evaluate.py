"""Turns TFF's building blocks into Python functions, once per computation.

A block becomes a function from a scope (names bound so far) to a runtime value; a
value of functional type is a Python function of one argument (None where it takes none).
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers.runtime.in_process import graph, intrinsics, values

_Scope = dict[Any, Any]
_Evaluator = Callable[[_Scope], Any]

CLIENTS = object()  # the key under which a scope holds the clients of the running call


class Compiler:
  """Compiles the blocks of one computation; equal TensorFlow blocks are imported once."""

  def __init__(self):
    self._graphs: dict[bytes, Callable[[Any], Any]] = {}

  def compile(self, block: tff.framework.ComputationBuildingBlock) -> _Evaluator:
    """A function from a scope to the value of `block`."""
    for kind, method in _METHODS.items():
      if isinstance(block, kind):
        return method(self, block)
    raise NotImplementedError(
      'The in_process runtime cannot evaluate this kind of TFF building block. '
      f'Received: {type(block).__name__}, type={block.type_signature}'
    )

  def _reference(self, block: tff.framework.Reference) -> _Evaluator:
    name = block.name
    return lambda scope: scope[name]

  def _selection(self, block: tff.framework.Selection) -> _Evaluator:
    source, index = self.compile(block.source), block.as_index()
    return lambda scope: source(scope)[index]

  def _struct(self, block: tff.framework.Struct) -> _Evaluator:
    items = [self.compile(item) for _, item in tff.structure.iter_elements(block)]
    return lambda scope: tuple([item(scope) for item in items])

  def _call(self, block: tff.framework.Call) -> _Evaluator:
    fn = self.compile(block.function)
    if block.argument is None:
      return lambda scope: fn(scope)(None)
    argument = self.compile(block.argument)
    return lambda scope: fn(scope)(argument(scope))

  def _lambda(self, block: tff.framework.Lambda) -> _Evaluator:
    name, result = block.parameter_name, self.compile(block.result)
    return lambda scope: lambda arg: result({**scope, name: arg})

  def _block(self, block: tff.framework.Block) -> _Evaluator:
    bindings = [(name, self.compile(value)) for name, value in block.locals]
    result = self.compile(block.result)

    def evaluate(scope: _Scope) -> Any:
      scope = dict(scope)
      for name, value in bindings:
        scope[name] = value(scope)
      return result(scope)

    return evaluate

  def _intrinsic(self, block: tff.framework.Intrinsic) -> _Evaluator:
    operator = intrinsics.build(block.uri, block.type_signature)
    return lambda scope: operator(scope[CLIENTS])

  def _literal(self, block: tff.framework.Literal) -> _Evaluator:
    value = tf.constant(block.value, tf.as_dtype(block.type_signature.dtype.type))
    return lambda scope: value

  def _compiled(self, block: tff.framework.CompiledComputation) -> _Evaluator:
    key = block.proto.SerializeToString(deterministic=True)
    if key not in self._graphs:
      self._graphs[key] = _tensorflow_function(block)
    function = self._graphs[key]
    return lambda scope: function


_METHODS = {
  tff.framework.Reference: Compiler._reference,
  tff.framework.Selection: Compiler._selection,
  tff.framework.Struct: Compiler._struct,
  tff.framework.Call: Compiler._call,
  tff.framework.Lambda: Compiler._lambda,
  tff.framework.Block: Compiler._block,
  tff.framework.Intrinsic: Compiler._intrinsic,
  tff.framework.Literal: Compiler._literal,
  tff.framework.CompiledComputation: Compiler._compiled,
}


def _tensorflow_function(block: tff.framework.CompiledComputation) -> Callable[[Any], Any]:
  """A compiled TensorFlow block as a function from its argument to its result."""
  if block.proto.WhichOneof('computation') != 'tensorflow':
    raise NotImplementedError(
      'The in_process runtime runs TensorFlow only. '
      f'Received: {block.proto.WhichOneof("computation")} computation'
    )
  tensorflow, signature = block.proto.tensorflow, block.type_signature
  definition = tf.compat.v1.GraphDef()
  tensorflow.graph_def.Unpack(definition)
  flatten, unflatten = values.flattener(signature.parameter), values.unflattener(signature.result)
  outputs = _tensor_names(tensorflow.result)
  if not outputs:  # an empty structure; TensorFlow has no function without results
    return lambda arg: unflatten(iter(()))
  specs = values.tensor_specs(signature.parameter)
  inputs = list(zip(_tensor_names(tensorflow.parameter), specs, strict=True))
  # Only the worker's own bookkeeping reads the token, but it must be fed.
  token = tensorflow.session_token_tensor_name
  run = graph.Graph(
    definition,
    inputs + ([(token, tf.TensorSpec((), tf.string))] if token else []),
    outputs,
    tensorflow.initialize_op,
  )
  extra = [tf.constant('')] if token else []
  return lambda arg: unflatten(iter(run(flatten(arg) + extra)))


def _tensor_names(binding) -> list[str]:
  """The names of the tensors that a TFF binding ties to a type, in the type's order."""
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    return [binding.tensor.tensor_name]
  if kind == 'sequence':
    return [binding.sequence.variant_tensor_name]
  return [name for element in binding.struct.element for name in _tensor_names(element)]
