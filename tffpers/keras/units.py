"""The units of a network that FedPer's K_P counts: stem, blocks, classifier.

A model knows its blocks by its layers' names: `block03_conv1` belongs to block 3 and
`stem_conv` to what comes before the first. Names survive cloning and saving.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tffpers.keras.backend import keras
from tffpers.keras.normalization import normalizes
from tffpers.keras.tags import untagged_name
from tffpers.keras.walk import check_built, children

STEM = 'stem_'
_LABEL = re.compile(rf'(block(\d+)|{STEM[:-1]})_')


def block_name(number: int, name: str) -> str:
  """Name of a layer that belongs to a numbered block of its model.

  Args:
    number: Of the block, from 1 at the input. Layers before block 1 are named `STEM + name`.
    name: Of the layer inside the block.

  Raises:
    ValueError: `number` is below 1.

  >>> block_name(3, 'conv1')
  'block03_conv1'
  """
  if number < 1:
    raise ValueError(f'Blocks are numbered from 1. Received: number={number}')
  return f'block{number:02d}_{name}'


def blocks(model: keras.Model) -> list[tuple[str, list[keras.layers.Layer]]]:
  """The units of a built model from input to output.

  Models inside models are looked into. What comes first applies:

  1. Layers whose names have the same block label, in the same model, are one unit.
  2. A normalisation layer, PReLU or layer without trainable weights belongs to the unit
     before it, or to the first one if there is none.
  3. Every other layer with weights is a unit of its own, with all layers inside it (an
     LSTM, a `Bidirectional`, a composite layer without labels inside).

  A perceptron or a plain convolutional network has so one unit per dense or convolutional
  layer, and a ResNet-34 has its stem, 16 blocks and the classifier.

  The order is that in which the model holds its layers: by depth in a functional model, by
  creation in a subclassed one. Layers side by side, such as two heads, are two units
  unless they share a label.

  Args:
    model: Built Sequential, functional, nested or subclassed model; tags do not matter.

  Returns:
    `(label, layers)` per unit. The label is `stem`, `block03`, or the name of a layer, after
    the names of the models around it. Layers without weights are left out.

  Raises:
    ValueError: The model has not been built, or block numbers do not ascend.

  >>> layers = [keras.layers.Dense(2, name=name) for name in ('hidden', 'logits')]
  >>> [label for label, _ in blocks(keras.Sequential([keras.Input((3,)), *layers]))]
  ['hidden', 'logits']
  """
  check_built(model)
  units: dict[str | int, tuple[str, list[keras.layers.Layer]]] = {}
  first: list[keras.layers.Layer] = []  # Followers before any unit.
  last = first
  seen: set[int] = set()
  for found in _found(model, ''):
    if id(found.layer) in seen:
      continue
    seen.add(id(found.layer))
    if found.labelled or _starts_unit(found.layer):
      key: str | int = found.label if found.labelled else id(found.layer)
      last = units.setdefault(key, (found.label, []))[1]
    last.append(found.layer)
  result = list(units.values())
  if result:
    result[0][1][:0] = first
  return result


class _Found(NamedTuple):
  label: str
  layer: keras.layers.Layer
  labelled: bool


def _found(container: keras.layers.Layer, path: str) -> Iterator[_Found]:
  """The layers with weights that units are made of, with the label or path of each."""
  number = 0
  for layer in children(container):
    match = _LABEL.match(untagged_name(layer))
    if not layer.weights:
      continue
    if match:
      before, number = number, int(match[2] or 0)
      if number < before:
        raise ValueError(
          f'Blocks must be numbered from input to output. Received: {path}{layer.name} after '
          f'block {before}'
        )
      yield _Found(path + match[1], layer, True)
    elif _is_container(layer):
      yield from _found(layer, f'{path}{layer.name}/')
    else:
      yield _Found(path + layer.name, layer, False)


def _is_container(layer: keras.layers.Layer) -> bool:
  inside = layer._flatten_layers(include_self=False)
  return isinstance(layer, keras.Model) or any(_LABEL.match(untagged_name(part)) for part in inside)


def _starts_unit(layer: keras.layers.Layer) -> bool:
  if normalizes(layer) or isinstance(layer, (keras.layers.Normalization, keras.layers.PReLU)):
    return False
  # Freezing a layer hides in Keras 3 which of its weights were trainable.
  frozen = any(not part.trainable for part in layer._flatten_layers())
  return frozen or any(weight.trainable for weight in layer.weights)
