"""Which rows of a client go into which part of a split."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

Part = float | int | None


def check_parts(parts: Sequence[Part], seed: int) -> None:
  """Raises `ValueError` unless the parts can cover every row exactly once and seed ≥ 0.

  Shares are floats in (0, 1), sizes are integers ≥ 0; at most one `None` takes
  the rest, and without it shares sum to 1.
  """
  given = [part for part in parts if part is not None]
  shares = [part for part in given if isinstance(part, float)]
  sizes = [part for part in given if isinstance(part, (int, np.integer))]
  rest = len(parts) - len(given)
  problem = None
  if len(parts) < 2:
    problem = 'at least two parts'
  elif rest > 1:
    problem = 'at most one None'
  elif len(shares) + len(sizes) < len(given) or (shares and sizes):
    problem = 'either all shares (float) or all sizes (int)'
  elif any(not 0.0 < share < 1.0 for share in shares) or any(size < 0 for size in sizes):
    problem = 'shares in (0, 1) or sizes >= 0'
  elif shares and (sum(shares) >= 1.0 if rest else not math.isclose(sum(shares), 1.0)):
    problem = 'shares that sum to 1, or to less with one None for the rest'
  elif seed < 0:
    problem = f'a non-negative seed, not {seed}'
  if problem:
    raise ValueError(f'A split needs {problem}. Received: parts={tuple(parts)!r}')


def bounds(parts: Sequence[Part], num_examples: int, client_id: str) -> list[int]:
  """Boundaries `[0, …, num_examples]` of the parts, one more than there are parts.

  Shares are rounded at their cumulative sum, so no row is lost or used twice.

  Raises:
    ValueError: If sizes do not fit the client.
  """
  given = [part for part in parts if part is not None]
  whole: float = 1.0 if given and isinstance(given[0], float) else num_examples
  filled = [whole - sum(given) if part is None else part for part in parts]
  if whole == 1.0 and isinstance(whole, float):
    # Halves round up; the tolerance lets an inexact sum such as 0.1 + 0.7 + 0.05 do so too.
    edges = [math.floor(edge * num_examples + 0.5 + 1e-9) for edge in np.cumsum(filled)[:-1]]
    return [0, *edges, num_examples]
  if min(filled) < 0 or sum(filled) != num_examples:
    raise ValueError(
      f"The sizes of a split must sum to the client's number of examples, {num_examples}; "
      f'one None takes the rest. Received: client {client_id!r}, parts={tuple(parts)!r}'
    )
  return [0, *(int(edge) for edge in np.cumsum(filled))]


def permutation(seed: int, client_id: str, num_examples: int) -> np.ndarray:
  """A permutation of the client's rows that depends on seed, id and length only."""
  digest = hashlib.sha256(client_id.encode()).digest()
  words = np.frombuffer(digest, dtype='<u4')
  return np.random.default_rng([seed, *words.tolist()]).permutation(num_examples)
