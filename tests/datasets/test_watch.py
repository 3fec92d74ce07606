"""Exercises recorded by a smartwatch."""

import importlib.util

import numpy as np
import pytest

from tffpers.datasets import load_watch

needs_package = pytest.mark.skipif(
  importlib.util.find_spec('seglearn') is None, reason='package seglearn==1.2.5 not installed'
)


def recording(number, length):
  """Six channels; channel c of sample t is 1000 number + 10 t + c."""
  return 1000.0 * number + 10.0 * np.arange(length)[:, None] + np.arange(6)


def write(folder, lengths, subjects, labels):
  content = {
    'X': [recording(k, length) for k, length in enumerate(lengths)],
    'y': np.array(labels),
    'subject': np.array(subjects),
  }
  np.save(folder / 'watch_dataset.npy', np.array(content, dtype=object), allow_pickle=True)


def test_wearers_are_clients_and_whole_windows_their_examples(tmp_path):
  write(tmp_path, [41, 9, 80], subjects=[10, 2, 2], labels=[6, 5, 0])
  train, test = load_watch(tmp_path, window=10)
  assert train.client_ids == test.client_ids == ['2', '10']
  assert [data.num_examples(key) for data in (train, test) for key in ('2', '10')] == [6, 3, 2, 1]
  x, y = train.load('10')
  assert (x.dtype, y.dtype, x.shape) == (np.float32, np.int32, (3, 48))
  assert y.tolist() == [6] * 3 and set(train.load('2')[1].tolist()) == {0}


def test_features_are_statistics_of_one_window(tmp_path):
  write(tmp_path, [16], subjects=[1], labels=[0])
  loaded = [data.load('1')[0] for data in load_watch(tmp_path, window=4)]
  x = np.concatenate(loaded)
  x = x[np.argsort(x[:, 0])].reshape(4, 8, 6)
  for k, window in enumerate(np.split(recording(0, 16), 4)):
    start = window[0]
    expected = [
      start + 15,
      np.full(6, 10 * np.sqrt(1.25)),
      start,
      start + 30,
      start + 7.5,
      start + 15,
      start + 22.5,
      np.full(6, 10),
    ]
    np.testing.assert_allclose(x[k], expected, rtol=1e-6)


def test_d10_no_sample_is_in_train_and_test(tmp_path):
  write(tmp_path, [200], subjects=[1], labels=[0])
  spans = []
  for data in load_watch(tmp_path, window=7):
    x = data.load('1')[0].reshape(-1, 8, 6)
    spans += [(low, high) for low, high in zip(x[:, 2, 0], x[:, 3, 0], strict=True)]
  spans.sort()
  assert len(spans) == 28
  assert all(end < start for (_, end), (start, _) in zip(spans[:-1], spans[1:], strict=True))


def test_arguments_are_checked(tmp_path):
  with pytest.raises(ValueError, match='window=1'):
    load_watch(tmp_path, window=1)
  write(tmp_path, [16], subjects=[1], labels=[0])
  with pytest.raises(ValueError, match='as long as a window. Received: window=17'):
    load_watch(tmp_path, window=17)


def test_missing_data_name_folder_and_package(tmp_path, monkeypatch):
  with pytest.raises(FileNotFoundError, match=f'{tmp_path}.*seglearn==1.2.5'):
    load_watch(tmp_path)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(FileNotFoundError, match='package `seglearn` is installed.*seglearn==1.2.5'):
    load_watch()


def test_the_package_is_found_and_not_imported(tmp_path, monkeypatch):
  package = tmp_path / 'seglearn'
  (package / 'data').mkdir(parents=True)
  (package / '__init__.py').write_text('raise RuntimeError("imported")')
  write(package / 'data', [400], subjects=[3], labels=[1])
  monkeypatch.syspath_prepend(tmp_path)
  assert load_watch()[0].client_ids == ['3']


@needs_package
def test_watch_data_of_the_package():
  train, test = load_watch()
  assert train.client_ids == test.client_ids == [str(k) for k in range(1, 11)]
  for data in (train, test):
    for key in data.client_ids:
      assert np.unique(data.load(key)[1]).tolist() == list(range(7))
  assert sum(map(train.num_examples, train.client_ids)) > 1500
