"""Residual networks of basic blocks (He, Zhang, Ren and Sun, arXiv 1512.03385)."""

from collections.abc import Sequence
from typing import Any

from tffpers.keras.backend import keras
from tffpers.keras.models import images
from tffpers.keras.units import STEM, block_name


def resnet(
  *,
  input_shape: Sequence[int] = (32, 32, 3),
  blocks_per_stage: Sequence[int] = (3, 4, 6, 3),
  filters: Sequence[int] = (64, 128, 256, 512),
  num_classes: int = 10,
  stem: str = 'cifar',
  normalization: str = 'group',
) -> keras.Model:
  """Residual network; ResNet-34 by default, whose 16 blocks FedPer splits (arXiv 1912.00818).

  A basic block is two normalised 3×3 convolutions, added to the block's input; a projection
  (1×1 convolution and normalisation, the paper's option B) takes the place of the input where
  the shape changes, which is in the first block of every stage but the first. The units of
  `tffpers.keras.blocks` are the stem, the basic blocks and the classifier. Kernels start
  from He's initialiser.

  Args:
    input_shape: Height, width and channels of an image.
    blocks_per_stage: Number of basic blocks in each stage. From the second stage on, a stage
      halves height and width.
    filters: Channels of each stage.
    num_classes: Number of logits.
    stem: What comes before the blocks. `'imagenet'`, as published: a 7×7 convolution and
      3×3 max-pooling, each of stride 2, for images of some 224². `'cifar'`: a 3×3 convolution.
    normalization: `'group'`, or `'batch'` as published; see `images.normalize`.

  Returns:
    A model from [batch, *input_shape] to logits [batch, num_classes].

  Raises:
    ValueError: A setting is none of its choices, `input_shape` has not three entries, or
      `blocks_per_stage` and `filters` are not lists of one length of positive numbers.

  >>> resnet(blocks_per_stage=(1, 1), filters=(8, 16)).output_shape
  (None, 10)
  """
  images.check_image_shape(input_shape)
  images.check_choices(stem=stem, normalization=normalization)
  _check_stages(blocks_per_stage, filters)
  inputs = keras.Input(tuple(input_shape))
  x = _stem(inputs, filters[0], stem, normalization)
  number = 0
  for stage, (count, channels) in enumerate(zip(blocks_per_stage, filters, strict=True)):
    for position in range(count):
      number += 1
      strides = 2 if stage > 0 and position == 0 else 1
      x = _basic_block(x, channels, strides, number, normalization)
  return images.classifier(inputs, x, num_classes)


def _check_stages(blocks_per_stage: Sequence[int], filters: Sequence[int]) -> None:
  if not len(blocks_per_stage) == len(filters) > 0 or min(*blocks_per_stage, *filters) < 1:
    raise ValueError(
      'blocks_per_stage and filters must hold one positive number for each stage. Received: '
      f'blocks_per_stage={tuple(blocks_per_stage)}, filters={tuple(filters)}'
    )


def _stem(x: Any, channels: int, stem: str, normalization: str) -> Any:
  size, strides = (7, 2) if stem == 'imagenet' else (3, 1)
  x = _convolve(x, channels, size, strides, STEM + 'conv')
  x = images.normalize(x, normalization, name=STEM + 'norm')
  x = keras.layers.ReLU(name=STEM + 'relu')(x)
  if stem == 'cifar':
    return x
  # Zeros win no maximum over what a ReLU gives.
  x = keras.layers.ZeroPadding2D(1, name=STEM + 'pool_padding')(x)
  return keras.layers.MaxPooling2D(3, 2, name=STEM + 'pool')(x)


def _basic_block(x: Any, channels: int, strides: int, number: int, normalization: str) -> Any:
  def name(layer: str) -> str:
    return block_name(number, layer)

  y = _convolve(x, channels, 3, strides, name('conv1'))
  y = images.normalize(y, normalization, name=name('norm1'))
  y = keras.layers.ReLU(name=name('relu1'))(y)
  y = _convolve(y, channels, 3, 1, name('conv2'))
  # γ starts at 1, as published. From 0, as in arXiv 1706.02677, plain SGD at FedPer's rate is
  # slower: with group norm, 400 steps of 32 small digits reach accuracy 0.61 instead of 0.94.
  y = images.normalize(y, normalization, name=name('norm2'))
  if strides > 1 or x.shape[-1] != channels:
    x = _convolve(x, channels, 1, strides, name('shortcut'))
    x = images.normalize(x, normalization, name=name('shortcut_norm'))
  return keras.layers.ReLU(name=name('relu2'))(keras.layers.Add(name=name('add'))([x, y]))


def _convolve(x: Any, channels: int, size: int, strides: int, name: str) -> Any:
  """A convolution without bias, its kernel centred on the first pixel and every `strides`-th.

  Keras would pad an image of even size at its end only, so that a strided 3×3 kernel
  would look one pixel further than the 1×1 kernel of the same block's projection.
  """
  if strides > 1 and size > 1:
    x = keras.layers.ZeroPadding2D(size // 2, name=name + '_padding')(x)
  return keras.layers.Conv2D(
    channels,
    size,
    strides,
    padding='same' if strides == 1 else 'valid',
    use_bias=False,
    kernel_initializer='he_normal',
    name=name,
  )(x)
