"""Natural clients: whoever a row says it came from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tffpers.datasets.federated_dataset import FederatedDataset


def natural(
  x: Mapping[str, npt.ArrayLike] | np.ndarray, y: npt.ArrayLike, *, column: str | int
) -> FederatedDataset:
  """One client for each value of a column, in order of their first row.

  The column says who a client is and is not kept as a feature. Nothing is drawn: a
  client's rows keep their order, and splits that were grouped alone agree on ids. Ids
  that stand beside the data go to `FederatedDataset.from_grouped`.

  Args:
    x: Dict of arrays [n, …], of which one has the ids, integers or strings [n]; or a
      table of numbers [n, d].
    y: Array [n, …].
    column: The name of the ids in the dict, or their place in the table, where they
      must be whole numbers.

  Returns:
    A dataset of the other features with ids as `str`.

  Raises:
    ValueError: If there is no such column, or nothing besides it; else as
      `FederatedDataset.from_arrays`.

  >>> x = {"writer": np.array(["ann", "bob", "ann"]), "ink": np.zeros([3, 2])}
  >>> data = natural(x, np.arange(3), column="writer")
  >>> data.client_ids, data.load("ann")[1]
  (['ann', 'bob'], array([0, 2]))
  """
  ids, features = _named(x, column) if isinstance(x, Mapping) else _numbered(x, column)
  return FederatedDataset.from_grouped(ids, features, y)


def _named(x: Mapping[str, npt.ArrayLike], column: Any) -> tuple[np.ndarray, dict[str, Any]]:
  if column not in x or len(x) < 2:
    raise ValueError(
      f'x must have the column and another feature. Received: column={column!r}, x with {list(x)}'
    )
  return np.asarray(x[column]), {name: x[name] for name in x if name != column}


def _numbered(x: Any, column: Any) -> tuple[np.ndarray, np.ndarray]:
  table = np.asarray(x)
  if table.ndim != 2 or table.shape[1] < 2 or column not in range(table.shape[1]):
    raise ValueError(
      'x must be a table [n, d] with the column and another feature. '
      f'Received: column={column!r}, x of shape {table.shape}'
    )
  ids = table[:, column]
  whole = (np.abs(ids) < 2**63) & (ids == np.floor(ids))
  if wrong := ids[~whole].tolist():
    raise ValueError(f'Ids must be whole numbers. Received: {wrong[0]!r} in column {column!r}')
  return ids.astype(np.int64), np.delete(table, column, axis=1)
