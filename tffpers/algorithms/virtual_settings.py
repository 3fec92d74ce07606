"""Hyper-parameters of VIRTUAL, checked once."""

import dataclasses
import math
import numbers

from tffpers import client_loop, modelling
from tffpers.algorithms import shares


@dataclasses.dataclass(frozen=True)
class Settings:
  """Validated hyper-parameters of `build_virtual`, named and explained there.

  Attributes:
    shares: Each client's share of the prior in its factor; they sum to 1.
    targets_per_example: See `ModelSpec`.
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
    told = ('loss_fn', 'training', 'shares', 'targets_per_example')
    names = [field.name for field in dataclasses.fields(self) if field.name not in told]
    return {name: getattr(self, name) for name in names}


def _number(value: object) -> bool:
  return isinstance(value, numbers.Real) and math.isfinite(value)


def prior_shares(client_num_examples: shares.Counts, factor_weighting: str) -> tuple[float, ...]:
  """Each client's exponent of the prior: 1/K, or its share N_i/N of all examples.

  Args:
    client_num_examples: N_i of each of the K clients, in the order of their index.
    factor_weighting: `equal` or `by_size`.

  Returns:
    K numbers that sum to 1.

  Raises:
    TypeError: The counts are neither a sequence nor a mapping.
    ValueError: There is no client, a count that is no integer ≥ 0, nothing to weigh by, or
      no such rule.
  """
  if factor_weighting == 'equal':
    return shares.equal(client_num_examples)
  if factor_weighting == 'by_size':
    return shares.by_size(client_num_examples)
  raise ValueError(
    "factor_weighting must be 'equal' or 'by_size'. "
    f'Received: factor_weighting={factor_weighting!r}'
  )
