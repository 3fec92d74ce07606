"""Which rows of a data set become which client, and what sets the clients apart.

A partitioner returns index arrays, one for each client. It ends by construction,
draws from a generator of its own seed, and uses every row exactly once.
"""

from collections.abc import Sequence

import numpy as np

from tffpers.datasets import _split
from tffpers.datasets.federated_dataset import FederatedDataset


def iid(labels: np.ndarray, num_clients: int, *, seed: int) -> list[np.ndarray]:
  """Random parts, alike but for chance.

  Args:
    labels: Array [n, …]; only n matters here.
    num_clients: Number of parts, in [1, n].
    seed: Non-negative seed of the draw.

  Returns:
    `num_clients` increasing index arrays, int64 [n_k], disjoint and together all of
    0 … n − 1; their sizes differ by one at most.

  Raises:
    ValueError: If `num_clients` or `seed` is out of range.

  >>> parts = iid(np.zeros([7]), 3, seed=0)
  >>> sorted(np.concatenate(parts).tolist()), [len(part) for part in parts]
  ([0, 1, 2, 3, 4, 5, 6], [3, 2, 2])
  """
  if not 1 <= num_clients <= len(labels):
    raise ValueError(
      f'Every client needs a row: num_clients must be in [1, {len(labels)}]. '
      f'Received: num_clients={num_clients}'
    )
  if seed < 0:
    raise ValueError(f'seed must not be negative. Received: seed={seed}')
  order = np.random.default_rng(seed).permutation(len(labels))
  return [np.sort(part) for part in np.array_split(order, num_clients)]


def as_clients(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray]) -> FederatedDataset:
  """One client for each index array; their ids are `'0'`, `'1'`, …

  Args:
    x: Array [n, …].
    y: Array [n, …].
    parts: Index arrays into the n rows.
  """
  return FederatedDataset.from_arrays({k: (x[rows], y[rows]) for k, rows in enumerate(parts)})


def permute_pixels(data: FederatedDataset, *, seed: int) -> FederatedDataset:
  """The same images with pixels moved, in one random order for each client.

  A client's order depends on seed, id and number of pixels only. So train and test
  sets, permuted with one seed, agree at every client. Channels stay together.

  Args:
    data: Images [n, height, width, channels].
    seed: Non-negative seed of the orders.

  Raises:
    ValueError: If the data are no images, or `seed` is negative.
  """
  shape = getattr(data.element_spec[0], 'shape', None)
  if shape is None or shape.rank != 3:
    raise ValueError(f'x must be [n, height, width, channels]. Received: {data!r}')
  if seed < 0:
    raise ValueError(f'seed must not be negative. Received: seed={seed}')
  height, width, channels = shape
  arrays = {}
  for client_id in data.client_ids:
    x, y = data.load(client_id)
    # The label keeps this draw apart from a split of the same client.
    order = _split.permutation(seed, f'pixels of {client_id}', height * width)
    pixels = np.asarray(x).reshape(len(y), height * width, channels)
    arrays[client_id] = (pixels[:, order].reshape(len(y), height, width, channels), y)
  return FederatedDataset.from_arrays(arrays)
