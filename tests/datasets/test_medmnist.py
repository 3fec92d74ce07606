"""MedMNIST's files, merged and split anew."""

import os
import pathlib

import numpy as np
import pytest

from tffpers.datasets import read_medmnist

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)
SIZES = {'train': 60, 'val': 15, 'test': 25}
CLASSES = np.array([0, 0, 1, 2, 0, 3, 1, 0, 0, 1])


def content(shape=(28, 28), labels=None, sizes=SIZES):
  """Images numbered by their first two pixels' bytes; classes 0–3 in uneven numbers."""
  number = np.arange(sum(sizes.values()))
  images = np.random.default_rng(0).integers(0, 256, [len(number), *shape], np.uint8)
  images.reshape(len(number), -1)[:, 0] = number
  y = CLASSES[number % 10][:, None] if labels is None else labels
  found, start = {}, 0
  for part, size in sizes.items():
    found[f'{part}_images'] = images[start : start + size]
    found[f'{part}_labels'] = y[start : start + size].astype(np.uint8)
    start += size
  return found


def write(folder, name='pathmnist', **arrays):
  np.savez_compressed(folder / f'{name}.npz', **(arrays or content()))


def numbers(x):
  return np.rint(x.reshape(len(x), -1)[:, 0] * 255).astype(int)


def test_d7_the_parts_are_merged_and_labels_are_one_integer_each(tmp_path):
  write(tmp_path, **content((28, 28, 3)))
  arrays = read_medmnist('PathMNIST', tmp_path)
  assert arrays.x_train.shape[1:] == arrays.x_test.shape[1:] == (28, 28, 3)
  assert arrays.x_train.dtype == np.float32 and arrays.y_train.dtype == np.int32
  assert arrays.y_train.ndim == arrays.y_test.ndim == 1
  found = np.concatenate([numbers(arrays.x_train), numbers(arrays.x_test)])
  assert sorted(found) == list(range(100))
  y = np.concatenate([arrays.y_train, arrays.y_test])
  np.testing.assert_array_equal(y, CLASSES[found % 10])
  # A column of labels would be compared with every prediction.
  assert (arrays.y_test == arrays.y_test.copy()).mean() == 1 and (y == y[::-1]).shape == (100,)


def test_every_class_is_split_80_to_20(tmp_path):
  write(tmp_path)
  arrays = read_medmnist('pathmnist', tmp_path)
  whole = np.bincount(np.concatenate([arrays.y_train, arrays.y_test]))
  assert np.bincount(arrays.y_test).tolist() == [round(n / 5) for n in whole]


def test_d15_the_split_depends_on_the_seed(tmp_path):
  write(tmp_path)
  first, again, other = (
    numbers(read_medmnist('pathmnist', tmp_path, seed=seed).x_test).tolist() for seed in (0, 0, 1)
  )
  assert first == again != other
  with pytest.raises(ValueError, match='seed=-1'):
    read_medmnist('pathmnist', tmp_path, seed=-1)


def test_grey_images_get_a_channel_and_are_in_0_1(tmp_path):
  source = content()
  write(tmp_path, **source)
  arrays = read_medmnist('pathmnist', tmp_path)
  assert arrays.x_train.shape == (80, 28, 28, 1) and arrays.x_test.shape == (20, 28, 28, 1)
  assert arrays.x_train.min() == 0 and arrays.x_train.max() == 1
  images = np.concatenate([source[f'{part}_images'] for part in SIZES])
  expected = images[numbers(arrays.x_test)] / np.float32(255)
  np.testing.assert_array_equal(arrays.x_test[..., 0], expected)


def test_d7_several_labels_stay_several(tmp_path):
  labels = np.random.default_rng(1).integers(0, 2, [100, 14])
  write(tmp_path, 'chestmnist', **content(labels=labels))
  arrays = read_medmnist('ChestMNIST', tmp_path)
  assert arrays.y_train.dtype == np.float32
  assert (arrays.y_train.shape, arrays.y_test.shape) == ((80, 14), (20, 14))
  np.testing.assert_array_equal(arrays.y_test, labels[numbers(arrays.x_test)])


@pytest.mark.parametrize('file', ['organamnist', 'organmnist_axial'])
@pytest.mark.parametrize('name', ['OrganAMNIST', 'organmnist_axial'])
def test_both_names_of_the_axial_organs_find_it(tmp_path, file, name):
  write(tmp_path, file)
  write(tmp_path, 'organcmnist', **content(sizes={'train': 5, 'val': 5, 'test': 5}))
  assert len(read_medmnist(name, tmp_path).x_train) == 80


def test_other_sizes_by_their_files_name(tmp_path):
  write(tmp_path, 'pathmnist_64', **content((64, 64, 3)))
  assert read_medmnist('pathmnist_64', tmp_path).x_test.shape == (20, 64, 64, 3)


def test_without_folder_the_packages_cache_is_looked_at(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  with pytest.raises(FileNotFoundError, match=f'{tmp_path}/.medmnist'):
    read_medmnist('PathMNIST')
  (tmp_path / '.medmnist').mkdir()
  write(tmp_path / '.medmnist')
  assert len(read_medmnist('PathMNIST').x_train) == 80


def test_missing_file_names_what_was_looked_for_and_the_address(tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    read_medmnist('OrganAMNIST', tmp_path)
  words = ['No organamnist.npz nor organmnist_axial.npz', str(tmp_path), 'https://medmnist.com']
  assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
  'damage, words',
  [
    ({'val_images': None}, r"needs \['val_images'\]"),
    ({'val_images': np.zeros([15, 28, 28, 28], np.uint8)}, r'val_images uint8 \(15, 28, 28, 28\)'),
    ({'val_images': np.zeros([15, 28, 28])}, 'val_images float64'),
    ({'val_images': np.zeros([15, 32, 32], np.uint8)}, 'same shapes'),
    ({'test_labels': np.zeros([25], np.uint8)}, r'test_labels uint8 \(25,\)'),
    ({'test_labels': np.zeros([24, 1], np.uint8)}, r'\[25, 1\] .*test_labels uint8 \(24, 1\)'),
    ({'test_labels': np.zeros([25, 1])}, 'test_labels float64'),
    ({'test_labels': np.zeros([25, 3], np.uint8)}, 'same shapes'),
  ],
)
def test_damaged_content_is_refused_by_name(tmp_path, damage, words):
  arrays = content() | damage
  write(tmp_path, **{key: value for key, value in arrays.items() if value is not None})
  with pytest.raises(ValueError, match=words) as caught:
    read_medmnist('pathmnist', tmp_path)
  assert f'{tmp_path}/pathmnist.npz' in str(caught.value)


def test_several_labels_beyond_0_and_1_are_refused(tmp_path):
  write(tmp_path, **content(labels=np.full([100, 2], 3)))
  with pytest.raises(ValueError, match='zeros and ones. .*3'):
    read_medmnist('pathmnist', tmp_path)


@pytest.mark.parametrize(
  'damage', [lambda old: old[:-40], lambda old: old[:5000] + b'x' * 9 + old[5009:], lambda old: b'']
)
def test_damaged_files_are_refused_by_name(tmp_path, damage):
  write(tmp_path)
  path = tmp_path / 'pathmnist.npz'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match=f'whole .npz file. Received: {path}'):
    read_medmnist('pathmnist', tmp_path)


@needs_data
@pytest.mark.parametrize(
  'name, file, classes, channels',
  [('PathMNIST', 'pathmnist', 9, 3), ('OrganAMNIST', 'organmnist_axial', 11, 1)],
)
def test_development_files(tmp_path, name, file, classes, channels):
  source = DATA / 'formats' / 'medmnist' / f'{name.lower()}_format_only.npz'
  (tmp_path / f'{file}.npz').symlink_to(source)
  arrays = read_medmnist(name, tmp_path)
  assert len(arrays.y_train) + len(arrays.y_test) == 144
  assert arrays.x_test.shape[1:] == (28, 28, channels)
  assert set(arrays.y_train) == set(arrays.y_test) == set(range(classes))
