"""MNIST, permuted MNIST and Fashion-MNIST from each of their layouts."""

import gzip
import os
import pathlib
import struct

import numpy as np
import pytest

from tffpers.datasets import (
  load_fashion_mnist,
  load_mnist,
  load_pmnist,
  mnist,
  read_fashion_mnist,
  read_mnist,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
FASHION = pathlib.Path('/usr/share/datasets/fashion-mnist')
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)
needs_fashion = pytest.mark.skipif(
  not FASHION.is_dir(), reason='Debian package dataset-fashion-mnist not installed'
)


def examples(n, start):
  """Image k is told from others by its first two pixels; the rest is noise."""
  rng = np.random.default_rng(n)
  images = rng.integers(0, 256, [n, 28, 28], np.uint8)
  images[:, 0, 0], images[:, 0, 1] = np.divmod(np.arange(start, start + n), 256)
  return images, (np.arange(n) % 10).astype(np.uint8)


TRAIN, TEST = examples(300, 0), examples(50, 1000)


def write_npz(folder, train=TRAIN, test=TEST):
  np.savez(folder / 'mnist.npz', x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])


def write_idx(folder, compressed=False):
  for prefix, (images, labels) in (('train', TRAIN), ('t10k', TEST)):
    for name, array in (
      (f'{prefix}-images-idx3-ubyte', images),
      (f'{prefix}-labels-idx1-ubyte', labels),
    ):
      content = bytes([0, 0, 8, array.ndim]) + struct.pack(f'>{array.ndim}I', *array.shape)
      content += array.tobytes()
      if compressed:
        (folder / f'{name}.gz').write_bytes(gzip.compress(content))
      else:
        (folder / name).write_bytes(content)


def rows(data):
  """`{image number: (client id, label)}` by the first two pixels."""
  found = {}
  for key in data.client_ids:
    x, y = data.load(key)
    numbers = np.rint(x[:, 0, 0, 0] * 255) * 256 + np.rint(x[:, 0, 1, 0] * 255)
    found |= {int(number): (key, int(label)) for number, label in zip(numbers, y, strict=True)}
  return found


def assert_equal(left, right):
  assert left.client_ids == right.client_ids
  for key in left.client_ids:
    for a, b in zip(left.load(key), right.load(key), strict=True):
      np.testing.assert_array_equal(a, b)


def test_v19_every_image_is_at_one_client_and_every_client_is_used(tmp_path):
  write_npz(tmp_path)
  train, test = load_mnist(tmp_path, num_clients=7)
  assert train.client_ids == test.client_ids == [str(k) for k in range(7)]
  for data, (images, labels), start in ((train, TRAIN, 0), (test, TEST, 1000)):
    assert sum(map(data.num_examples, data.client_ids)) == len(images)
    assert {number: label for number, (_, label) in rows(data).items()} == {
      start + k: label for k, label in enumerate(labels.tolist())
    }


def test_images_are_float32_in_0_1_with_a_channel(tmp_path):
  write_npz(tmp_path)
  train, _ = load_mnist(tmp_path, num_clients=1)
  x, y = train.load('0')
  assert x.dtype == np.float32 and y.dtype == np.int32
  np.testing.assert_array_equal(x[..., 0], TRAIN[0] / np.float32(255))
  assert x.min() == 0 and x.max() == 1 and x.shape == (300, 28, 28, 1)


@pytest.mark.parametrize('compressed', [False, True])
@pytest.mark.parametrize('load', [load_mnist, load_fashion_mnist])
def test_idx_files_give_what_the_npz_gives(tmp_path, load, compressed):
  write_npz(tmp_path)
  expected = load_mnist(tmp_path, num_clients=4, seed=3)
  (tmp_path / 'idx').mkdir()
  write_idx(tmp_path / 'idx', compressed)
  for left, right in zip(load(tmp_path / 'idx', num_clients=4, seed=3), expected, strict=True):
    assert_equal(left, right)


@pytest.mark.parametrize('write, read', [(write_npz, read_mnist), (write_idx, read_fashion_mnist)])
def test_whole_arrays_are_as_published(tmp_path, write, read):
  write(tmp_path)
  arrays = read(tmp_path)
  for x, y, (images, labels) in (
    (arrays.x_train, arrays.y_train, TRAIN),
    (arrays.x_test, arrays.y_test, TEST),
  ):
    assert (x.dtype, y.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(x, images[..., np.newaxis] / np.float32(255))
    np.testing.assert_array_equal(y, labels)


def test_d15_parts_depend_on_the_seed_alone(tmp_path):
  write_npz(tmp_path)
  first, again, other = (load_mnist(tmp_path, num_clients=5, seed=seed)[0] for seed in (1, 1, 2))
  assert_equal(first, again)
  assert rows(first) != rows(other)


def test_pmnist_one_permutation_for_a_clients_train_and_test(tmp_path):
  write_npz(tmp_path)
  orders = {}
  for plain, moved in zip(
    load_mnist(tmp_path, num_clients=3), load_pmnist(tmp_path, num_clients=3), strict=True
  ):
    for key in plain.client_ids:
      x, y = plain.load(key)
      permuted, same_y = moved.load(key)
      np.testing.assert_array_equal(y, same_y)
      # A pixel's values over all images tell it from every other pixel.
      columns = {tuple(column): k for k, column in enumerate(x.reshape(len(x), 784).T.tolist())}
      order = [columns[tuple(column)] for column in permuted.reshape(len(x), 784).T.tolist()]
      assert sorted(order) == list(range(784))
      assert orders.setdefault(key, order) == order
  assert len({tuple(order) for order in orders.values()}) == 3


@pytest.mark.parametrize('load', [load_mnist, load_pmnist])
def test_missing_mnist_names_the_folder_and_how_to_get_it(tmp_path, load):
  with pytest.raises(FileNotFoundError) as caught:
    load(tmp_path)
  message = str(caught.value)
  assert all(word in message for word in [str(tmp_path), 'mnist.npz', 'load_data()', 'IDX'])


def test_mnist_without_folder_is_looked_for_in_keras_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  cache = tmp_path / '.keras' / 'datasets'
  with pytest.raises(FileNotFoundError, match=str(cache)):
    load_mnist()
  cache.mkdir(parents=True)
  write_npz(cache)
  assert len(load_mnist(num_clients=2)[0]) == 2


def test_missing_fashion_mnist_names_the_package(tmp_path, monkeypatch):
  monkeypatch.setattr(mnist, '_DEBIAN', tmp_path / 'nowhere')
  with pytest.raises(FileNotFoundError, match='nowhere.*package `dataset-fashion-mnist`'):
    load_fashion_mnist()


def test_one_missing_idx_file_is_named(tmp_path):
  write_idx(tmp_path)
  (tmp_path / 't10k-labels-idx1-ubyte').unlink()
  with pytest.raises(FileNotFoundError, match='No t10k-labels-idx1-ubyte or'):
    load_mnist(tmp_path)


@pytest.mark.parametrize(
  'name, damage, words',
  [
    ('train-images-idx3-ubyte', lambda content: content[:-1], 'with 235199 bytes'),
    ('train-labels-idx1-ubyte', lambda content: content + b'0', 'with 301 bytes'),
    ('train-images-idx3-ubyte', lambda content: b'PK' + content[2:], 'begins with'),
    ('train-labels-idx1-ubyte', lambda content: content[:5], '1 axes'),
    ('t10k-labels-idx1-ubyte', lambda content: content[:8] + bytes([10]) + content[9:], '0, 10'),
  ],
)
def test_damaged_idx_files_are_refused(tmp_path, name, damage, words):
  write_idx(tmp_path)
  path = tmp_path / name
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match=words):
    load_mnist(tmp_path)


@pytest.mark.parametrize('damage', [lambda content: content[:-9], lambda content: b'x' + content])
def test_damaged_gzip_files_are_refused(tmp_path, damage):
  write_idx(tmp_path, compressed=True)
  path = tmp_path / 'train-labels-idx1-ubyte.gz'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match='whole gzip file'):
    load_mnist(tmp_path)


def test_damaged_npz_is_refused(tmp_path):
  np.savez(tmp_path / 'mnist.npz', x_train=TRAIN[0], y_train=TRAIN[1])
  with pytest.raises(ValueError, match=r"needs \['x_test', 'y_test'\]"):
    load_mnist(tmp_path)
  path = tmp_path / 'mnist.npz'
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(ValueError, match=f'whole .npz file. Received: {path}'):
    load_mnist(tmp_path)
  np.save(tmp_path / 'array.npy', TRAIN[0])
  (tmp_path / 'array.npy').rename(path)
  with pytest.raises(ValueError, match=f'whole .npz file. Received: {path}'):
    load_mnist(tmp_path)
  write_npz(tmp_path, test=(TEST[0], TEST[1][:-1]))
  with pytest.raises(ValueError, match=r'test images uint8 \(50, 28, 28\) and labels \(49,\)'):
    load_mnist(tmp_path)


def test_more_clients_than_test_images_are_refused(tmp_path):
  write_npz(tmp_path)
  with pytest.raises(ValueError, match=r'\[1, 50\]. Received: num_clients=51'):
    load_mnist(tmp_path, num_clients=51)


@needs_data
def test_v19_mnist_of_the_paper_600_and_100_at_100_clients():
  train, test = load_mnist(DATA)
  assert {train.num_examples(key) for key in train.client_ids} == {600}
  assert {test.num_examples(key) for key in test.client_ids} == {100}
  assert len(train) == len(test) == 100
  # Ink is 1: most of a digit's image is background.
  assert 0.1 < np.mean([train.load(key)[0].mean() for key in train.client_ids]) < 0.2


@needs_fashion
def test_fashion_mnist_of_the_package():
  train, test = load_fashion_mnist(num_clients=50)
  assert {train.num_examples(key) for key in train.client_ids} == {1200}
  labels = np.concatenate([test.load(key)[1] for key in test.client_ids])
  assert np.bincount(labels).tolist() == [1000] * 10
  arrays = read_fashion_mnist()
  assert np.bincount(arrays.y_train).tolist() == [6000] * 10
  # The first image is a boot, on a black ground.
  assert arrays.y_train[0] == 9 and not arrays.x_train[0, [0, 0, 27], [0, 27, 0]].any()
