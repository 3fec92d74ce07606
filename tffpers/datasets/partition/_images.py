"""What the changes of images share."""

from tffpers.datasets.federated_dataset import FederatedDataset


def image_shape(data: FederatedDataset) -> tuple[int, int, int]:
  """Height, width and channels; raises `ValueError` if the data are no images."""
  shape = getattr(data.element_spec[0], 'shape', None)
  if shape is None or shape.rank != 3:
    raise ValueError(f'x must be [n, height, width, channels]. Received: {data!r}')
  height, width, channels = shape
  return height, width, channels
