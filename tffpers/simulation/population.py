"""The clients of a run: what they are told and what they hold."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import cachetools  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import process as process_lib
from tffpers import seeds
from tffpers.simulation import border, codec

_CACHE_BYTES = 256 << 20

Example = tuple[Any, np.ndarray]


class ClientError(RuntimeError):
  """A client's data could not be loaded, or its training failed."""


class ClientInfo(NamedTuple):
  """What a client knows before its first round.

  Attributes:
    index: int32, its place: training clients in the data set's order, then the others.
    num_examples: int32, its training examples.
    seed: int32[2] of its own.
  """

  index: Any
  num_examples: np.int32
  seed: np.ndarray


@dataclasses.dataclass(frozen=True)
class Population:
  """All clients of a run, checked once against what the process takes.

  Attributes:
    process: The algorithm.
    datasets: `train` and, where given, `test` and `validation`.
    seed: The run's seed.
    num_classes: If given, targets must be classes below it.
    skip_failures: Whether a client that fails is left out instead of ending the run.

  Raises:
    TypeError, ValueError: As `border.check_data`.
  """

  process: process_lib.PersonalizedProcess
  datasets: Mapping[str, border.Dataset]
  seed: int
  num_classes: int | None = None
  skip_failures: bool = False

  def __post_init__(self):
    border.check_data(self.process, self.datasets)

  @functools.cached_property
  def client_ids(self) -> list[str]:
    """Training clients in their data set's order, then those of other data sets only."""
    return list(dict.fromkeys(key for data in self.datasets.values() for key in data.client_ids))

  def size(self, name: str, client_id: str) -> int:
    """Examples of a client in one of the data sets, 0 where it has none."""
    return self._sizes.get(name, {}).get(client_id, 0)

  def with_data(self, name: str) -> list[str]:
    """Ids of the clients that have examples in a data set, sorted."""
    return sorted(key for key, size in self._sizes[name].items() if size)

  def info(self, client_id: str) -> ClientInfo:
    """What `initialize_client` is told about a client."""
    return ClientInfo(
      np.int32(self._index[client_id]),
      np.int32(self.size('train', client_id)),
      seeds.derive(self.seed, 'client', client_id),
    )

  def load(self, name: str, client_id: str) -> Example:
    """A client's `(x, y)`, perhaps from the cache.

    Raises:
      ClientError: The data set failed.
      ValueError: A target is no class.
    """
    return self._cached_load(name, client_id)

  def data(
    self,
    computation: tff.Computation,
    client_ids: Iterable[str],
    purpose: tuple[str | int, ...],
    substitutes: Mapping[str, str] | None = None,
  ) -> dict[str, Any]:
    """The clients' data as a computation takes them.

    Args:
      computation: One of the process's, with client data as its third argument.
      client_ids: Which clients.
      purpose: What the seeds are for; the client's id is appended.
      substitutes: Data sets to use in place of others, by name.

    Returns:
      Data by id, without the clients that failed.

    Raises:
      ClientError: A client failed and failures are not skipped.
    """
    fields = {
      name: (substitutes or {}).get(name, name)
      for name, _ in codec.named_children(border.data_type(computation))
    }
    results = {}
    for key in client_ids:
      try:
        results[key] = {
          field: seeds.derive(self.seed, *purpose, key)
          if name == 'seed'
          else dict(zip('xy', self.load(name, key), strict=True))
          for field, name in fields.items()
        }
      except ClientError as error:
        if not self.skip_failures:
          raise
        warnings.warn(f'Left out: {error}', RuntimeWarning, stacklevel=2)
    return results

  @functools.cached_property
  def _index(self) -> dict[str, int]:
    return {key: i for i, key in enumerate(self.client_ids)}

  @functools.cached_property
  def _sizes(self) -> dict[str, dict[str, int]]:
    return {
      name: {key: data.num_examples(key) for key in data.client_ids}
      for name, data in self.datasets.items()
    }

  @functools.cached_property
  def _cached_load(self) -> Callable[[str, str], Example]:
    @cachetools.cached(cachetools.LRUCache(_CACHE_BYTES, getsizeof=_num_bytes))
    def load(name: str, client_id: str) -> Example:
      try:
        x, y = self._rows(name, client_id)
      except Exception as error:
        raise ClientError(
          f'The {name} data of client {client_id!r} could not be loaded: '
          f'{type(error).__name__}: {error}'
        ) from error
      if isinstance(x, dict):
        # TFF compares the fields of a struct in order.
        x = {key: x[key] for key in self._feature_order(name)}
      if self.num_classes is not None:
        border.check_classes(name, client_id, y, self.num_classes)
      return x, y

    return load

  def _rows(self, name: str, client_id: str) -> Example:
    """What the data set holds of a client; no rows of one that it does not know."""
    dataset = self.datasets[name]
    if client_id in self._sizes[name]:
      return dataset.load(client_id)
    return tf.nest.map_structure(
      lambda spec: np.zeros([0, *spec.shape], spec.dtype.as_numpy_dtype), dataset.element_spec
    )

  def _feature_order(self, name: str) -> list[str]:
    process = self.process
    types = {'train': process.next, 'test': process.evaluate, 'validation': process.evaluate}
    fields = dict(codec.named_children(border.data_type(types[name])))
    example = fields.get(name, fields.get('test'))
    return [key for key, _ in codec.named_children(dict(codec.named_children(example))['x'])]


def _num_bytes(example: Example) -> int:
  return sum(array.nbytes for array in tf.nest.flatten(example))
