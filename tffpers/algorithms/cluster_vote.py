"""A vote of the first round's clients on the models to start from.

A random start may leave a model that is nobody's best one, and then it stays so for ever.
A balanced start therefore asks the first round's clients: each draws the candidate starts
itself, from seeds, and uploads which model of each start is clearly its best one; the
server takes the first start in which every model is that of enough clients.

Clearly: by more than chance. Untrained models often differ by less on a client's data than
its examples do. A start that splits the clients by such chance tells no cluster from
another: its models are first trained on mixtures of all clusters, and the luckier one wins
all clients.
"""

from typing import Any

import tensorflow as tf

from tffpers import client_loop, modelling, seeds
from tffpers.algorithms import cluster_start

NUM_STARTS = 50

# Standard errors of the mean difference between two models' losses on the same targets.
_CLEAR = 3.0
# Of J models each must be the best of this share of the clients, divided by J: 35 % of two.
_LEAST_SHARE = 0.7
# Models of a start are numbered from 0, so -1 is no model's number.
_STARTS = -1


def start_seed(seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
  """Seed of a candidate start; that of number 0 is the run's own, as in a random start."""
  seed = tf.convert_to_tensor(seed)
  return tf.where(tf.equal(number, 0), seed, seeds.fold(seeds.fold(seed, _STARTS), number))


def vote(
  loss_fn: modelling.LossFn,
  draw: cluster_start.Draw,
  models: list[modelling.BoundModel],
  run_seed: tf.Tensor,
  data: dict[str, Any],
) -> tf.Tensor:
  """A client's clearly best model of every candidate start.

  Args:
    loss_fn: Per-target losses.
    draw: Initial values from a seed.
    models: J models; they are left with the last start's values.
    run_seed: int32[2], what the starts are drawn from.
    data: `{'x', 'y'}`, the client's training data.

  Returns:
    float32[NUM_STARTS, J + 1], one 1 in each row, in the last column where no model is
    clearly the best one; a row of zeros where no loss is a number.
  """

  def ballot(number):
    start = start_seed(run_seed, number)
    for j, model in enumerate(models):
      model.assign(draw(cluster_start.model_seed(start, j)))
    return clearly_best(loss_fn, models, data)

  return tf.map_fn(
    ballot,
    tf.range(NUM_STARTS),
    fn_output_signature=tf.TensorSpec([len(models) + 1], tf.float32),
    parallel_iterations=1,
  )


def clearly_best(
  loss_fn: modelling.LossFn, models: list[modelling.BoundModel], data: dict[str, Any]
) -> tf.Tensor:
  """Which model's mean loss is lower than every other's by more than chance.

  On the same targets, by more than 3 standard errors of the mean difference; a loss that is
  no number is higher than any that is.

  Args:
    loss_fn: Per-target losses.
    models: J models with their weights; they are run in evaluation mode.
    data: `{'x', 'y'}`, whole-client tensors.

  Returns:
    float32[J + 1], a 1 for that model, or in the last place if there is none (a single
    target shows no difference to be more than chance); zeros where no loss is a number.
  """
  rows, size = client_loop.num_rows(data), len(models)

  def step(start, gaps, squares, count):
    batch = tf.nest.map_structure(lambda t: t[start : start + client_loop.EVALUATION_BATCH], data)
    losses, weights = _losses(loss_fn, models, batch)
    gap = losses[:, tf.newaxis] - losses
    return (
      start + client_loop.EVALUATION_BATCH,
      gaps + tf.reduce_sum(weights * gap, -1),
      squares + tf.reduce_sum(weights * gap * gap, -1),
      count + tf.reduce_sum(weights),
    )

  nothing = tf.zeros([size, size])
  _, gaps, squares, count = tf.while_loop(
    lambda start, *_: start < rows, step, (0, nothing, nothing, 0.0), parallel_iterations=1
  )
  mean = gaps / count
  variance = tf.maximum(squares / count - mean * mean, 0.0)
  clear = mean < -_CLEAR * tf.sqrt(variance / (count - 1))
  # A model's gap to itself is 0 where its losses are numbers.
  finite = tf.math.is_finite(tf.linalg.diag_part(mean))
  clear = tf.logical_or(clear, tf.logical_and(finite[:, tf.newaxis], ~finite))
  best = tf.logical_and(finite, tf.reduce_all(tf.logical_or(clear, tf.eye(size) > 0), -1))
  known = tf.reduce_any(finite)
  undecided = tf.logical_and(known, ~tf.reduce_any(best))
  return tf.cast(tf.concat([best, undecided[tf.newaxis]], 0), tf.float32)


def _losses(
  loss_fn: modelling.LossFn, models: list[modelling.BoundModel], batch: dict[str, Any]
) -> tuple[tf.Tensor, tf.Tensor]:
  """The models' losses on all targets of a batch, [J, targets], and the targets' weights."""
  found = []
  for model in models:
    prediction = model.model(batch['x'], training=False)
    losses, weights = modelling.per_target_losses(loss_fn, batch['y'], prediction)
    found.append(tf.reshape(losses, [-1]))
  weights = tf.ones_like(losses) if weights is None else weights
  return tf.stack(found), tf.reshape(weights, [-1])


def no_votes(num_models: int) -> tf.Tensor:
  """The ballot of a client that is not asked."""
  return tf.zeros([NUM_STARTS, num_models + 1])


def elect(votes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """The start that the votes choose.

  Args:
    votes: float32[NUM_STARTS, J + 1], sum of the clients' ballots.

  Returns:
    Number of the first start in which every model has its share of all voters, or else of
    the start whose least popular model is the most popular, int32; and whether it is
    balanced.
  """
  share = tf.math.divide_no_nan(votes, tf.reduce_sum(votes, -1, keepdims=True))
  least = tf.reduce_min(share[:, :-1], -1)
  enough = least >= _LEAST_SHARE / (votes.shape[1] - 1)
  balanced = tf.reduce_any(enough)
  # argmax finds the first of equal ones.
  ranked = tf.where(balanced, tf.cast(enough, tf.float32), least)
  return tf.argmax(ranked, output_type=tf.int32), balanced


def anybody_voted(votes: tf.Tensor) -> tf.Tensor:
  """Whether there is a vote at all, bool."""
  return tf.reduce_any(votes > 0)
