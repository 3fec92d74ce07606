"""From a list of layers to a network: the step that all ready-made networks share."""

from typing import Any

from tffpers.keras.backend import keras
from tffpers.keras.hierarchical import hierarchical as with_private_paths


def stack(layers: list[Any], *, bayesian: bool, hierarchical: bool) -> keras.Model:
  """The network of `layers`, whose first entry is a `keras.Input`.

  Args:
    layers: Input and layers in order.
    bayesian: Whether the layers are Bayesian.
    hierarchical: Whether each gets a private twin, see `tffpers.keras.hierarchical`.

  Raises:
    ValueError: `hierarchical` without `bayesian`.
  """
  if hierarchical and not bayesian:
    raise ValueError(
      'A hierarchical network has private posteriors, so it must be Bayesian. '
      'Received: hierarchical=True, bayesian=False'
    )
  return with_private_paths(layers) if hierarchical else keras.Sequential(layers)
