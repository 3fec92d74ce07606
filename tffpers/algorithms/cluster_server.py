"""The server's part in a round of clustered federated learning."""

import tensorflow as tf

from tffpers import client_loop
from tffpers.algorithms import (
  cluster_start,
  cluster_stopping,
  cluster_vote,
  clusters,
  fed_avg,
  template,
)

Clusters = clusters.Clusters


def server_update(
  settings: Clusters,
  server: clusters.ClusterServer,
  sums: clusters.ClusterUpdate,
  totals: template.RoundTotals,
) -> tuple[clusters.ClusterServer, tuple[()], dict[str, tf.Tensor]]:
  """Each picked model by its average change; a vote; and which models stop."""
  updated = _average(settings, server, sums, totals)
  updated = updated._replace(picked=tf.logical_or(server.picked, sums.weight > 0))
  active = tf.ones([settings.num_models], tf.bool)
  metrics = {}
  if settings.stopping:
    stopping = cluster_stopping.check(
      settings.stopping.patience, server.stopping, server.models, *tf.unstack(sums.score, axis=1)
    )
    active = stopping.active
    models = cluster_stopping.where_models(active, updated.models, stopping.snapshot)
    updated = updated._replace(models=models, stopping=stopping)
  if settings.votes:
    updated, metrics['balanced'] = _elect(settings, server, updated, sums.votes)
  shown = tf.cast(active, tf.int32)
  return updated, (), {**metrics, 'active': shown, 'num_active': tf.reduce_sum(shown)}


def _average(
  settings: Clusters,
  server: clusters.ClusterServer,
  sums: clusters.ClusterUpdate,
  totals: template.RoundTotals,
) -> clusters.ClusterServer:
  participants, results = tf.reduce_sum(sums.weight), []
  for j in range(settings.num_models):
    weights, delta = (
      tf.nest.map_structure(lambda t, j=j: t[j], x) for x in (server.models, sums.delta)
    )
    divisor = participants if settings.by_participants else sums.weight[j]
    mean = tf.nest.map_structure(
      lambda t, d=divisor: tf.math.divide_no_nan(t, tf.cast(d, t.dtype)), delta
    )
    new, _, _ = fed_avg.server_update(
      settings.server_optimizer,
      fed_avg.FedAvgServer(weights, server.optimizers[j]),
      mean,
      totals._replace(weight=sums.weight[j]),
    )
    results.append(new)
  models = tf.nest.map_structure(lambda *values: tf.stack(values), *(r.weights for r in results))
  return server._replace(models=models, optimizers=[r.optimizer for r in results])


def _elect(
  settings: Clusters,
  before: clusters.ClusterServer,
  updated: clusters.ClusterServer,
  votes: tf.Tensor,
) -> tuple[clusters.ClusterServer, tf.Tensor]:
  """The elected start in the models' place, if this round voted and anybody did."""
  votes = tf.reduce_sum(votes, 0)
  number, balanced = cluster_vote.elect(votes)
  elected = tf.logical_and(before.voting, cluster_vote.anybody_voted(votes))
  models = tf.cond(
    elected,
    lambda: cluster_start.draw_models(
      settings.draw, cluster_vote.start_seed(before.seed, number), settings.num_models
    ),
    lambda: tf.nest.map_structure(tf.identity, updated.models),
  )
  new = updated._replace(models=models, voting=tf.logical_and(before.voting, ~elected))
  if settings.stopping:
    snapshot = client_loop.choose(elected, models, updated.stopping.snapshot)
    new = new._replace(stopping=updated.stopping._replace(snapshot=snapshot))
  return new, tf.cast(tf.logical_and(elected, balanced), tf.int32)
