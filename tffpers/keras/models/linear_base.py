"""FedPer's linear base: do the layers of a base learn anything (arXiv 1912.00818)?"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.tags import untagged_name
from tffpers.keras.units import blocks
from tffpers.keras.walk import check_built

_NAME = 'linear_base'
# 1 GB in float32, of which a training client holds several: weights, gradient, the server's.
_MOST_WEIGHTS = 250_000_000


def linear_base(model: keras.Model, k_p: int) -> keras.Model:
  """The model with one linear map in the place of all layers before its last K_P units.

  The base becomes Flatten → Dense without activation, x W + b → Reshape, to the shape of the
  base's output; the layers after it are the model's own. FedPer of the result with
  `last_blocks(k_p)` shares and averages the map, its first unit, and keeps the same units
  personal as of the model itself.

  The base's output is the last tensor that all of the last K_P units are computed from, and
  nothing else. Layers without weights between the base and them, such as pooling, flattening
  and dropout, so belong to the base and go, as they belong to the unit before them for
  `blocks`; those whose names have the label of a block that stays, stay. Whatever the model
  does to its input, rescaling included, is part of the base: scale the data instead.

  W has (numbers in an input) × (numbers in the base's output) entries: 3072 · 8192, some 25
  million, for a ResNet-34 and images of 32² with k_p = 2.

  Args:
    model: Built functional or Sequential model of one input and one output, all of whose
      dimensions but the batch are fixed. It stays as it is and shares its last layers, their
      weights included, with the result.
    k_p: Number of units, as `blocks` counts them, that stay.

  Returns:
    A functional model. The map is its layer `linear_base`.

  Raises:
    TypeError: The model is subclassed.
    ValueError: It has not been built or has several inputs or outputs; `k_p` is not in
      [1, units − 1]; the last units need more than one tensor of what is before them, such as
      a residual link; they begin inside a model inside the model; the base's input or output
      has a dimension that is not fixed; or W would have over 250 million entries.

  >>> layers = [keras.layers.Dense(size) for size in (5, 4, 2)]
  >>> result = linear_base(keras.Sequential([keras.Input((3,)), *layers]), 1)
  >>> [label for label, _ in blocks(result)][:1], result.count_params()
  (['linear_base'], 26)
  """
  inputs, outputs = _input_and_output(model)
  base_output = _base_output(model, outputs, _units(model, k_p))
  size = _size(model, inputs, base_output)
  new = keras.Input(tuple(inputs.shape)[1:], dtype=inputs.dtype)
  x = keras.layers.Flatten(name=f'{_NAME}_flatten')(new)
  x = keras.layers.Dense(size, name=_NAME)(x)
  x = keras.layers.Reshape(tuple(base_output.shape)[1:], name=f'{_NAME}_reshape')(x)
  return keras.Model(new, _again(outputs, {_key(base_output): x}), name=f'{model.name}_{_NAME}')


def _input_and_output(model: keras.Model) -> tuple[Any, Any]:
  check_built(model)
  inputs, outputs = getattr(model, 'inputs', None), getattr(model, 'outputs', None)
  if not inputs or not outputs:
    raise TypeError(
      'Only a functional or Sequential model shows what its layers are computed from. '
      f'Received: model={model.name} of type {type(model).__name__}'
    )
  if len(inputs) != 1 or len(outputs) != 1:
    raise ValueError(
      f'{model.name} must have one input and one output. '
      f'Received: {len(inputs)} inputs and {len(outputs)} outputs'
    )
  return inputs[0], outputs[0]


class _Units(NamedTuple):
  """Ids of the layers in the units that go and stay, and block labels of the latter."""

  go: set[int]
  stay: set[int]
  labels: tuple[str, ...]


def _units(model: keras.Model, k_p: int) -> _Units:
  units = blocks(model)
  if isinstance(k_p, bool) or not isinstance(k_p, int) or not 1 <= k_p < len(units):
    raise ValueError(
      f'k_p must be an integer from 1 to {len(units) - 1}: {model.name} has the units '
      f'{[label for label, _ in units]}, of which the first always goes. Received: k_p={k_p!r}'
    )
  go, stay = units[:-k_p], units[-k_p:]
  return _Units(
    {id(layer) for _, layers in go for layer in layers},
    {id(layer) for _, layers in stay for layer in layers},
    tuple(f'{label}_' for label, layers in stay if untagged_name(layers[0]) != label),
  )


def _base_output(model: keras.Model, outputs: Any, units: _Units) -> Any:
  """The tensor before the units that stay with the fewest layers after it."""
  layers, tensors = _behind(outputs, None)
  stay = {id(layer) for layer in layers if _stays(model, layer, units)}
  go = {id(layer) for layer in layers if _holds(layer, units.go)}
  found: list[tuple[int, int, Any]] = []
  for tensor in tensors:
    after, reached = _behind(outputs, tensor)
    ids = {id(layer) for layer in after}
    if stay <= ids and not go & ids and not any(_is_input(other) for other in reached):
      found.append((len(after), len(found), tensor))
  if not found:
    raise ValueError(
      f'No single tensor of {model.name} is all that its last units are computed from, as with a '
      'residual link over the cut or with branches side by side. '
      f'Received: units that stay with the layers {_names(layers, stay)}'
    )
  return min(found)[-1]


def _stays(model: keras.Model, layer: keras.layers.Layer, units: _Units) -> bool:
  stays = _holds(layer, units.stay)
  if stays and _holds(layer, units.go):
    raise ValueError(
      f'The last units must begin between layers of {model.name} itself. Received: they begin '
      f'inside {layer.name}'
    )
  return stays or (not layer.weights and untagged_name(layer).startswith(units.labels))


def _holds(layer: keras.layers.Layer, ids: set[int]) -> bool:
  return any(id(part) in ids for part in layer._flatten_layers())


def _names(layers: Sequence[keras.layers.Layer], ids: set[int]) -> list[str]:
  return [layer.name for layer in reversed(layers) if id(layer) in ids]


def _behind(outputs: Any, cut: Any) -> tuple[list[keras.layers.Layer], list[Any]]:
  """Layers and tensors that `outputs` is computed from, in both cases no further than `cut`."""
  layers: dict[int, keras.layers.Layer] = {}
  tensors: dict[Any, Any] = {}
  waiting = [outputs]
  while waiting:
    tensor = waiting.pop()
    if _key(tensor) in tensors or (cut is not None and _key(tensor) == _key(cut)):
      continue
    tensors[_key(tensor)] = tensor
    layer = tensor._keras_history[0]
    layers[id(layer)] = layer
    waiting += _arguments(tensor)
  return list(layers.values()), list(tensors.values())


def _again(tensor: Any, known: dict[Any, Any]) -> Any:
  """The tensor as its layers compute it from `known` ones; their values are added there.

  A model of the layers between two tensors would do, but Keras 2 has none inside a graph,
  which is where a federated computation builds its model.
  """
  if _key(tensor) not in known:
    layer, index, _ = tensor._keras_history
    args, kwargs = _call(layer._inbound_nodes[index])
    args, kwargs = tf.nest.map_structure(
      lambda t: _again(t, known) if hasattr(t, '_keras_history') else t, (args, kwargs)
    )
    for position, output in enumerate(tf.nest.flatten(layer(*args, **kwargs))):
      known[id(layer), index, position] = output
  return known[_key(tensor)]


def _call(node: Any) -> tuple[Any, Any]:
  """Arguments of a layer's call, in Keras 3 or Keras 2."""
  if hasattr(node, 'arguments'):
    return node.arguments.args, node.arguments.kwargs
  return node.call_args, node.call_kwargs


def _key(tensor: Any) -> tuple[int, int, int]:
  layer, node, position = tensor._keras_history
  return id(layer), node, position


def _is_input(tensor: Any) -> bool:
  return not _arguments(tensor)


def _arguments(tensor: Any) -> list[Any]:
  """The Keras tensors that the call which made a tensor was given."""
  layer, index, _ = tensor._keras_history
  node = layer._inbound_nodes[index]
  # `input_tensors` is a list in Keras 3; in Keras 2 it is as nested as the call's argument.
  return list(node.keras_inputs if hasattr(node, 'keras_inputs') else node.input_tensors)


def _size(model: keras.Model, inputs: Any, base_output: Any) -> int:
  """Numbers in the base's output, if the map to them can be made."""
  shapes = [tuple(tensor.shape)[1:] for tensor in (inputs, base_output)]
  if any(size is None for shape in shapes for size in shape):
    raise ValueError(
      f'{model.name} must have fixed sizes for a dense layer from its input to the output of its '
      f'base. Received: shapes {shapes[0]} and {shapes[1]}'
    )
  size_in, size_out = map(math.prod, shapes)
  if size_in * size_out > _MOST_WEIGHTS:
    raise ValueError(
      f'A linear base of {model.name} would have {size_in} · {size_out} = {size_in * size_out:,} '
      f'weights; expected at most {_MOST_WEIGHTS:,}: take smaller images or a smaller k_p. '
      f'Received: input of shape {shapes[0]}, base output of shape {shapes[1]}'
    )
  return size_out
