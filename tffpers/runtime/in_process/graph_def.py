"""What has to be changed in a `GraphDef` before the eager runtime can take it."""

from collections.abc import Iterable, Iterator, Sequence

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

# Resource makers that TensorFlow can also make anonymously, so that two calls never meet.
ANONYMOUS = {
  'HashTableV2': 'AnonymousHashTable',
  'MutableHashTableV2': 'AnonymousMutableHashTable',
  'MutableHashTableOfTensorsV2': 'AnonymousMutableHashTableOfTensors',
  'MutableDenseHashTableV2': 'AnonymousMutableDenseHashTable',
  'IteratorV2': 'AnonymousIteratorV3',
}
_SHARING = ('container', 'shared_name', 'use_node_name_sharing')


def reachable(graph_def: GraphDef, targets: Iterable[str], fed: Iterable[str]) -> list[NodeDef]:
  """The nodes that `targets` depend on, in the graph's order, short of the `fed` tensors."""
  nodes = {node.name: node for node in graph_def.node}
  stop = {_node_name(name) for name in fed}
  seen: set[str] = set()
  todo = [_node_name(name) for name in targets]
  while todo:
    name = todo.pop()
    if name not in seen and name not in stop:
      seen.add(name)
      todo.extend(_node_name(source) for source in nodes[name].input)
  return [node for node in graph_def.node if node.name in seen]


def extract(graph_def: GraphDef, targets: Sequence[str], fed: Sequence[str]) -> GraphDef:
  """The part of the graph, and of its function library, that `targets` need.

  Tables and iterators left in it are made anonymously, and co-location with nodes
  that may have been cut off is dropped.
  """
  part = GraphDef(versions=graph_def.versions)
  part.node.extend(reachable(graph_def, targets, fed))
  for node in part.node:
    node.attr.pop('_class', None)
    if node.op in ANONYMOUS:
      node.op = ANONYMOUS[node.op]
      for key in _SHARING:
        node.attr.pop(key, None)
  part.library.CopyFrom(_used_library(part.node, graph_def.library))
  return part


def input_names(graph_def: GraphDef) -> set[str]:
  """The tensors (`'x:0'`) that nodes of the graph take as inputs."""
  names = (name for node in graph_def.node for name in node.input if not name.startswith('^'))
  return {name if ':' in name else f'{name}:0' for name in names}


def make_function_names_unique(graph_def: GraphDef, suffix: str) -> None:
  """Appends `suffix` to the name of every function of the graph's library.

  Graphs are traced apart, and the eager runtime has one table of functions for all.
  """
  library = graph_def.library
  renamed = {f.signature.name: f.signature.name + suffix for f in library.function}
  for function in library.function:
    function.signature.name = renamed[function.signature.name]
    _rename_in_attrs(function.attr.values(), renamed)
  for gradient in library.gradient:
    gradient.function_name = renamed[gradient.function_name]
    gradient.gradient_func = renamed[gradient.gradient_func]
  for node in _all_nodes(graph_def.node, library):
    node.op = renamed.get(node.op, node.op)
    _rename_in_attrs(node.attr.values(), renamed)


def refuse_shared_resources(nodes: Iterable[NodeDef], library) -> None:
  """Raises `NotImplementedError` for resources found by name, which calls would share."""
  top = [n for n in nodes if n.op != 'VarHandleOp' and n.op not in ANONYMOUS]
  for node in _all_nodes(top, _used_library(top, library)):
    if 'shared_name' in node.attr:
      raise NotImplementedError(
        'This TensorFlow resource would be shared between clients that run at the same time; '
        'expected variables, lookup tables and datasets only, or the `native` runtime. '
        f'Received: op={node.op!r}, node={node.name!r}'
      )


def _node_name(name: str) -> str:
  return name.lstrip('^').split(':')[0]


def _all_nodes(nodes: Iterable[NodeDef], library) -> Iterator[NodeDef]:
  yield from nodes
  for function in library.function:
    yield from function.node_def


def _used_library(nodes: Iterable[NodeDef], library):
  """The functions of `library` that `nodes` call, directly or through one another."""
  functions = {f.signature.name: f for f in library.function}
  gradients = {g.function_name: g for g in library.gradient}
  used: dict[str, None] = {}
  todo = list(nodes)
  while todo:
    node = todo.pop()
    for name in [node.op, *_function_names(node.attr.values())]:
      if name in functions and name not in used:
        used[name] = None
        todo.extend(functions[name].node_def)
        if name in gradients:
          used[gradients[name].gradient_func] = None
          todo.extend(functions[gradients[name].gradient_func].node_def)
  kept = type(library)()
  kept.function.extend(functions[name] for name in used)
  kept.gradient.extend(gradients[name] for name in used if name in gradients)
  return kept


def _functions_in(attrs) -> Iterator:
  for attr in attrs:
    values = [attr.func, *attr.list.func] if attr.HasField('func') else attr.list.func
    for function in values:
      yield function
      yield from _functions_in(function.attr.values())


def _function_names(attrs) -> Iterator[str]:
  return (function.name for function in _functions_in(attrs))


def _rename_in_attrs(attrs, renamed: dict[str, str]) -> None:
  attrs = list(attrs)
  for function in _functions_in(attrs):
    function.name = renamed.get(function.name, function.name)
  for attr in attrs:
    # Keras' recurrent layers name their forward and backward functions in plain strings.
    name = attr.s.decode('utf-8', 'ignore') if attr.HasField('s') else ''
    if name in renamed:
      attr.s = renamed[name].encode()
