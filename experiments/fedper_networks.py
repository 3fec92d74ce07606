"""The networks of FedPer's paper by name, for its scripts."""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import flags

from tffpers.keras import models

FLAGS = flags.FLAGS

PUBLISHED = {
  'resnet34': models.resnet,
  'mobilenet': models.mobilenet,
  'mobilenet11': functools.partial(models.mobilenet, num_blocks=11),
  'resnet_small': functools.partial(models.resnet, blocks_per_stage=(1, 1), filters=(8, 16)),
}

flags.DEFINE_enum(
  'network',
  None,
  list(PUBLISHED),
  'ResNet-34, MobileNet-v1 with 13 or 11 blocks, or two small basic blocks.',
)
flags.DEFINE_enum('stem', 'cifar', ['cifar', 'imagenet'], 'For images of some 32², or of 224².')
flags.DEFINE_enum('normalization', 'group', ['group', 'batch'], 'Normalisation layers.')


def model_fn(input_shape: Sequence[int], num_classes: int) -> Callable[[], tf.keras.Model]:
  """Builds the network of --network.

  Args:
    input_shape: Height, width and channels.
    num_classes: Number of logits.
  """
  return functools.partial(
    PUBLISHED[FLAGS.network],
    input_shape=tuple(input_shape),
    num_classes=num_classes,
    stem=FLAGS.stem,
    normalization=FLAGS.normalization,
  )
