"""The same features, called another name by each client."""

from tffpers.datasets import _split
from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.partition import _checks


def permute_labels(data: FederatedDataset, *, num_classes: int, seed: int) -> FederatedDataset:
  """The same data with class ids exchanged, in one random way for each client.

  A client's exchange depends on seed, id and number of classes only. So train and test
  sets, exchanged with one seed, agree at every client. By chance it may change nothing,
  half the time with two classes.

  Args:
    data: Any features; `y` class ids in [0, num_classes), integers [n].
    num_classes: At least 1.
    seed: Non-negative seed of the exchanges.

  Returns:
    A dataset with `y` of the same dtype.

  Raises:
    ValueError: If `y` are no class ids, their dtype is too small for `num_classes`, or an
      argument is out of range.
  """
  num_classes = _checks.whole('num_classes', num_classes, 1)
  seed = _checks.whole('seed', seed, 0)
  dtype = data.element_spec[1].dtype
  if dtype.is_integer and num_classes - 1 > dtype.max:
    raise ValueError(
      f'y must be of a dtype that holds {num_classes} class ids. Received: {dtype.name}'
    )
  arrays = {}
  for client_id in data.client_ids:
    x, y = data.load(client_id)
    # The label keeps this draw apart from a split of the same client.
    order = _split.permutation(seed, f'labels of {client_id}', num_classes)
    arrays[client_id] = (x, order[_checks.class_labels(y, num_classes)].astype(y.dtype))
  return FederatedDataset.from_arrays(arrays)
