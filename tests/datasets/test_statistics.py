"""Sizes of clients, and features on one scale."""

import numpy as np
import pytest

from tffpers.datasets import FederatedDataset, dataset_statistics, standardize


def dataset(**features):
  return FederatedDataset.from_arrays(
    {key: (np.array(x, np.float32), np.zeros([len(x)], np.int32)) for key, x in features.items()}
  )


def test_statistics_are_over_clients():
  train = dataset(a=np.zeros([2, 1]), b=np.zeros([4, 1]), c=np.zeros([9, 1]))
  test = dataset(b=np.zeros([1, 1]), d=np.zeros([0, 1]))
  assert dataset_statistics(train, test) == {
    'num_clients': 4,
    'train_mean': 5.0,
    'train_sd': pytest.approx(np.sqrt(26 / 3)),
    'train_min': 2,
    'train_max': 9,
    'test_mean': 0.5,
    'test_sd': 0.5,
    'test_min': 0,
    'test_max': 1,
  }


def test_standardize_takes_mean_and_variance_of_all_training_examples():
  rng = np.random.default_rng(0)
  train = dataset(a=rng.normal(5, 3, [50, 4]), b=rng.normal(-1, 2, [20, 4]), c=np.zeros([0, 4]))
  scaled, _ = standardize(train, train)
  x = np.concatenate([scaled.load(key)[0] for key in scaled.client_ids])
  assert x.dtype == np.float32
  np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
  np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-5)
  # One map for all clients: what sets them apart is still there.
  assert scaled.load('a')[0].mean() > 0 > scaled.load('b')[0].mean()


def test_standardize_never_looks_at_test_data():
  train = dataset(a=[[0.0], [2.0]], b=[[4.0], [6.0]])
  scale = np.sqrt(5)
  for test in (dataset(a=[[3.0]]), dataset(a=[[3.0], [1e6]])):
    scaled, other = standardize(train, test)
    np.testing.assert_allclose(scaled.load('b')[0][:, 0], [1 / scale, 3 / scale], rtol=1e-6)
    assert other.load('a')[0][0, 0] == 0


def test_standardize_leaves_a_constant_feature_finite():
  train = dataset(a=[[0.1, 1.0]] * 3, b=[[0.1, 5.0]] * 4)
  scaled, test = standardize(train, dataset(a=[[0.6, 1.0]]))
  np.testing.assert_allclose(scaled.load('b')[0][:, 0], 0, atol=1e-7)
  np.testing.assert_allclose(test.load('a')[0][0, 0], 0.5, rtol=1e-6)


def test_standardize_refuses_what_it_cannot_scale():
  floats = dataset(a=[[1.0]])
  integers = FederatedDataset.from_arrays({'a': (np.zeros([1, 1], int), np.zeros([1], int))})
  named = FederatedDataset.from_arrays({'a': ({'x': np.zeros([1, 1])}, np.zeros([1], int))})
  for train, test, word in ((integers, floats, 'train='), (floats, named, 'test=')):
    with pytest.raises(ValueError, match=f'one array of floats. Received: {word}'):
      standardize(train, test)
  empty = dataset(a=np.zeros([0, 1]))
  with pytest.raises(ValueError, match='training examples'):
    standardize(empty, floats)
