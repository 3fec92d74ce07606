"""Which variables of a Keras model are shared by all clients and which are personal.

`tffpers.keras.rules` has the rules that make a `Partition` of a model.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tffpers.keras.backend import keras
from tffpers.keras.normalization import personal_variables
from tffpers.keras.walk import Place, check_built, places

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Partition:
  """Which of a model's variables are personal, by position and never by name.

  Partitions of two models made by the same function are equal whatever names Keras gave.

  Attributes:
    trainable: True for each personal one of `model.trainable_variables`, in their order.
    non_trainable: The same for `model.non_trainable_variables`.
    sizes: Numbers of scalars of all variables, the trainable ones first.
    names: Paths of all variables, such as 'encoder/dense/kernel', for reports.
  """

  trainable: tuple[bool, ...]
  non_trainable: tuple[bool, ...]
  sizes: tuple[int, ...]
  names: tuple[str, ...] = dataclasses.field(compare=False)

  @property
  def num_shared(self) -> int:
    """Number of scalars in shared variables, whether trained or not."""
    return sum(_split(self._all, self.sizes)[0])

  @property
  def num_personal(self) -> int:
    """Number of scalars in personal variables, whether trained or not."""
    return sum(_split(self._all, self.sizes)[1])

  @property
  def shared_names(self) -> list[str]:
    """Paths of the shared variables."""
    return _split(self._all, self.names)[0]

  @property
  def personal_names(self) -> list[str]:
    """Paths of the personal variables."""
    return _split(self._all, self.names)[1]

  def split(self, values: Sequence[T]) -> tuple[list[T], list[T]]:
    """`(shared, personal)` of one value per trainable variable, such as values or gradients.

    Raises:
      ValueError: There is not one value per variable.

    >>> half = Partition((False, True), (), (4, 2), ('kernel', 'bias'))
    >>> half.split(['W', 'b'])
    (['W'], ['b'])
    """
    return _split(self.trainable, values)

  def join(self, shared: Sequence[T], personal: Sequence[T]) -> list[T]:
    """Undoes `split`: one value per trainable variable, in the model's order.

    Raises:
      ValueError: The numbers of shared or personal values are not the partition's.
    """
    return _join(self.trainable, shared, personal)

  def split_non_trainable(self, values: Sequence[T]) -> tuple[list[T], list[T]]:
    """`split` for one value per variable that is not trained."""
    return _split(self.non_trainable, values)

  def join_non_trainable(self, shared: Sequence[T], personal: Sequence[T]) -> list[T]:
    """`join` for the variables that are not trained."""
    return _join(self.non_trainable, shared, personal)

  @property
  def _all(self) -> tuple[bool, ...]:
    return self.trainable + self.non_trainable


def partition_by(
  model: keras.Model, is_personal: Callable[[Place], bool], normalization: str
) -> Partition:
  """The partition of a built model in which a place decides about its own variables.

  Args:
    model: Any Keras model.
    is_personal: Whether the variables that a layer holds itself are personal there.
    normalization: See `rules.tagged`; overrules `is_personal`.

  Raises:
    ValueError: The model has not been built, has nothing to train, lacks the
      normalisation layers asked for, or has a variable in two places that disagree.
  """
  check_built(model)
  if not model.trainable_variables:
    raise ValueError(f'{model.name} has no trainable variables, so there is nothing to learn.')
  everywhere = list(places(model))
  overruled = _normalization_variables(model, everywhere, normalization)
  found: dict[int, tuple[Place, bool]] = {}
  for place in everywhere:
    for variable in place.variables:
      personal = id(variable) in overruled or is_personal(place)
      other, agreed = found.setdefault(id(variable), (place, personal))
      if personal != agreed:
        raise ValueError(_conflict(variable, *((place, other) if personal else (other, place))))
  trainable, non_trainable = model.trainable_variables, model.non_trainable_variables
  variables = [*trainable, *non_trainable]
  return Partition(
    trainable=tuple(found[id(variable)][1] for variable in trainable),
    non_trainable=tuple(found[id(variable)][1] for variable in non_trainable),
    sizes=tuple(math.prod(tuple(variable.shape)) for variable in variables),
    names=tuple(_name(found[id(variable)][0], variable) for variable in variables),
  )


def _normalization_variables(
  model: keras.Model, everywhere: list[Place], normalization: str
) -> set[int]:
  """Ids of the variables that a choice makes personal wherever they are."""
  variables = {
    id(variable)
    for place in everywhere
    for variable in personal_variables(place.layer, normalization)
  }
  if normalization != 'as_layer' and not variables:
    raise ValueError(
      f'{model.name} has no normalisation layer with variables that could be personal, so the '
      f'choice would change nothing. Received: normalization={normalization!r}'
    )
  return variables


def _conflict(variable: Any, personal: Place, shared: Place) -> str:
  where = [place.path or 'the model itself' for place in (personal, shared)]
  return (
    f'{_name(personal, variable)} would be both personal, in {where[0]}, and shared, in '
    f'{where[1]}: say the same in both places.'
  )


def _name(place: Place, variable: Any) -> str:
  # Keras 2 gives 'dense/kernel:0', Keras 3 'kernel'.
  own = variable.name.split('/')[-1].split(':')[0]
  return f'{place.path}/{own}' if place.path else own


def _split(personal: Sequence[bool], values: Sequence[T]) -> tuple[list[T], list[T]]:
  if len(values) != len(personal):
    raise ValueError(
      f'Expected one value for each of {len(personal)} variables. Received: {len(values)} values'
    )
  pairs = list(zip(personal, values, strict=True))
  return [value for mine, value in pairs if not mine], [value for mine, value in pairs if mine]


def _join(personal: Sequence[bool], shared: Sequence[T], own: Sequence[T]) -> list[T]:
  expected = (len(personal) - sum(personal), sum(personal))
  if (len(shared), len(own)) != expected:
    raise ValueError(
      f'Expected {expected[0]} shared and {expected[1]} personal values. '
      f'Received: {len(shared)} shared and {len(own)} personal values'
    )
  groups = (iter(shared), iter(own))
  return [next(groups[mine]) for mine in personal]
