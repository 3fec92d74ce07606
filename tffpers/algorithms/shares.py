"""Each client's share of something that all clients have in common."""

import numbers
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, int] | Sequence[int]


def equal(client_num_examples: Counts) -> tuple[float, ...]:
  """1/K for each of the K clients that are counted.

  Args:
    client_num_examples: n_i of each client, in the order of their index.

  Returns:
    K numbers that sum to 1.

  Raises:
    TypeError: It is neither a sequence nor a mapping.
    ValueError: There is no client, or a count that is no integer ≥ 0.
  """
  count = len(counts(client_num_examples))
  return (1.0 / count,) * count


def by_size(client_num_examples: Counts) -> tuple[float, ...]:
  """n_i / Σ_j n_j for each client.

  Args:
    client_num_examples: n_i of each client, in the order of their index.

  Returns:
    As many numbers, which sum to 1.

  Raises:
    TypeError: It is neither a sequence nor a mapping.
    ValueError: There is no client, a count that is no integer ≥ 0, or no example at all.
  """
  sizes = counts(client_num_examples)
  if not sum(sizes):
    raise ValueError(
      'client_num_examples must count at least one example, for shares by size. '
      f'Received: client_num_examples={client_num_examples!r}'
    )
  return tuple(n / sum(sizes) for n in sizes)


def counts(client_num_examples: Counts) -> list[int]:
  """The counts alone, in order; errors as of `equal`."""
  if isinstance(client_num_examples, Mapping):
    sizes = list(client_num_examples.values())
  elif isinstance(client_num_examples, Sequence):
    sizes = list(client_num_examples)
  else:
    raise TypeError(
      'client_num_examples must be a sequence or a mapping by client id. '
      f'Received: client_num_examples={client_num_examples!r}'
    )
  if not sizes or not all(isinstance(n, numbers.Integral) and int(n) >= 0 for n in sizes):
    raise ValueError(
      'client_num_examples must give an integer ≥ 0 for each of at least one client. '
      f'Received: client_num_examples={client_num_examples!r}'
    )
  return [int(n) for n in sizes]


def plain(client_num_examples: Counts) -> dict[str, int] | list[int]:
  """The counts as `config.json` takes them, by client id where they came so."""
  sizes = counts(client_num_examples)
  if isinstance(client_num_examples, Mapping):
    return dict(zip(client_num_examples, sizes, strict=True))
  return sizes
