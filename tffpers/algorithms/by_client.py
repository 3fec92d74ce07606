"""A server that keeps one model for each client.

Cross-silo methods know all their N clients. A client sends its model, one vector [d], and
its place; the server puts it there. What nobody sent stays bit for bit. A client that
chooses whose models it downloads asks for them by place.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import client_loop, modelling
from tffpers.algorithms import by_index, flat, template


class Models(NamedTuple):
  """State of the server.

  Attributes:
    models: [N, d], each client's model as last sent; initial values before.
  """

  models: tf.Tensor


class Sent(NamedTuple):
  """A client's upload, for its place.

  Attributes:
    model: [d]; zeros if it is withheld.
    count: int32, 1, or 0 if it is withheld.
  """

  model: tf.Tensor
  count: tf.Tensor


def pick(server: Models, key: tf.Tensor) -> tf.Tensor:
  """The model at a place, [d]."""
  return server.models[key]


def server_update(
  server: Models, sent: Sent, totals: template.RoundTotals
) -> tuple[Models, tuple[()], dict[str, tf.Tensor]]:
  """Puts the models that were sent in their places."""
  del totals
  count = sent.count[:, tf.newaxis]
  received = sent.model / tf.cast(tf.maximum(count, 1), sent.model.dtype)
  return Models(tf.where(count > 0, received, server.models)), (), {}


def others_first(index: tf.Tensor, ranks: list[tf.Tensor], count: int) -> tf.Tensor:
  """The `count` best places other than a client's own.

  Args:
    index: int32, the client's own place.
    ranks: Float tensors [N], the most important first; larger is better.
    count: Places to choose, < N.

  Returns:
    int32[count], distinct.
  """
  num_clients = ranks[0].shape[0]
  order = tf.range(num_clients)
  # Stable sorts from the least important on; the own place goes last of all.
  for rank in [*reversed(ranks), -tf.one_hot(index, num_clients)]:
    order = tf.gather(order, tf.argsort(-tf.gather(rank, order), stable=True))
  return order[:count]


def finish_training(
  spec: modelling.ModelSpec,
  model: tf.Tensor,
  before: Any,
  after: Any,
  result: client_loop.LocalResult,
  data: dict[str, Any],
  *,
  received: Any,
  num_downloads: int,
  metrics: dict[str, tf.Tensor],
) -> template.ClientOutput:
  """The client's next state and its upload; neither if it has no data or is not finite.

  Args:
    spec: The model.
    model: [d], what is sent.
    before: The client's state as the round began, with its place as `index`.
    after: Its state as its training left it.
    result: What the training added up to.
    data: `{'train', 'seed'}`.
    received: What it received, with its request if it had one.
    num_downloads: Models in it, without its own.
    metrics: Scalars beside those that every algorithm has.
  """
  num_examples = client_loop.num_rows(data['train'])
  finite = client_loop.all_finite([model, after])
  counts = tf.logical_and(finite, num_examples > 0)
  sent = Sent(tf.where(counts, model, tf.zeros_like(model)), tf.cast(counts, tf.int32))
  update = template.Update(
    by_index.Indexed(before.index, sent),
    tf.cast(counts, tf.float32),
    tf.cast(~finite, tf.int32),
  )
  num_targets = client_loop.num_targets(spec.loss_fn, data['train'], spec.targets_per_example)
  keys = received.keys if isinstance(received, template.Requested) else ()
  all_metrics = {
    'loss': result.loss,
    'num_examples': num_examples,
    'num_targets': num_targets,
    'num_steps': result.num_steps,
    'nonfinite': update.nonfinite,
    **metrics,
    **template.traffic(
      models_up=1,
      models_down=num_downloads,
      bytes_up=client_loop.num_bytes([update.value, keys]),
      bytes_down=client_loop.num_bytes(received) - client_loop.num_bytes(keys),
    ),
  }
  return template.ClientOutput(update, client_loop.choose(counts, after, before), all_metrics)


def initial_server(num_clients: int, bound: modelling.BoundModel) -> Models:
  """The run's initial model in every place."""
  model = flat.join(bound.initial.trainable)
  return Models(tf.tile(model[tf.newaxis], [num_clients, 1]))


def evaluate(
  loss_fn: modelling.LossFn,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  message: Any,
  client: Any,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """A client's own model, its state's `weights`, on its test data."""
  del message
  bound.assign(client.weights)
  result = client_loop.evaluate_model(bound.model, metrics, loss_fn, data['test'])
  return {'client': result}


def check_num_clients(num_clients: int) -> None:
  """ValueError for fewer clients than two."""
  if not client_loop.is_integer(num_clients, 2):
    raise ValueError(f'num_clients must be an integer ≥ 2. Received: num_clients={num_clients!r}')
