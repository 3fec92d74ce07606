"""The same images, turned by an angle of each client's own."""

from collections.abc import Mapping

import numpy as np

from tffpers.datasets import _border
from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.partition import _images


def rotate(data: FederatedDataset, degrees: Mapping[str, float]) -> FederatedDataset:
  """Images turned anticlockwise about their centre, by one angle for each client.

  Multiples of 90° are exact. Other angles interpolate linearly between pixels, and what
  comes in from outside the image is 0.

  Args:
    data: Images [n, height, width, channels].
    degrees: The angle of every client by id; those of other clients do not matter.

  Returns:
    A dataset of the same shapes and dtypes.

  Raises:
    ImportError: If scipy, which turns by other angles, is missing.
    ValueError: If the data are no images, a client has no finite angle, images turned by
      90° or 270° are not square, or other angles meet images that are not floats.

  >>> x = np.array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
  >>> data = FederatedDataset.from_arrays({"a": (x, np.zeros([1]))})
  >>> rotate(data, {"a": 90}).load("a")[0][0, ..., 0]
  array([[2, 4],
         [1, 3]])
  """
  _images.image_shape(data)
  angles = {_border.client_id(key): angle for key, angle in degrees.items()}
  arrays = {}
  for client_id in data.client_ids:
    x, y = data.load(client_id)
    if not np.isfinite(angles.get(client_id, np.nan)):
      raise ValueError(
        'Every client needs an angle in degrees. '
        f'Received: client {client_id!r} with degrees {angles.get(client_id)!r}'
      )
    arrays[client_id] = (_turned(client_id, np.asarray(x), angles[client_id]), y)
  return FederatedDataset.from_arrays(arrays)


def _turned(client_id: str, x: np.ndarray, degrees: float) -> np.ndarray:
  quarters, rest = divmod(degrees, 90)
  if rest == 0:
    if quarters % 2 and x.shape[1] != x.shape[2]:
      raise ValueError(
        'Images turned by 90° or 270° must be square. '
        f'Received: client {client_id!r} with degrees {degrees!r}, x of shape {x.shape}'
      )
    return np.rot90(x, int(quarters), axes=(1, 2))
  if x.dtype.kind != 'f':
    raise ValueError(
      'Images turned by no multiple of 90° must be floats. '
      f'Received: client {client_id!r} with degrees {degrees!r}, x of dtype {x.dtype}'
    )
  from scipy import ndimage  # Only such angles need it.

  return ndimage.rotate(x, degrees, axes=(1, 2), reshape=False, order=1)
