"""Normalisation layers, and which of their variables a partition keeps personal."""

from typing import Any

from tffpers.keras.backend import keras

CHOICES = ('as_layer', 'personal', 'personal_statistics')

# Keras 2 has no RMSNormalization.
_WITHOUT_STATISTICS = tuple(
  getattr(keras.layers, name)
  for name in ('GroupNormalization', 'LayerNormalization', 'RMSNormalization')
  if hasattr(keras.layers, name)
)


def check_choice(normalization: str) -> None:
  """Raises ValueError for a choice that is none of `CHOICES`."""
  if normalization not in CHOICES:
    raise ValueError(
      f'normalization must be one of {", ".join(CHOICES)}. '
      f'Received: normalization={normalization!r}'
    )


def normalizes(layer: keras.layers.Layer) -> bool:
  """Whether a layer is batch (of any kind), layer, group or RMS normalisation."""
  return _has_statistics(layer) or isinstance(layer, _WITHOUT_STATISTICS)


def personal_variables(layer: keras.layers.Layer, normalization: str) -> list[Any]:
  """Variables of a layer that a choice other than `as_layer` makes personal."""
  if normalization == 'personal' and normalizes(layer):
    return list(layer.variables)
  if normalization == 'personal_statistics' and _has_statistics(layer):
    learned = [id(getattr(layer, name, None)) for name in ('gamma', 'beta')]
    return [variable for variable in layer.variables if id(variable) not in learned]
  return []


def _has_statistics(layer: keras.layers.Layer) -> bool:
  # Keras 2 has four classes of batch normalisation without a public one above them.
  return hasattr(layer, 'moving_mean') and hasattr(layer, 'moving_variance')
