"""A client's part in a round of clustered federated learning: pick a model and train it."""

from typing import Any

import tensorflow as tf

from tffpers import client_loop, modelling
from tffpers.algorithms import (
  by_index,
  cluster_choice,
  cluster_vote,
  clusters,
  fed_avg,
  template,
)

Clusters = clusters.Clusters


def pick(
  settings: Clusters,
  models: list[modelling.BoundModel],
  received: clusters.Received,
  client: clusters.ClusterClient,
  data: dict[str, Any],
) -> cluster_choice.Choice:
  """The client's choice; a client that rests chooses nothing."""
  active = received.active
  if settings.num_models == 1:
    only = tf.where(active[0], 0, -1)
    return cluster_choice.Choice(only, only, tf.constant(False))
  for j, model in enumerate(models):
    tf.cond(active[j], lambda j=j, m=model: _assign(m, received, client, j), lambda: 0)
  losses = cluster_choice.mean_losses(settings.spec.loss_fn, models, active, data['train'])
  choice = cluster_choice.choose(losses, active, settings.epsilon, data['seed'])
  if settings.when_stopped == 'rest' and settings.stopping:
    gone = tf.logical_and(client.best >= 0, ~active[tf.maximum(client.best, 0)])
    choice = cluster_choice.Choice(
      tf.where(gone, -1, choice.model), choice.best, tf.logical_and(choice.explored, ~gone)
    )
  return choice


def _assign(
  model: modelling.BoundModel,
  received: clusters.Received,
  client: clusters.ClusterClient,
  index: int,
) -> int:
  model.assign(received.weights(tf.constant(index), client.weights))
  return 0


def client_update(
  settings: Clusters,
  bound: clusters.Bound,
  sent: clusters.ClusterMessage,
  num_training: tf.Tensor,
  client: clusters.ClusterClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Picks a model, trains it and forms its update; in a round that votes, only votes."""
  del num_training
  spec, models, train = settings.spec, bound.clusters, data['train']
  ballot: Any = ()
  if settings.votes:
    ballot = tf.cond(
      sent.voting,
      lambda: cluster_vote.vote(spec.loss_fn, settings.draw, models, sent.seed, train),
      lambda: cluster_vote.no_votes(settings.num_models),
    )
  received = clusters.receive(settings, sent)
  choice = pick(settings, models, received, client, data)
  # Without rows nothing is trained and nothing counts.
  rows = tf.where(choice.model >= 0, client_loop.num_rows(train), 0)
  used = {**data, 'train': tf.nest.map_structure(lambda t: t[:rows], train)}
  start = received.weights(choice.model, client.weights)
  model = models[0]
  model.assign(start)
  # A client without training rows picks by chance and speaks for no model.
  score = _score(settings, model, tf.logical_and(sent.check, rows > 0), data)
  gradients_fn = fed_avg.mean_loss_gradients(model, spec.loss_fn, start)
  result = client_loop.train(
    used['train'], gradients_fn, model.trainable, settings.training, data['seed']
  )
  trained = fed_avg.finish_training(
    spec,
    start,
    model.read(),
    result,
    fed_avg.FedAvgClient(client.weights),
    used,
    sent=lambda delta: delta,
  )
  return _output(settings, sent, client, data, choice, ballot, score, trained)


def _score(
  settings: Clusters, model: modelling.BoundModel, wanted: tf.Tensor, data: dict[str, Any]
) -> Any:
  """Sum and number of the validation losses of the model as it was broadcast.

  A loss that is no number is the largest there is: a model does not improve by losing it.
  """
  if not settings.stopping:
    return ()
  found = data['validation']
  rows = tf.where(wanted, client_loop.num_rows(found), 0)
  used = tf.nest.map_structure(lambda t: t[:rows], found)
  measured = client_loop.evaluate_model(model.model, [], settings.spec.loss_fn, used)
  loss, count = measured['loss'], measured['num_targets']
  total = tf.where(tf.math.is_finite(loss), loss * count, loss.dtype.max)
  return tf.stack([tf.where(count > 0, total, 0.0), count])


def _output(
  settings: Clusters,
  sent: clusters.ClusterMessage,
  client: clusters.ClusterClient,
  data: dict[str, Any],
  choice: cluster_choice.Choice,
  ballot: Any,
  score: Any,
  trained: template.ClientOutput,
) -> template.ClientOutput:
  """What the client's training gives, as an update of the model that it picked."""
  update = trained.update
  counts = update.weight > 0
  weight = tf.cast(counts, tf.float32) if settings.by_participants else update.weight
  value = clusters.ClusterUpdate(
    tf.nest.map_structure(lambda t: t * tf.cast(weight, t.dtype), update.value),
    weight,
    score,
    ballot,
  )
  index = tf.where(counts, choice.model, -1)
  # The score is the broadcast model's, whatever became of it here.
  scored = score[1] > 0 if settings.stopping else False
  place = tf.where(tf.logical_or(counts, scored), choice.model, -1)
  indexed = by_index.Indexed(tf.where(sent.voting, 0, place), value)
  new = clusters.ClusterClient(trained.pending.weights, tf.where(counts, choice.best, client.best))
  metrics = {
    **trained.metrics,
    'num_targets': tf.where(
      sent.voting,
      client_loop.num_targets(
        settings.spec.loss_fn, data['train'], settings.spec.targets_per_example
      ),
      trained.metrics['num_targets'],
    ),
    'picked': tf.one_hot(index, settings.num_models, dtype=tf.int32),
    'best': tf.one_hot(tf.where(counts, choice.best, -1), settings.num_models, dtype=tf.int32),
    'explored': tf.cast(tf.logical_and(choice.explored, counts), tf.int32),
    **_traffic(settings, sent, indexed),
  }
  return template.ClientOutput(update._replace(value=indexed), new, metrics)


def _traffic(
  settings: Clusters, sent: clusters.ClusterMessage, update: by_index.Indexed
) -> dict[str, tf.Tensor]:
  """The active models and the message beside them down, one model and its ballot up.

  In a round that votes no model is active: its candidates come down as a seed, and the model
  that goes up beside the ballot is zeros.
  """
  num_models = tf.reduce_sum(tf.cast(sent.active, tf.int32))
  one = client_loop.num_bytes(fed_avg.without_counters(settings.spec.weights))
  rest = client_loop.num_bytes([sent.active, sent.seed, sent.voting, sent.check])
  return template.traffic(
    models_up=1,
    models_down=num_models,
    bytes_up=client_loop.num_bytes(update),
    bytes_down=tf.cast(num_models, tf.int64) * one + rest,
  )


def best_model(
  settings: Clusters,
  models: list[modelling.BoundModel],
  weights: modelling.ModelWeights,
  own: modelling.ModelWeights,
  data: dict[str, Any],
  seed: tf.Tensor,
  otherwise: dict[str, Any] | None = None,
) -> tf.Tensor:
  """Assigns all J models and finds the one with the lowest loss on `data`, int32.

  Args:
    settings: The algorithm's.
    models: J models in the graph.
    weights: `ModelWeights` [J, …]; those that have stopped count too.
    own: The client's weights, for its integer counters.
    data: `{'x', 'y'}`.
    seed: int32[2], for ties.
    otherwise: What is used where no loss on `data` is a number.
  """
  everyone = tf.ones([settings.num_models], tf.bool)
  for j, model in enumerate(models):
    model.assign(fed_avg.received(tf.nest.map_structure(lambda t, j=j: t[j], weights), own))
  losses = cluster_choice.mean_losses(settings.spec.loss_fn, models, everyone, data)
  if otherwise is not None:
    known = tf.reduce_any(tf.math.is_finite(losses))
    rows = tf.where(known, 0, client_loop.num_rows(otherwise))
    rest = tf.nest.map_structure(lambda t: t[:rows], otherwise)
    found = cluster_choice.mean_losses(settings.spec.loss_fn, models, everyone, rest)
    losses = tf.where(known, losses, found)
  return cluster_choice.choose(losses, everyone, 0.0, seed).best
