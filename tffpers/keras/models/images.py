"""What networks for images share: settings, normalisation, classifier."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tffpers.keras.backend import keras

_EPSILON = 1e-5
# A client takes few steps a round, so old statistics must fade quickly: half of their weight
# is gone after 7 steps here, after 69 with Keras' own 0.99.
_MOMENTUM = 0.9
_CHANNELS_PER_GROUP = 16


def check_image_shape(input_shape: Sequence[int]) -> None:
  """Raises ValueError if `input_shape` is not (height, width, channels)."""
  if len(input_shape) != 3:
    raise ValueError(
      f'input_shape must be (height, width, channels). Received: input_shape={tuple(input_shape)}'
    )


def check_choices(*, stem: str, normalization: str) -> None:
  """Raises ValueError if a setting is none of its choices."""
  if stem not in ('cifar', 'imagenet'):
    raise ValueError(f"stem must be 'cifar' or 'imagenet'. Received: stem={stem!r}")
  if normalization not in ('group', 'batch'):
    raise ValueError(
      f"normalization must be 'group' or 'batch'. Received: normalization={normalization!r}"
    )


def groups(channels: int) -> int:
  """Number of groups for `channels` channels: 16 in each, or a few more.

  Group normalisation (Wu and He, arXiv 1803.08494) fixes the number of groups, 32, or
  their size, 16. The size suits narrow layers: 32 groups of the 32 channels in front
  of MobileNet would normalise each channel alone, and an image of one pixel to zero.

  >>> [groups(channels) for channels in (8, 32, 40, 512)]
  [1, 2, 2, 32]
  """
  return math.gcd(channels, max(1, channels // _CHANNELS_PER_GROUP))


def normalize(x: Any, normalization: str, *, name: str) -> Any:
  """Group or batch normalisation of the channels of `x`, with scale γ and offset β.

  Group normalisation is the networks' default. Its statistics are those of one example,
  so that a client's outputs depend neither on other clients' data nor on the batch, training
  and evaluation compute the same, and nothing but trainable variables exists to average.
  On shuffled digits of 16², at FedPer's learning rate, ResNet-34 takes about twice as many
  steps to the same accuracy as with batch normalisation, MobileNet fewer.

  Batch normalisation is that of the published networks. Its moving statistics (momentum 0.9,
  epsilon 1e-5) are not trained: a partition shares them or keeps them personal, see
  `tffpers.keras.last_blocks`. Those of clients with different classes differ. A training
  batch of one example has no variance where its map is one pixel: the layer gives β, which
  is 0 at first, nothing below it learns, and the moving variance decays, all without an error.

  Args:
    x: Keras tensor [batch, height, width, channels].
    normalization: `'group'` or `'batch'`.
    name: Name of the layer.

  Returns:
    A Keras tensor of the shape of `x`.
  """
  return normalization_layer(x.shape[-1], normalization, name=name)(x)


def normalization_layer(
  channels: int, normalization: str, *, name: str | None = None
) -> keras.layers.Layer:
  """The layer of `normalize` for a number of channels."""
  if normalization == 'batch':
    return keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=_EPSILON, name=name)
  return keras.layers.GroupNormalization(groups(channels), epsilon=_EPSILON, name=name)


def with_relu(
  make: Callable[..., keras.layers.Layer], width: int, normalization: str | None
) -> list[keras.layers.Layer]:
  """`make(width, activation)` and its ReLU, with a normalisation layer between them or none."""
  if normalization is None:
    return [make(width, 'relu')]
  return [make(width, None), normalization_layer(width, normalization), keras.layers.ReLU()]


def check_plain_normalization(normalization: str | None, *, bayesian: bool) -> None:
  """Raises ValueError if a small network cannot have the normalisation."""
  if normalization not in (None, 'group', 'batch') or (normalization and bayesian):
    raise ValueError(
      "normalization must be 'group' or 'batch' in a network that is not Bayesian, or None. "
      f'Received: normalization={normalization!r}, bayesian={bayesian}'
    )


def classifier(inputs: Any, features: Any, num_classes: int) -> keras.Model:
  """The network from `inputs` to logits of the mean of `features` over the pixels.

  Args:
    inputs: The network's `keras.Input`.
    features: Keras tensor [batch, height, width, channels] computed from it.
    num_classes: Number of logits, those of the layer named `'classifier'`.
  """
  mean = keras.layers.GlobalAveragePooling2D(name='pool')(features)
  return keras.Model(inputs, keras.layers.Dense(num_classes, name='classifier')(mean))
