"""Reads CIFAR from the files that TFDS and TFF prepare: serialised `tf.train.Example`s."""

import pathlib
import re

import numpy as np
import tensorflow as tf

from tffpers.datasets import _tff_sqlite
from tffpers.datasets._cifar_files import ImagesAndLabels, Layout, check_labels

_SHAPE = (32, 32, 3)


def find_tfds(layout: Layout, folder: pathlib.Path) -> pathlib.Path | None:
  """The newest version that TFDS prepared, `<folder>/<name>/<version>/`."""
  versions = {
    tuple(map(int, path.name.split('.'))): path
    for path in (folder / layout.name).glob('*')
    if re.fullmatch(r'\d+\.\d+\.\d+', path.name)
  }
  return versions[max(versions)] if versions else None


def read_tfds(layout: Layout, folder: pathlib.Path, split: str) -> ImagesAndLabels:
  """Images and labels of `train` or `test`, in the order in which CIFAR was published.

  The package `tensorflow-datasets` is not needed: the files are TFRecords of images in
  PNG. TFDS has shuffled them; where its version wrote ids, these restore the order.

  Returns:
    `(images, labels)`, uint8 [n, 32, 32, 3] and int64 [n].

  Raises:
    FileNotFoundError: If a shard is not there; names it.
    ValueError: If a file is damaged; names it or its folder.
  """
  spec = {
    'image': tf.io.FixedLenFeature([], tf.string),
    layout.feature: tf.io.FixedLenFeature([], tf.int64),
    'id': tf.io.FixedLenFeature([], tf.string, ''),
  }

  def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    features = tf.io.parse_single_example(record, spec)
    image = tf.ensure_shape(tf.io.decode_png(features['image'], channels=3), _SHAPE)
    return image, features[layout.feature], features['id']

  files = _shards(folder, f'{layout.name}-{split}.tfrecord')
  try:
    records = tf.data.TFRecordDataset(files).map(parse, tf.data.AUTOTUNE)
    batches = list(records.batch(1000).as_numpy_iterator())
  except tf.errors.OpError as error:
    raise ValueError(
      f"Expected TFDS' records of {_SHAPE} images. Received: {files[0]} … ({error.message})"
    ) from error
  if not batches:
    raise ValueError(f'There must be images. Received: {files[0]} … without any')
  images, labels, ids = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
  check_labels(files[0], labels, layout.num_classes)
  order = np.argsort(ids.astype(bytes), kind='stable')
  return images[order], labels[order]


def read_tff(
  layout: Layout, database: pathlib.Path, split: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Images and labels of every client of TFF's `train` or `test`.

  Returns:
    `{client id: (images, labels)}`, uint8 [n, 32, 32, 3] and int64 [n].

  Raises:
    ValueError: If the file is damaged; names the client.
  """
  clients = _tff_sqlite.read(database, split)
  if not clients:
    raise ValueError(f'There must be clients. Received: {database} without any in {split}')
  return {
    key: _parse(layout, f'{database}, {split} client {key!r},', blobs)
    for key, blobs in clients.items()
  }


def _shards(folder: pathlib.Path, prefix: str) -> list[str]:
  found = sorted(folder.glob(f'{prefix}-*-of-*'))
  count = int(found[0].name.rpartition('-')[2]) if found else 1
  names = [f'{prefix}-{k:05}-of-{count:05}' for k in range(count)]
  for name in names:
    if not (folder / name).is_file():
      raise FileNotFoundError(f'The images are in {count} files. No {name} in {folder}')
  return [str(folder / name) for name in names]


def _parse(layout: Layout, where: str, blobs: list[bytes]) -> ImagesAndLabels:
  spec = {
    'image': tf.io.FixedLenFeature(_SHAPE, tf.int64),
    layout.feature: tf.io.FixedLenFeature([], tf.int64),
  }
  try:
    features = tf.io.parse_example(tf.constant(blobs, tf.string), spec)
  except tf.errors.OpError as error:
    raise ValueError(
      f'Expected examples with {list(spec)}. Received: {where} {error.message}'
    ) from error
  pixels, labels = features['image'].numpy(), features[layout.feature].numpy()
  if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 255):
    raise ValueError(
      f'Pixels must be in [0, 255]. Received: {where} pixels in [{pixels.min()}, {pixels.max()}]'
    )
  check_labels(where, labels, layout.num_classes)
  return pixels.astype(np.uint8), labels
