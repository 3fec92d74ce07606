"""The same images, seen by each client through pixels in another order."""

import numpy as np

from tffpers.datasets import _split
from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.partition import _checks, _images


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
  height, width, channels = _images.image_shape(data)
  seed = _checks.whole('seed', seed, 0)
  arrays = {}
  for client_id in data.client_ids:
    x, y = data.load(client_id)
    # The label keeps this draw apart from a split of the same client.
    order = _split.permutation(seed, f'pixels of {client_id}', height * width)
    pixels = np.asarray(x).reshape(len(y), height * width, channels)
    arrays[client_id] = (pixels[:, order].reshape(len(y), height, width, channels), y)
  return FederatedDataset.from_arrays(arrays)
