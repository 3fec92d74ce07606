"""Early stopping of each of the server's models.

Isaksson et al., arXiv 2206.07832. A model is scored as it was broadcast, by the
example-weighted validation loss over the clients that picked it, and exactly those weights
are the snapshot of a model that improved. A model that has not improved for `patience`
checks leaves the active set with its best snapshot.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from tffpers import client_loop, modelling


@dataclasses.dataclass(frozen=True)
class StoppingRule:
  """When a model stops.

  Attributes:
    check_every: Rounds from one check to the next, ≥ 1.
    patience: Checks without improvement after which a model stops, ≥ 1.
  """

  check_every: int
  patience: int

  def __post_init__(self):
    for name in ('check_every', 'patience'):
      value = getattr(self, name)
      if not client_loop.is_integer(value, 1):
        raise ValueError(f'{name} must be an integer ≥ 1. Received: {name}={value!r}')


class Stopping(NamedTuple):
  """What the server remembers of each model.

  Attributes:
    active: bool[J].
    score: float32[J], best validation loss, infinite before the first.
    waited: int32[J], checks since then.
    snapshot: `ModelWeights` [J, …], the weights with that loss; initial before the first.
  """

  active: tf.Tensor
  score: tf.Tensor
  waited: tf.Tensor
  snapshot: modelling.ModelWeights


def initialize(models: modelling.ModelWeights, num_models: int) -> Stopping:
  """All models active and none scored."""
  return Stopping(
    tf.ones([num_models], tf.bool),
    tf.fill([num_models], float('inf')),
    tf.zeros([num_models], tf.int32),
    models,
  )


def check(
  patience: int,
  before: Stopping,
  broadcast: modelling.ModelWeights,
  loss_sum: tf.Tensor,
  weight: tf.Tensor,
) -> Stopping:
  """What the server remembers after a round.

  Args:
    patience: See `StoppingRule`.
    before: What it remembered.
    broadcast: `ModelWeights` [J, …] that the round's clients received.
    loss_sum: float32[J], sum of validation losses over the clients that picked a model.
    weight: float32[J], number of their validation targets: 0 in a round without a check,
      and for a model that nobody picked, for which it does not count.
  """
  score = loss_sum / weight
  scored = tf.logical_and(before.active, weight > 0)
  improved = tf.logical_and(scored, score < before.score)
  waited = tf.where(improved, 0, before.waited + tf.cast(scored, tf.int32))
  return Stopping(
    tf.logical_and(before.active, waited < patience),
    tf.where(improved, score, before.score),
    waited,
    where_models(improved, broadcast, before.snapshot),
  )


def where_models(
  condition: tf.Tensor, if_true: modelling.ModelWeights, if_false: modelling.ModelWeights
) -> modelling.ModelWeights:
  """Model by model one of two stacks of models; condition is bool[J]."""
  return tf.nest.map_structure(
    lambda a, b: tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b),
    if_true,
    if_false,
  )
