"""Tags on layers: shared by all clients, or personal to each.

A tag is a prefix of the layer's name, because of all that can be said about a layer only the
name survives `clone_model`, `from_config` and every file format, in Keras 2 and Keras 3.
What follows the prefix means nothing, so automatic names may shift.
"""

import re
from typing import TypeVar

from tffpers.keras.backend import keras

LayerT = TypeVar('LayerT', bound=keras.layers.Layer)

PERSONAL = 'personal'
SHARED = 'shared'
# `Bidirectional` puts its own words before the names of its two layers.
_TAG = re.compile(rf'(?:forward_|backward_)*({PERSONAL}|{SHARED})__')
_NAME_IS_READ_ONLY = isinstance(getattr(keras.layers.Layer, 'name', None), property)


def personal(layer: LayerT) -> LayerT:
  """Tags a layer or a whole model as personal: its variables never leave the client.

  The tag is the prefix `personal__` of the layer's name, and so part of what Keras clones
  and saves. It holds for all variables inside, except where a layer inside has a tag of
  its own. Tag the layers inside a subclassed model or a composite layer in its
  constructor, which is what Keras calls when it clones or loads one.

  Args:
    layer: Built or not. With Keras 2 it must not have been called on Keras tensors yet,
      so tag it before it goes into a functional model or a `Sequential` of known input.

  Returns:
    The same object, renamed; as it is if it has this tag already.

  Raises:
    TypeError: `layer` is no Keras layer.
    ValueError: It is tagged `shared`, or can no longer be renamed.

  >>> personal(keras.layers.Dense(10, name='head')).name
  'personal__head'
  """
  return _tag(layer, PERSONAL)


def shared(layer: LayerT) -> LayerT:
  """Tags a layer or a whole model as shared: its variables are the same for all clients.

  Layers without a tag are shared; this one is for layers inside a `personal` one.
  Arguments, result and errors are those of `personal`; the prefix is `shared__`.

  >>> shared(keras.layers.Dense(10, name='encoder')).name
  'shared__encoder'
  """
  return _tag(layer, SHARED)


def tag_of(layer: keras.layers.Layer) -> str | None:
  """`PERSONAL`, `SHARED`, or None for a layer that has no tag itself."""
  match = _TAG.match(layer.name)
  return match[1] if match else None


def untagged_name(layer: keras.layers.Layer) -> str:
  """A layer's name without its tag."""
  return _TAG.sub('', layer.name, count=1)


def _tag(layer: LayerT, tag: str) -> LayerT:
  if not isinstance(layer, keras.layers.Layer):
    raise TypeError(f'Only a Keras layer or model can be tagged {tag}. Received: layer={layer!r}')
  found = tag_of(layer)
  if found not in (None, tag):
    raise ValueError(f'{layer.name} is tagged {found} and cannot be {tag} as well.')
  if found is None:
    _rename(layer, f'{tag}__{layer.name}')
  return layer


def _rename(layer: keras.layers.Layer, name: str) -> None:
  if not _NAME_IS_READ_ONLY:
    layer.name = name
    return
  # A functional model of Keras 2 keeps its graph by the names that its layers had. With a
  # layer renamed later it saves a broken graph, and cloning or loading may never end.
  if layer.inbound_nodes:
    raise ValueError(
      f'{layer.name} is already part of a graph of layers, which Keras 2 could neither clone nor '
      'save under a new name. Tag the layer before it is called or added to a model, or choose '
      f'the personal layers of a finished model by `named`. Received: name={name!r}'
    )
  layer._name = name
