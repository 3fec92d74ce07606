"""Rules that say which variables of a Keras model are personal: FedPer's partitions.

A rule is a function from a built model to its `Partition`. Nothing personal is federated
averaging; everything personal, which `named` can say, is local training.
"""

from collections.abc import Callable
from typing import TypeAlias

from tffpers.keras.backend import keras
from tffpers.keras.normalization import check_choice
from tffpers.keras.partition import Partition, partition_by
from tffpers.keras.tags import PERSONAL, tag_of
from tffpers.keras.units import blocks
from tffpers.keras.walk import Place, places

Rule: TypeAlias = Callable[[keras.Model], Partition]


def tagged(*, normalization: str = 'as_layer') -> Rule:
  """Personal is what lies inside layers tagged `personal`; see `tffpers.keras.personal`.

  The innermost tagged layer or model around a variable decides; without one it is shared.

  Args:
    normalization: Where the variables of normalisation layers go. `as_layer`: where the
      rule puts any other layer's. `personal`: all are personal (FedBN, arXiv 2102.07623).
      `personal_statistics`: the moving statistics of batch normalisation are personal,
      scale and offset go where the rule puts them (SiloBN, arXiv 2008.07424).

  Returns:
    The rule. It raises ValueError for a model that has not been built or has nothing to
    train; that has no weights tagged personal, which is what losing the tags looks like
    (FedBN alone is `last_blocks(0, normalization='personal')`); whose same variable is in
    a personal and in a shared place; or without the normalisation layers asked for.

  Raises:
    ValueError: `normalization` is none of its choices.

  >>> from tffpers.keras.tags import personal
  >>> head = personal(keras.layers.Dense(2))
  >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), head])
  >>> tagged()(model).trainable
  (False, False, True, True)
  """
  check_choice(normalization)

  def is_personal(place: Place) -> bool:
    tags = [tag for tag in map(tag_of, place.layers) if tag]
    return tags[-1:] == [PERSONAL]

  def rule(model: keras.Model) -> Partition:
    return _matching(model, is_personal, 'is tagged personal', normalization)

  return rule


def named(predicate: Callable[[str], bool], *, normalization: str = 'as_layer') -> Rule:
  """Personal is what lies inside layers chosen by their paths.

  Args:
    predicate: From a layer's path, its name after those of the layers around it as in
      'encoder/block_2/dense', to whether all inside it is personal. For variables that the
      model itself holds it is asked about ''. Name the layers that it looks for:
      automatic names change when a model is made again.
    normalization: As in `tagged`.

  Returns:
    The rule, which raises as that of `tagged` does; `lambda path: True` makes everything
    personal.

  Raises:
    TypeError: `predicate` is no function.
    ValueError: `normalization` is none of its choices.

  >>> layers = [keras.layers.Dense(2, name=name) for name in ('hidden', 'logits')]
  >>> model = keras.Sequential([keras.Input((3,)), *layers])
  >>> named(lambda path: path == 'logits')(model).personal_names
  ['logits/kernel', 'logits/bias']
  """
  if not callable(predicate):
    raise TypeError(f'predicate must be a function of a path. Received: predicate={predicate!r}')
  check_choice(normalization)

  def is_personal(place: Place) -> bool:
    return any(predicate(path) for path in place.paths)

  def rule(model: keras.Model) -> Partition:
    return _matching(model, is_personal, 'matches the predicate', normalization)

  return rule


def last_blocks(k: int, *, normalization: str = 'as_layer') -> Rule:
  """Personal are the last k units of a network, FedPer's K_P (arXiv 1912.00818).

  0: nothing, which is federated averaging; 1: the classifier; 2: and the last block; …
  The units are those of `tffpers.keras.blocks`. Its first, the stem, is never personal,
  nor are variables that a model itself holds.

  Args:
    k: Number of units counted from the output.
    normalization: As in `tagged`.

  Returns:
    The rule. It raises ValueError for a model of fewer than k + 1 units, and as that of
    `tagged` does.

  Raises:
    ValueError: `k` is no integer of at least 0, or `normalization` none of its choices.

  >>> layers = [keras.layers.Dense(2) for _ in range(3)]
  >>> last_blocks(1)(keras.Sequential([keras.Input((3,)), *layers])).trainable
  (False, False, False, False, True, True)
  """
  if isinstance(k, bool) or not isinstance(k, int) or k < 0:
    raise ValueError(f'k must be an integer of at least 0. Received: k={k!r}')
  check_choice(normalization)

  def rule(model: keras.Model) -> Partition:
    units = blocks(model)
    if k >= max(len(units), 1):
      raise ValueError(
        f'{model.name} has {len(units)} units, {[label for label, _ in units]}, of which the '
        f'first is never personal: k can be at most {max(len(units) - 1, 0)}. Received: k={k}'
      )
    chosen = {id(layer) for _, layers in units[len(units) - k :] for layer in layers}
    return partition_by(
      model, lambda place: any(id(layer) in chosen for layer in place.layers), normalization
    )

  return rule


def _matching(
  model: keras.Model, is_personal: Callable[[Place], bool], condition: str, normalization: str
) -> Partition:
  """The partition of a rule that must make something personal."""
  partition = partition_by(model, is_personal, normalization)
  # In Keras 3 the seeds of dropout are variables too, but no weights.
  weights = {id(weight) for weight in model.weights}
  holders = [p for p in places(model) if any(id(variable) in weights for variable in p.variables)]
  if not any(map(is_personal, holders)):
    paths = list(dict.fromkeys(place.path for place in holders))
    raise ValueError(f'No layer of {model.name} with weights {condition}. Received layers: {paths}')
  return partition
