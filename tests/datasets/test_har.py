"""Human activity recognition from both of its layouts."""

import os
import pathlib

import numpy as np
import pytest

from tffpers.datasets import load_har

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)


def rows(subjects, seed=0):
  """Features of which the first is the row's own number, labels 1–6 and subjects."""
  x = np.random.default_rng(seed).uniform(-1, 1, [len(subjects), 561]).astype(np.float32)
  x[:, 0] = (np.arange(len(subjects)) + 1000 * seed) / 4096
  return x, np.arange(len(subjects)) % 6 + 1, np.array(subjects)


def field(value):
  """16 characters, exponent of three digits."""
  mantissa, exponent = f'{value:.7e}'.split('e')
  return f'{mantissa}e{exponent[0]}{int(exponent[1:]):03d}'.rjust(16)


def write_uci(root, **splits):
  for split, (x, y, subjects) in splits.items():
    folder = root / split
    folder.mkdir(parents=True, exist_ok=True)
    lines = [''.join(map(field, row)) for row in x]
    (folder / f'X_{split}.txt').write_text('\n'.join(lines) + '\n')
    for name, values in (('y', y), ('subject', subjects)):
      (folder / f'{name}_{split}.txt').write_text(''.join(f'{value}\n' for value in values))


TRAIN = rows([10] * 8 + [1] * 4 + [3] * 4)
TEST = rows([2] * 8, seed=1)


@pytest.fixture
def uci(tmp_path):
  write_uci(tmp_path / 'UCI HAR Dataset', train=TRAIN, test=TEST)
  return tmp_path


def test_v19_every_subject_is_a_client_in_order_of_numbers(uci):
  train, test = load_har(uci)
  assert train.client_ids == test.client_ids == ['1', '2', '3', '10']
  assert [train.num_examples(key) for key in train.client_ids] == [3, 6, 3, 6]
  assert [test.num_examples(key) for key in test.client_ids] == [1, 2, 1, 2]


def test_d8_d10_rows_are_split_without_loss_and_labels_start_at_0(uci):
  expected = {}
  for x, y, subjects in (TRAIN, TEST):
    for k, key in enumerate(map(str, subjects)):
      expected.setdefault(key, {})[x[k, 0]] = (x[k], y[k] - 1)
  parts = load_har(uci)
  for key, of_client in expected.items():
    loaded = [part.load(key) for part in parts]
    x, y = (np.concatenate(arrays) for arrays in zip(*loaded, strict=True))
    assert x.dtype == np.float32 and y.dtype == np.int32
    assert sorted(x[:, 0]) == sorted(of_client)
    for row, label in zip(x, y, strict=True):
      np.testing.assert_allclose(row, of_client[row[0]][0], rtol=1e-7)
      assert label == of_client[row[0]][1]


def test_the_data_sets_own_folder_will_do(uci):
  assert load_har(uci / 'UCI HAR Dataset')[0].client_ids == ['1', '2', '3', '10']


def test_stand_in_gives_what_the_text_files_give(uci, tmp_path):
  folder = tmp_path / 'npz'
  folder.mkdir()
  x, y, subject = (np.concatenate(pair) for pair in zip(TRAIN, TEST, strict=True))
  np.savez(folder / 'har561_from_hapt.npz', X=x, y=y.astype(np.uint8), subject=subject)
  for one, other in zip(load_har(uci, seed=2), load_har(folder, seed=2), strict=True):
    assert one.client_ids == other.client_ids
    for key in one.client_ids:
      np.testing.assert_allclose(one.load(key)[0], other.load(key)[0], rtol=1e-7)
      np.testing.assert_array_equal(one.load(key)[1], other.load(key)[1])


def test_split_depends_on_the_seed(uci):
  first, again, other = (load_har(uci, seed=seed)[0].load('10')[0][:, 0] for seed in (0, 0, 1))
  assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize(
  'name, content, words',
  [
    ('y_train.txt', '7\n' * 16, r'HAPT.*subject 10, label 7'),
    ('y_train.txt', '0\n' * 16, 'label 0'),
    ('y_train.txt', '1\n' * 15, '16, 15 and 16'),
    ('y_train.txt', '1 2\n' * 16, 'y_train.txt with 2'),
    ('y_train.txt', 'one\n' * 16, 'rows of 1 numbers. Received: .*y_train.txt'),
    ('X_train.txt', '1 2\n1\n', 'rows of 561 numbers. Received: .*X_train.txt'),
    ('X_train.txt', '', '0, 16 and 16'),
    ('subject_train.txt', '1.5\n' * 16, 'Subjects must be integers'),
  ],
)
def test_damaged_files_are_refused(uci, name, content, words):
  (uci / 'UCI HAR Dataset' / 'train' / name).write_text(content)
  with pytest.raises(ValueError, match=words):
    load_har(uci)


def test_missing_data_name_the_folder_and_how_to_get_them(tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    load_har(tmp_path)
  message = str(caught.value)
  assert all(word in message for word in [str(tmp_path), 'UCI HAR Dataset.zip', 'load_watch'])
  with pytest.raises(FileNotFoundError, match='No data_dir was given'):
    load_har()


@needs_data
def test_development_text_files():
  train, test = load_har(DATA / 'formats' / 'uci_har')
  assert train.client_ids == test.client_ids == ['1', '2', '3', '4']
  assert train.num_examples('1') + test.num_examples('1') == 347
  assert abs(train.load('1')[0]).max() <= 1


@needs_data
def test_v19_the_stand_in_has_30_subjects_and_labels_0_to_5():
  train, test = load_har(DATA)
  assert train.client_ids == test.client_ids == [str(k) for k in range(1, 31)]
  for data in (train, test):
    labels = np.concatenate([data.load(key)[1] for key in data.client_ids])
    assert (labels.min(), labels.max()) == (0, 5)
