"""CIFAR-10 and CIFAR-100 from each of their layouts."""

import lzma
import os
import pathlib
import pickle
import sqlite3
import struct

import numpy as np
import pytest
import tensorflow as tf

from tffpers.datasets import load_cifar100, partition, read_cifar10, read_cifar100

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)


def examples(n, start):
  """Upright images: a red L on a blue ground under a green sky, numbered by a pixel."""
  images = np.zeros([n, 32, 32, 3], np.uint8)
  images[:, :8, :, 1] = 200
  images[:, 8:, :, 2] = 100
  images[:, 10:28, 4] = images[:, 27, 4:20] = [255, 0, 0]
  images[:, 31, 31, 0] = np.arange(start, start + n)
  return images


TRAIN, TEST = examples(20, 0), examples(6, 100)
TEN = np.arange(20) % 10, np.arange(6) % 10
FINE = np.arange(20) * 5 % 100, np.arange(6) * 19 % 100
COARSE = np.arange(20), np.arange(6) + 3


def rows(images):
  return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def files(ten):
  """`{file: (images, labels by key)}` of a data set in its published division."""
  if ten:
    parts = {f'data_batch_{k + 1}': slice(4 * k, 4 * k + 4) for k in range(5)}
    found = {name: (TRAIN[part], {'labels': TEN[0][part]}) for name, part in parts.items()}
    return found | {'test_batch': (TEST, {'labels': TEN[1]})}
  labels = [{'coarse_labels': COARSE[k], 'fine_labels': FINE[k]} for k in range(2)]
  return {'train': (TRAIN, labels[0]), 'test': (TEST, labels[1])}


def python2_pickle(images, labels):
  """The bytes that Python 2 writes, as published."""
  number = struct.Struct('<i').pack
  content = rows(images).tobytes()

  def text(value):
    return b'U' + bytes([len(value)]) + value.encode()

  array = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
  array += b'(K\x01J' + number(len(images)) + b'J' + number(3072) + b'\x86'
  array += b'cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ' + number(-1)
  array += b'J' + number(-1) + b'K\x00tb\x89T' + number(len(content)) + content + b'tb'
  lists = {key: b''.join(b'J' + number(y) for y in value) for key, value in labels.items()}
  stream = b'\x80\x02}(' + text('batch_label') + text('a batch') + text('data') + array
  return stream + b''.join(text(key) + b'](' + y + b'e' for key, y in lists.items()) + b'u.'


def python3_pickle(images, labels):
  """The same written anew, keys still bytes."""
  content = {key.encode(): value.tolist() for key, value in labels.items()}
  return pickle.dumps({b'data': rows(images)} | content, 2)


def write_pickles(folder, ten, dump=python2_pickle):
  root = folder / ('cifar-10-batches-py' if ten else 'cifar-100-python')
  root.mkdir()
  for name, (images, labels) in files(ten).items():
    (root / name).write_bytes(dump(images, labels))
  return root


def write_python3_pickles(folder, ten):
  return write_pickles(folder, ten, python3_pickle)


def write_records(folder, ten):
  root = folder / ('cifar-10-batches-bin' if ten else 'cifar-100-binary')
  root.mkdir()
  for name, (images, labels) in files(ten).items():
    columns = [np.stack(list(labels.values()), axis=1), rows(images)]
    (root / f'{name}.bin').write_bytes(np.hstack(columns).astype(np.uint8).tobytes())
  return root


def integers(values):
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def text(value):
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def serialized(feature):
  return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def labels_of(ten, part, k):
  if ten:
    return {'label': integers([TEN[part][k]])}
  return {'label': integers([FINE[part][k]]), 'coarse_label': integers([COARSE[part][k]])}


def write_tfds(folder, ten, version='3.0.2', shards=2, ids=True, encode=tf.io.encode_png):
  """As TFDS prepares it: shuffled, in shards."""
  name = 'cifar10' if ten else 'cifar100'
  root = folder / name / version
  root.mkdir(parents=True)
  for part, (split, images) in enumerate((('train', TRAIN), ('test', TEST))):
    order = np.random.default_rng(1).permutation(len(images))
    for shard, numbers in enumerate(np.array_split(order, shards)):
      path = root / f'{name}-{split}.tfrecord-{shard:05}-of-{shards:05}'
      with tf.io.TFRecordWriter(str(path)) as writer:
        for k in numbers:
          feature = labels_of(ten, part, k) | {'image': text(encode(images[k]).numpy())}
          feature |= {'id': text(f'{split}_{k:05}'.encode())} if ids else {}
          writer.write(serialized(feature))
  return root


def write_tff(folder, images=lambda image: image, clients=('0', '1')):
  with sqlite3.connect(folder / 'cifar100.sqlite') as connection:
    connection.execute('CREATE TABLE examples (split_name, client_id, serialized_example_proto)')
    connection.execute('CREATE TABLE client_metadata (client_id, split_name, num_examples)')
    for part, (split, source) in enumerate((('train', TRAIN), ('test', TEST))):
      for client, numbers in zip(clients, np.array_split(np.arange(len(source)), 2), strict=True):
        connection.execute(
          'INSERT INTO client_metadata VALUES (?, ?, ?)', (client, split, len(numbers))
        )
        for k in numbers:
          pixels = images(source[k].astype(int)).ravel().tolist()
          blob = serialized(labels_of(False, part, k) | {'image': integers(pixels)})
          connection.execute('INSERT INTO examples VALUES (?, ?, ?)', (split, client, blob))
  connection.close()


def write_tff_for_read(folder, ten):
  write_tff(folder)


LAYOUTS = [write_pickles, write_python3_pickles, write_records, write_tfds]
ten_or_hundred = pytest.mark.parametrize(
  'ten, write',
  [(ten, write) for ten in (True, False) for write in LAYOUTS] + [(False, write_tff_for_read)],
)


def assert_as_published(arrays, labels):
  for found, expected in ((arrays.x_train, TRAIN), (arrays.x_test, TEST)):
    assert found.dtype == np.float32 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected / np.float32(255))
  for found, expected in ((arrays.y_train, labels[0]), (arrays.y_test, labels[1])):
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@ten_or_hundred
def test_d14_every_layout_gives_the_same_upright_images_in_order(tmp_path, ten, write):
  write(tmp_path, ten)
  arrays = read_cifar10(tmp_path) if ten else read_cifar100(tmp_path)
  assert_as_published(arrays, TEN if ten else FINE)
  x = arrays.x_train[0]
  assert x[0, 0].tolist() == pytest.approx([0, 200 / 255, 0]) and x[10, 4].tolist() == [1, 0, 0]
  assert x[27, 19].tolist() == [1, 0, 0] and x[27, 3].tolist() == pytest.approx([0, 0, 100 / 255])


@pytest.mark.parametrize('write', [*LAYOUTS, write_tff_for_read])
def test_cifar100_has_coarse_labels_also(tmp_path, write):
  write(tmp_path, ten=False)
  assert_as_published(read_cifar100(tmp_path, labels='coarse'), COARSE)
  with pytest.raises(ValueError, match=r"\['fine', 'coarse'\]. Received: labels='super'"):
    read_cifar100(tmp_path, labels='super')


@pytest.mark.parametrize('write', [write_pickles, write_records])
def test_the_folder_itself_will_do(tmp_path, write):
  assert_as_published(read_cifar10(write(tmp_path, ten=True)), TEN)
  assert_as_published(read_cifar100(write(tmp_path, ten=False)), FINE)


@pytest.mark.parametrize(
  'cache, write', [('.keras/datasets', write_pickles), ('tensorflow_datasets', write_tfds)]
)
def test_without_folder_the_caches_are_looked_at(tmp_path, monkeypatch, cache, write):
  monkeypatch.setenv('HOME', str(tmp_path))
  with pytest.raises(FileNotFoundError, match=str(tmp_path / cache)):
    read_cifar10()
  (tmp_path / cache).mkdir(parents=True)
  write(tmp_path / cache, ten=True)
  assert_as_published(read_cifar10(), TEN)


def test_tffs_cache_is_looked_at(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  (tmp_path / '.tff').mkdir()
  write_tff(tmp_path / '.tff')
  assert_as_published(read_cifar100(), FINE)
  assert len(load_cifar100()[0]) == 2


@pytest.mark.parametrize(
  'read, words',
  [
    (read_cifar10, ['cifar-10-batches-py/', 'cifar-10-batches-bin/', 'cifar10/<version>/']),
    (read_cifar100, ['cifar-100-python/', 'cifar-100-binary/', 'tff.simulation.datasets']),
  ],
)
def test_missing_data_name_the_folder_and_the_address(tmp_path, read, words):
  with pytest.raises(FileNotFoundError) as caught:
    read(tmp_path)
  words = [*words, str(tmp_path), 'https://www.cs.toronto.edu/~kriz/cifar.html']
  assert all(word in str(caught.value) for word in words)
  with pytest.raises(FileNotFoundError, match=f'{tmp_path}.*tff.simulation.datasets.cifar100'):
    load_cifar100(tmp_path)


@pytest.mark.parametrize(
  'write, name', [(write_pickles, 'data_batch_4'), (write_records, 'test_batch.bin')]
)
def test_one_missing_file_is_named(tmp_path, write, name):
  (write(tmp_path, ten=True) / name).unlink()
  with pytest.raises(FileNotFoundError, match=f'No {name} in {tmp_path}'):
    read_cifar10(tmp_path)


def dumped(**content):
  """A damage of a pickle: these in the place of what is there."""

  def damage(old):
    return pickle.dumps(pickle.loads(old, encoding='bytes') | content, 2)

  return damage


@pytest.mark.parametrize(
  'damage, words',
  [
    (lambda old: old[:-100], 'whole pickle'),
    (lambda old: b'', 'whole pickle'),
    (lambda old: old[:4000] + bytes(10) + old[4020:], 'data_batch_2'),
    (lambda old: pickle.dumps([1], 2), 'Expected a dict. .* with list'),
    (lambda old: pickle.dumps({'data': 1}, 2), r"needs \['labels'\]"),
    (dumped(labels=[1, 2, 3]), r'uint8 \(4, 3072\) and int64 \(3,\)'),
    (dumped(labels=[0.5] * 4), 'float64'),
    (dumped(labels=[0, 1, 2, 10]), r'\[0, 9\]. Received: .*data_batch_2 with labels in \[0, 10\]'),
    (dumped(data=np.zeros([4, 3071], np.uint8)), r'\(4, 3071\)'),
    (dumped(data=np.zeros([4, 3072], np.int64)), 'int64'),
    (dumped(labels=[]), r'float64 \(0,\)'),
    (dumped(data=np.zeros([1, 3072], np.uint8), labels=3), r'int64 \(\)'),
  ],
)
def test_damaged_pickles_are_refused_by_name(tmp_path, damage, words):
  path = write_pickles(tmp_path, True, python3_pickle) / 'data_batch_2'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match=words) as caught:
    read_cifar10(tmp_path)
  assert str(path) in str(caught.value)


@pytest.mark.parametrize(
  'damage, words',
  [
    (lambda old: old[:-1], 'records of 3074 bytes. Received: .*train.bin with 61479 bytes'),
    (lambda old: b'', 'with 0 bytes'),
    (lambda old: old[:1] + bytes([100]) + old[2:], r'\[0, 99\]. .*train.bin with labels'),
  ],
)
def test_damaged_records_are_refused_by_name(tmp_path, damage, words):
  path = write_records(tmp_path, ten=False) / 'train.bin'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match=words):
    read_cifar100(tmp_path)


def test_tfds_newest_version_counts(tmp_path):
  write_tfds(tmp_path, True, encode=lambda image: tf.io.encode_png(255 - image))
  write_tfds(tmp_path, True, version='3.0.10')
  (tmp_path / 'cifar10' / '4.0.0.incompleteABC').mkdir()
  assert_as_published(read_cifar10(tmp_path), TEN)


def test_tfds_without_ids_keeps_images_and_labels_together(tmp_path):
  write_tfds(tmp_path, True, ids=False)
  arrays = read_cifar10(tmp_path)
  numbers = np.rint(arrays.x_train[:, 31, 31, 0] * 255).astype(int)
  assert sorted(numbers) == list(range(20))
  np.testing.assert_array_equal(arrays.y_train, TEN[0][numbers])


def test_damaged_tfds_files_are_refused_by_name(tmp_path):
  root = write_tfds(tmp_path, True)
  path = root / 'cifar10-train.tfrecord-00001-of-00002'
  content = path.read_bytes()
  for damaged in (content[:-5], content[:50] + b'xx' + content[52:]):
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=f"TFDS' records .*{root}"):
      read_cifar10(tmp_path)
  path.unlink()
  with pytest.raises(FileNotFoundError, match=f'in 2 files. No {path.name} in {root}'):
    read_cifar10(tmp_path)


def test_tfds_images_of_other_sizes_are_refused(tmp_path):
  write_tfds(tmp_path, True, encode=lambda image: tf.io.encode_png(image[1:]))
  with pytest.raises(ValueError, match=r'\(32, 32, 3\) images'):
    read_cifar10(tmp_path)


def test_empty_tfds_files_are_refused(tmp_path):
  root = write_tfds(tmp_path, True, shards=1)
  (root / 'cifar10-train.tfrecord-00000-of-00001').write_bytes(b'')
  with pytest.raises(ValueError, match='There must be images'):
    read_cifar10(tmp_path)


@pytest.mark.parametrize('labels, expected', [('fine', FINE), ('coarse', COARSE)])
def test_tffs_clients_of_test_are_others_than_those_of_train(tmp_path, labels, expected):
  write_tff(tmp_path)
  train, test = load_cifar100(tmp_path, labels=labels)
  assert (train.client_ids, test.client_ids) == (['0', '1'], ['test-0', 'test-1'])
  for data, images, y in ((train, TRAIN, expected[0]), (test, TEST, expected[1])):
    x, found = (
      np.concatenate(arrays) for arrays in zip(*map(data.load, data.client_ids), strict=True)
    )
    assert (x.dtype, found.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(x, images / np.float32(255))
    np.testing.assert_array_equal(found, y)
  with pytest.raises(ValueError, match="labels='all'"):
    load_cifar100(tmp_path, labels='all')


def test_tffs_file_may_be_compressed(tmp_path):
  write_tff(tmp_path)
  path = tmp_path / 'cifar100.sqlite'
  path.with_name('cifar100.sqlite.lzma').write_bytes(lzma.compress(path.read_bytes()))
  path.unlink()
  assert_as_published(read_cifar100(tmp_path), FINE)


@pytest.mark.parametrize(
  'images, words',
  [
    (lambda image: image + 1, r"train client '0', pixels in \[1, 256\]"),
    (lambda image: image[1:], "train client '0',"),
  ],
)
def test_damaged_examples_of_tff_name_the_client(tmp_path, images, words):
  write_tff(tmp_path, images)
  for read in (load_cifar100, read_cifar100):
    with pytest.raises(ValueError, match=words):
      read(tmp_path)


def test_tffs_file_without_clients_is_refused(tmp_path):
  write_tff(tmp_path)
  with sqlite3.connect(tmp_path / 'cifar100.sqlite') as connection:
    connection.execute('DELETE FROM client_metadata')
    connection.execute('DELETE FROM examples')
  connection.close()
  with pytest.raises(ValueError, match='There must be clients. .* in train'):
    read_cifar100(tmp_path)


def test_d15_a_partitioner_deals_every_image_once(tmp_path):
  write_records(tmp_path, ten=True)
  arrays = read_cifar10(tmp_path)
  parts = partition.iid(arrays.y_train, 3, seed=0)
  data = partition.as_clients(arrays.x_train, arrays.y_train, parts)
  numbers = [x[31, 31, 0] * 255 for key in data.client_ids for x in data.load(key)[0]]
  assert sorted(np.rint(numbers)) == list(range(20))


@needs_data
def test_development_files_of_both_layouts_agree():
  pickles, records = (
    read_cifar10(DATA / 'formats' / 'cifar10' / name)
    for name in ('cifar-10-batches-py', 'cifar-10-batches-bin')
  )
  assert pickles.x_train.shape == (1000, 32, 32, 3) and pickles.x_test.shape == (200, 32, 32, 3)
  for left, right in zip(pickles, records, strict=True):
    np.testing.assert_array_equal(left, right)
  assert set(pickles.y_train) == set(range(10))


@needs_data
def test_development_file_of_tff():
  folder = DATA / 'formats' / 'tff_sqlite'
  train, _ = load_cifar100(folder)
  x, y = train.load('0')
  assert x.shape == (5, 32, 32, 3) and y.tolist() == [0, 51, 51, 88, 71]
  assert load_cifar100(folder, labels='coarse')[0].load('0')[1].tolist() == [4, 4, 4, 8, 10]
  np.testing.assert_allclose(x[0, 0, 0] * 255, [159, 149, 109], rtol=1e-6)
