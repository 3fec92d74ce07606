"""MobileNet-v1 (Howard et al., arXiv 1704.04861)."""

import math
from collections.abc import Sequence
from typing import Any

from tffpers.keras.backend import keras
from tffpers.keras.models import images
from tffpers.keras.units import STEM, block_name

# Channels and stride of the blocks: the middle one stands up to five times.
_FIRST = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
_MIDDLE = (512, 1)
_LAST = ((1024, 2), (1024, 1))
_FEWEST, _MOST = 8, 13


def mobilenet(
  *,
  input_shape: Sequence[int] = (32, 32, 3),
  num_blocks: int = 13,
  width_multiplier: float = 1.0,
  num_classes: int = 10,
  stem: str = 'cifar',
  normalization: str = 'group',
) -> keras.Model:
  """MobileNet-v1; FedPer splits it between its blocks (arXiv 1912.00818).

  A block is a normalised 3×3 depthwise convolution, ReLU, a normalised 1×1 convolution, ReLU
  (the authors' code clips its ReLU at 6, the paper does not). The units of
  `tffpers.keras.blocks` are the first convolution, the blocks and the classifier. Kernels
  start from He's initialiser.

  Args:
    input_shape: Height, width and channels of an image.
    num_blocks: 13 as published; 11 as FedPer counts, which does not say which. Fewer than 13
      leave out blocks from 11 downwards out of the five equal ones, 7 to 11, of 512 channels
      and stride 1, as the paper's shallow network of 8 does, so that widths, sizes and
      the blocks at both ends stay.
    width_multiplier: The paper's α; channels are rounded down.
    num_classes: Number of logits.
    stem: `'imagenet'`, as published: a first convolution of stride 2, for images of
      some 224². `'cifar'`: of stride 1.
    normalization: `'group'`, or `'batch'` as published; see `images.normalize`.

  Returns:
    A model from [batch, *input_shape] to logits [batch, num_classes].

  Raises:
    ValueError: A setting is none of its choices, `input_shape` has not three entries,
      `num_blocks` is not in [8, 13], or `width_multiplier` leaves a layer without channels.

  >>> mobilenet(width_multiplier=0.25, num_blocks=11).output_shape
  (None, 10)
  """
  images.check_image_shape(input_shape)
  images.check_choices(stem=stem, normalization=normalization)
  _check_size(num_blocks, width_multiplier)
  blocks = (*_FIRST, *[_MIDDLE] * (num_blocks - _FEWEST), *_LAST)
  inputs = keras.Input(tuple(input_shape))
  first_strides = 2 if stem == 'imagenet' else 1
  x = _convolve(inputs, int(32 * width_multiplier), 3, first_strides, STEM + 'conv')
  x = _normalized_relu(x, normalization, STEM)
  for number, (channels, strides) in enumerate(blocks, 1):
    x = _block(x, int(channels * width_multiplier), strides, number, normalization)
  return images.classifier(inputs, x, num_classes)


def _check_size(num_blocks: int, width_multiplier: float) -> None:
  if not _FEWEST <= num_blocks <= _MOST:
    raise ValueError(
      f'num_blocks must be in [{_FEWEST}, {_MOST}]. Received: num_blocks={num_blocks}'
    )
  if not width_multiplier * 32 >= 1:
    raise ValueError(
      'width_multiplier must leave a channel of the narrowest layer, 32 wide: expected at '
      f'least 1/32. Received: width_multiplier={width_multiplier}'
    )


def _block(x: Any, channels: int, strides: int, number: int, normalization: str) -> Any:
  x = keras.layers.DepthwiseConv2D(
    3,
    strides,
    padding='same',
    use_bias=False,
    # He's rule for the 9 inputs of each output: Keras' he_normal takes all channels' inputs.
    depthwise_initializer=keras.initializers.RandomNormal(stddev=math.sqrt(2 / 9)),
    name=block_name(number, 'depthwise'),
  )(x)
  x = _normalized_relu(x, normalization, block_name(number, 'depthwise_'))
  x = _convolve(x, channels, 1, 1, block_name(number, 'pointwise'))
  return _normalized_relu(x, normalization, block_name(number, 'pointwise_'))


def _convolve(x: Any, channels: int, size: int, strides: int, name: str) -> Any:
  return keras.layers.Conv2D(
    channels,
    size,
    strides,
    padding='same',
    use_bias=False,
    kernel_initializer='he_normal',
    name=name,
  )(x)


def _normalized_relu(x: Any, normalization: str, prefix: str) -> Any:
  x = images.normalize(x, normalization, name=prefix + 'norm')
  return keras.layers.ReLU(name=prefix + 'relu')(x)
