"""The rounds of clustered federated learning.

Ghosh et al., arXiv 2006.04088, Algorithm 1, and Isaksson et al., arXiv 2206.07832.

One round: every client receives the active models, computes the loss of each on its
training data, picks one (`cluster_choice`), trains it and sends the change and the place it
belongs to (`cluster_client`). The server averages by place; a model that nobody picked stays
as it is (`cluster_server`). A model that no longer improves stops (`cluster_stopping`). A
first round may only vote on the models to begin with (`cluster_vote`).
"""

import functools
from typing import Any

import tensorflow as tf

from tffpers.algorithms import cluster_client, cluster_server, clusters, fed_avg


def functions(settings: clusters.Clusters) -> dict[str, Any]:
  """Fields of the `Algorithm`, except how it is evaluated and personalised."""
  return {
    'bind': functools.partial(clusters.bind, settings),
    'initialize': functools.partial(clusters.initialize, settings),
    'initialize_client': functools.partial(clusters.initialize_client, settings),
    'message': functools.partial(clusters.message, settings),
    'tells_round': True,
    'whole_message': lambda server: fed_avg.without_counters(server.models),
    'client_update': functools.partial(cluster_client.client_update, settings),
    'server_update': functools.partial(cluster_server.server_update, settings),
    'finish_client': None,
    'finished': all_stopped if settings.stopping else None,
    'data_sets': ('train', 'validation') if settings.stopping else ('train',),
  }


def all_stopped(server: clusters.ClusterServer) -> tf.Tensor:
  """Whether early stopping has left no model active."""
  return ~tf.reduce_any(server.stopping.active)
