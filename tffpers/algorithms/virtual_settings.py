"""Hyper-parameters of VIRTUAL, checked once."""

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence

from tffpers import client_loop, modelling


@dataclasses.dataclass(frozen=True)
class Settings:
  """Validated hyper-parameters of `build_virtual`, named and explained there.

  Attributes:
    shares: Each client's share of the prior in its factor; they sum to 1.
    targets_per_example: See `ModelSpec`.
    exact_sum: Whether the server adds what it is sent in float64, exactly.
  """

  loss_fn: modelling.LossFn
  training: client_loop.LocalTraining
  shares: tuple[float, ...]
  beta: float
  damping: float | None
  scale_learning_rate_multiplier: float
  max_log_scale_step: float
  start: str
  client_start: str
  fed_avg_init: bool
  prune_percentile: float
  evaluation_samples: int
  aggregator_reduction: str
  targets_per_example: int = 1
  exact_sum: bool = True

  def __post_init__(self):
    checks = (
      ('beta', 'a finite number ≥ 0', _number(self.beta) and self.beta >= 0),
      (
        'damping',
        'in (0, 1], or None for 1/C',
        self.damping is None or (_number(self.damping) and 0 < self.damping <= 1),
      ),
      (
        'scale_learning_rate_multiplier',
        'a finite number ≥ 0',
        _number(self.scale_learning_rate_multiplier) and self.scale_learning_rate_multiplier >= 0,
      ),
      (
        'max_log_scale_step',
        'a positive finite number',
        _number(self.max_log_scale_step) and self.max_log_scale_step > 0,
      ),
      ('start', "'informed' or 'prior'", self.start in ('informed', 'prior')),
      ('client_start', "'server' or 'own'", self.client_start in ('server', 'own')),
      ('fed_avg_init', 'a bool', isinstance(self.fed_avg_init, bool)),
      (
        'prune_percentile',
        'in [0, 100)',
        _number(self.prune_percentile) and 0 <= self.prune_percentile < 100,
      ),
      (
        'evaluation_samples',
        'an integer ≥ 0',
        isinstance(self.evaluation_samples, int) and self.evaluation_samples >= 0,
      ),
      ('aggregator_reduction', "'sum' or 'mean'", self.aggregator_reduction in ('sum', 'mean')),
    )
    for name, expected, good in checks:
      if not good:
        raise ValueError(f'{name} must be {expected}. Received: {name}={getattr(self, name)!r}')

  def plain(self) -> dict[str, object]:
    """What is not told elsewhere, for `config.json`."""
    told = ('loss_fn', 'training', 'shares', 'targets_per_example', 'exact_sum')
    names = [field.name for field in dataclasses.fields(self) if field.name not in told]
    return {name: getattr(self, name) for name in names}


def _number(value: object) -> bool:
  return isinstance(value, numbers.Real) and math.isfinite(value)


def prior_shares(
  client_num_examples: Mapping[str, int] | Sequence[int], factor_weighting: str
) -> tuple[float, ...]:
  """Each client's exponent of the prior: 1/K, or its share N_i/N of all examples.

  Args:
    client_num_examples: N_i of each of the K clients, in the order of their index.
    factor_weighting: `equal` or `by_size`.

  Returns:
    K numbers that sum to 1.

  Raises:
    ValueError: There is no client, a negative N_i, nothing to weigh by, or no such rule.
  """
  if isinstance(client_num_examples, Mapping):
    client_num_examples = list(client_num_examples.values())
  if not isinstance(client_num_examples, Sequence):
    raise TypeError(
      'client_num_examples must be a sequence or a mapping by client id. '
      f'Received: client_num_examples={client_num_examples!r}'
    )
  sizes = [int(n) for n in client_num_examples]
  if not sizes or min(sizes) < 0:
    raise ValueError(
      'client_num_examples must give a number ≥ 0 for each of at least one client. '
      f'Received: client_num_examples={client_num_examples!r}'
    )
  if factor_weighting == 'equal':
    return (1.0 / len(sizes),) * len(sizes)
  if factor_weighting != 'by_size' or not sum(sizes):
    raise ValueError(
      "factor_weighting must be 'equal', or 'by_size' where there are examples. "
      f'Received: factor_weighting={factor_weighting!r}, {sum(sizes)} examples in all'
    )
  return tuple(n / sum(sizes) for n in sizes)
