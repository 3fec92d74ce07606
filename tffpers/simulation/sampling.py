"""Which clients take part in a round."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tffpers import seeds

SampleFn = Callable[[int], Iterable[str]]


def clients_of_fraction(fraction: float, num_clients: int) -> int:
  """Number of a round's clients, K_s = max(1, ⌈C · K⌉).

  A product that is a whole number but for rounding is that number: 0.07 · 100 is
  7.000000000000001 in floating point and gives 7.

  Args:
    fraction: C, in (0, 1].
    num_clients: K, at least 1.

  Raises:
    ValueError: An argument is out of range.

  Source: Isaksson et al., arXiv 2206.07832.

  >>> clients_of_fraction(0.07, 100), clients_of_fraction(0.03, 182), clients_of_fraction(0.01, 5)
  (7, 6, 1)
  """
  if not 0 < fraction <= 1:
    raise ValueError(f'fraction must be in (0, 1]. Received: fraction={fraction!r}')
  if num_clients < 1:
    raise ValueError(f'num_clients must be at least 1. Received: num_clients={num_clients!r}')
  product = fraction * num_clients
  nearest = round(product)
  return max(1, nearest if math.isclose(product, nearest, rel_tol=1e-9) else math.ceil(product))


def uniform(client_ids: Sequence[str], size: int | None, seed: int) -> SampleFn:
  """Samples without replacement, each round on its own.

  Args:
    client_ids: All ids; their order does not matter.
    size: Clients per round; None takes all.
    seed: The run's seed.

  Returns:
    A function from a round's number to its ids, sorted.

  Raises:
    ValueError: `size` is not between 1 and the number of clients.
  """
  population = sorted(client_ids)
  size = len(population) if size is None else size
  if not 1 <= size <= len(population):
    raise ValueError(
      f'clients_per_round must be between 1 and the number of training clients, '
      f'{len(population)}. Received: clients_per_round={size}'
    )

  def sample(round_number: int) -> list[str]:
    generator = np.random.default_rng(seeds.derive(seed, 'sample', round_number).view(np.uint32))
    chosen = generator.choice(len(population), size, replace=False)
    return [population[i] for i in sorted(chosen)]

  return sample


def checked(sample_fn: SampleFn, client_ids: Iterable[str], size: int | None) -> SampleFn:
  """A user's sampler, refused where it breaks the rules of a round.

  Args:
    sample_fn: From a round's number, counted from 1, to ids.
    client_ids: All training clients.
    size: How many ids it must return; None leaves that to it.

  Returns:
    A sampler whose ids are sorted, so that sums do not depend on their order.

  Raises:
    ValueError: (by the sampler) An id is unknown or occurs twice (one state would
      get two successors), or their number is not `size`.
  """
  known = set(client_ids)

  def sample(round_number: int) -> list[str]:
    chosen = [str(key) for key in sample_fn(round_number)]
    twice = sorted({key for key in chosen if chosen.count(key) > 1})
    unknown = sorted(set(chosen) - known)
    if twice or unknown or size not in (None, len(chosen)):
      raise ValueError(
        'sample_fn must return different training clients'
        + (f', {size} of them' if size is not None else '')
        + f'. Received: round {round_number} with {len(chosen)} clients'
        + (f', twice: {twice}' if twice else '')
        + (f', unknown: {unknown}' if unknown else '')
      )
    return sorted(chosen)

  return sample
