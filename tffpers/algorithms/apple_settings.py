"""Hyper-parameters of APPLE, checked once, and what follows from them alone."""

import dataclasses
import math
import numbers

import tensorflow as tf

from tffpers import client_loop, modelling


@dataclasses.dataclass(frozen=True)
class Settings:
  """Validated hyper-parameters of `build_apple`, named and explained there.

  Attributes:
    start: p_0, one number per client; they sum to 1.
  """

  loss_fn: modelling.LossFn
  training: client_loop.LocalTraining
  start: tuple[float, ...]
  dr_learning_rate: float
  mu: float
  rounds: int
  schedule: str
  schedule_ratio: float
  schedule_epsilon: float
  max_downloads: int | None
  priority: str
  dr_momentum: float
  learning_rate_decay: float

  def __post_init__(self):
    checks = (
      (
        'dr_learning_rate',
        'a finite number ≥ 0',
        _number(self.dr_learning_rate) and self.dr_learning_rate >= 0,
      ),
      ('mu', 'a number ≥ 0, perhaps inf', isinstance(self.mu, numbers.Real) and self.mu >= 0),
      ('rounds', 'an integer ≥ 1', client_loop.is_integer(self.rounds, 1)),
      ('schedule', "'cosine' or 'exponential'", self.schedule in ('cosine', 'exponential')),
      (
        'schedule_ratio',
        'a finite number ≥ 0',
        _number(self.schedule_ratio) and self.schedule_ratio >= 0,
      ),
      (
        'schedule_epsilon',
        'in (0, 1]',
        _number(self.schedule_epsilon) and 0 < self.schedule_epsilon <= 1,
      ),
      (
        'max_downloads',
        'an integer ≥ 1, or None for all',
        self.max_downloads is None or client_loop.is_integer(self.max_downloads, 1),
      ),
      ('priority', "'abs' or 'signed'", self.priority in ('abs', 'signed')),
      ('dr_momentum', 'in [0, 1)', _number(self.dr_momentum) and 0 <= self.dr_momentum < 1),
      (
        'learning_rate_decay',
        'in (0, 1]',
        _number(self.learning_rate_decay) and 0 < self.learning_rate_decay <= 1,
      ),
    )
    for name, expected, good in checks:
      if not good:
        raise ValueError(f'{name} must be {expected}. Received: {name}={getattr(self, name)!r}')

  @property
  def num_clients(self) -> int:
    """N."""
    return len(self.start)

  @property
  def num_downloads(self) -> int:
    """min(M, N − 1), cores that a client downloads in a round."""
    others = self.num_clients - 1
    return others if self.max_downloads is None else min(self.max_downloads, others)

  @property
  def limited(self) -> bool:
    """Whether a client downloads fewer cores than there are others."""
    return self.num_downloads < self.num_clients - 1

  def strength(self, finished: tf.Tensor) -> tf.Tensor:
    """λ(r) after r rounds finished: 1 at the start, 0 from L = ratio·R on; float32.

    cosine (cos(πr/L) + 1)/2, exponential ε^{r/L}.
    """
    length = self.schedule_ratio * self.rounds
    if not length:
      return tf.constant(0.0)
    x = tf.cast(finished, tf.float32) / length
    if self.schedule == 'cosine':
      value = (tf.cos(math.pi * x) + 1) / 2
    else:
      value = tf.exp(math.log(self.schedule_epsilon) * x)
    return tf.where(x < 1, value, 0.0)

  def rate_factor(self, finished: tf.Tensor) -> tf.Tensor:
    """Factor on η1 and η2 after r rounds finished, float32."""
    return tf.pow(tf.constant(self.learning_rate_decay, tf.float32), tf.cast(finished, tf.float32))

  def plain(self) -> dict[str, object]:
    """What is not told elsewhere, for `config.json`."""
    told = ('loss_fn', 'training', 'start')
    names = [field.name for field in dataclasses.fields(self) if field.name not in told]
    return {name: getattr(self, name) for name in names}


def _number(value: object) -> bool:
  return isinstance(value, numbers.Real) and math.isfinite(value)
