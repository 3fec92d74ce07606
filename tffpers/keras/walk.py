"""Where the variables of a model are: which layer holds each, inside which others."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tffpers.keras.backend import keras


@dataclasses.dataclass(frozen=True)
class Place:
  """A layer where it is held, with the variables that it holds itself.

  Attributes:
    layers: From the model down to the layer.
    variables: Its own variables, without those of the layers inside it.
  """

  layers: tuple[keras.layers.Layer, ...]
  variables: tuple[Any, ...]

  @property
  def layer(self) -> keras.layers.Layer:
    """The layer itself."""
    return self.layers[-1]

  @property
  def path(self) -> str:
    """Names from below the model down to the layer, as in 'encoder/dense'; '' is the model."""
    return self.paths[-1]

  @property
  def paths(self) -> list[str]:
    """Paths of the layers around the layer and of itself; the model's '' only for the model."""
    names = [layer.name for layer in self.layers[1:]]
    return ['/'.join(names[: end + 1]) for end in range(len(names))] or ['']


def places(model: keras.layers.Layer) -> Iterator[Place]:
  """Every layer of a built model at every place where it is held, the model first.

  Depth first, in the order in which each layer or model holds what is inside it. Variables
  that are in no layer's hands, such as `add_weight` on a model, are the model's own.
  """
  return _places((model,))


def children(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
  """The layers that a layer or model holds directly or in lists and dicts, each once."""
  # Keras has no public way to the layers inside wrappers such as RNN.
  return list(layer._flatten_layers(recursive=False, include_self=False))


def check_built(model: keras.layers.Layer) -> None:
  """Raises ValueError for a model whose variables do not exist yet."""
  if not model.built:
    raise ValueError(f'{model.name} has no variables yet: build or call the model first.')


def _places(layers: tuple[keras.layers.Layer, ...]) -> Iterator[Place]:
  inside = children(layers[-1])
  held = {id(variable) for layer in inside for variable in layer.variables}
  yield Place(layers, tuple(v for v in layers[-1].variables if id(v) not in held))
  for layer in inside:
    yield from _places((*layers, layer))
