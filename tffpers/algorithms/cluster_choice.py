"""Which of the server's models a client picks.

Ghosh, Chung, Yin, Ramchandran, *An Efficient Framework for Clustered Federated Learning*,
arXiv 2006.04088 (IFCA): the model with the lowest loss on the client's data. Isaksson et
al., arXiv 2206.07832: with probability ε one of the active models instead, each as likely
as the others, the best one included.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import client_loop, modelling, seeds

# Folds 0 and 1 of a client's seed are those of its training.
_CHOICE = 2


class Choice(NamedTuple):
  """What a client picked; -1 stands for no model.

  Attributes:
    model: int32, the model it trains.
    best: int32, the active model with the lowest loss.
    explored: bool, whether chance picked the model.
  """

  model: tf.Tensor
  best: tf.Tensor
  explored: tf.Tensor


def mean_losses(
  loss_fn: modelling.LossFn,
  models: list[modelling.BoundModel],
  active: tf.Tensor,
  data: dict[str, Any],
) -> tf.Tensor:
  """Mean loss per target of every model on a client's data, in one pass over the data.

  Models are in evaluation mode, and the batches are those of every evaluation: the losses
  do not depend on the batch size of the training.

  Args:
    loss_fn: Per-target losses.
    models: J models with their weights.
    active: bool[J]; the others are not run.
    data: `{'x', 'y'}`, whole-client tensors.

  Returns:
    float32[J]; NaN without a target and for models that are not active.
  """
  n = client_loop.num_rows(data)

  def sums(model: modelling.BoundModel, batch: dict[str, Any]) -> tf.Tensor:
    prediction = model.model(batch['x'], training=False)
    losses, weights = modelling.per_target_losses(loss_fn, batch['y'], prediction)
    weights = tf.ones_like(losses) if weights is None else weights
    return tf.stack([tf.reduce_sum(losses * weights), tf.reduce_sum(weights)])

  def step(start, totals):
    batch = tf.nest.map_structure(lambda t: t[start : start + client_loop.EVALUATION_BATCH], data)
    added = [
      tf.cond(active[j], lambda m=model: sums(m, batch), lambda: tf.zeros([2]))
      for j, model in enumerate(models)
    ]
    return start + client_loop.EVALUATION_BATCH, totals + tf.stack(added)

  _, totals = tf.while_loop(
    lambda start, _: start < n, step, (0, tf.zeros([len(models), 2])), parallel_iterations=1
  )
  return totals[:, 0] / totals[:, 1]


def choose(losses: tf.Tensor, active: tf.Tensor, epsilon: float, seed: tf.Tensor) -> Choice:
  """The best active model, or with probability `epsilon` any of them.

  Args:
    losses: float32[J].
    active: bool[J].
    epsilon: ε in [0, 1].
    seed: int32[2] of this client in this round.
  """
  seed = seeds.fold(seed, _CHOICE)
  best = lowest(losses, active, seeds.fold(seed, 0))
  coin = tf.random.stateless_uniform([], seeds.fold(seed, 1), alg='philox')
  explored = tf.logical_and(coin < epsilon, tf.reduce_any(active))
  chance = _any_of(active, seeds.fold(seed, 2))
  return Choice(tf.where(explored, chance, best), best, explored)


def lowest(losses: tf.Tensor, active: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """The active model with the lowest loss, int32; -1 if none is active.

  Chance decides between equal ones, and between all if every loss is NaN; beside another
  loss NaN is never chosen.
  """
  known = tf.logical_and(active, ~tf.math.is_nan(losses))
  least = tf.reduce_min(tf.where(known, losses, float('inf')))
  equal = tf.logical_and(known, tf.equal(losses, least))
  return _any_of(tf.where(tf.reduce_any(known), equal, active), seed)


def _any_of(candidates: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  noise = tf.random.stateless_uniform(candidates.shape, seed, alg='philox')
  chosen = tf.argmax(tf.where(candidates, noise, -1.0), output_type=tf.int32)
  return tf.where(tf.reduce_any(candidates), chosen, -1)
