"""Sizes of the clients of a data set, and features on one scale."""

import numpy as np

from tffpers.datasets.federated_dataset import FederatedDataset


def dataset_statistics(train: FederatedDataset, test: FederatedDataset) -> dict[str, float]:
  """Number of clients, and mean, deviation, minimum and maximum of their sizes.

  Returns:
    `num_clients`, those in train, in test or in both; `train_mean`, `train_sd` (with
    divisor K), `train_min` and `train_max` of the number of examples over the clients of
    train, and the same for `test_…`.

  Source: the columns of Table I of Corinzia et al., arXiv 1906.06268.

  >>> rows = lambda n: (np.zeros([n, 1], np.float32), np.zeros([n], np.int32))
  >>> train = FederatedDataset.from_arrays({"ann": rows(4), "bob": rows(8)})
  >>> statistics = dataset_statistics(train, train)
  >>> statistics["num_clients"], statistics["train_mean"], statistics["train_sd"]
  (2, 6.0, 2.0)
  """
  statistics: dict[str, float] = {'num_clients': len({*train.client_ids, *test.client_ids})}
  for name, data in (('train', train), ('test', test)):
    sizes = np.array([data.num_examples(key) for key in data.client_ids])
    statistics |= {
      f'{name}_mean': float(sizes.mean()),
      f'{name}_sd': float(sizes.std()),
      f'{name}_min': int(sizes.min()),
      f'{name}_max': int(sizes.max()),
    }
  return statistics


def standardize(
  train: FederatedDataset, test: FederatedDataset
) -> tuple[FederatedDataset, FederatedDataset]:
  """Features with mean 0 and variance 1 over all training examples of all clients.

  The statistics come from training data alone. They are sums over clients, and one
  map for all, which a server could learn by secure aggregation and broadcast; what
  sets clients apart is kept. A feature that is constant in train becomes 0 there.

  Args:
    train: `x` an array [n, …] of floats.
    test: The same features.

  Returns:
    `(train, test)` with `x` of the same dtypes.

  Raises:
    ValueError: If `x` is no array of floats or there are no training examples.
  """
  for name, data in (('train', train), ('test', test)):
    spec = data.element_spec[0]
    if isinstance(spec, dict) or not spec.dtype.is_floating:
      raise ValueError(f'x must be one array of floats. Received: {name}={data!r}')
  mean, scale = _moments(train)
  return _scaled(train, mean, scale), _scaled(test, mean, scale)


def _moments(train: FederatedDataset) -> tuple[np.ndarray, np.ndarray]:
  """Mean and standard deviation of every feature, in float64; 1 for a constant one."""
  arrays = [np.asarray(train.load(key)[0], np.float64) for key in train.client_ids]
  count = sum(map(len, arrays))
  if not count:
    raise ValueError(f'There must be training examples. Received: train={train!r}')
  mean = sum(x.sum(axis=0) for x in arrays) / count
  variance = sum(np.square(x - mean).sum(axis=0) for x in arrays) / count
  scale = np.sqrt(variance)
  # The mean of equal numbers is not exactly their value.
  constant = scale <= 1e-12 * np.abs(mean)
  return mean, np.where(constant, 1.0, scale)


def _scaled(data: FederatedDataset, mean: np.ndarray, scale: np.ndarray) -> FederatedDataset:
  arrays = {}
  for key in data.client_ids:
    features, y = data.load(key)
    x = np.asarray(features)
    arrays[key] = (((x - mean) / scale).astype(x.dtype), y)
  return FederatedDataset.from_arrays(arrays)
