"""Federated averaging (FedAvg).

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, *Communication-Efficient Learning of
Deep Networks from Decentralized Data*, AISTATS 2017, arXiv 1602.05629, Algorithm 1.

One round: every client of the round starts from the server's weights w, trains E
epochs of mini-batch SGD and sends w_k − w and n_k, its number of examples. The
server sets w ← w + Σ_k n_k (w_k − w) / Σ_k n_k. The client keeps the model that it
trained last: that one is its personal model. With fine-tuning its personal model is the
server's, trained some epochs more on its own data (FedAvg + fine-tune).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling
from tffpers import process as process_lib
from tffpers.algorithms import placement, template

ModelWeights = modelling.ModelWeights
LocalGradients: TypeAlias = Callable[
  [modelling.BoundModel, modelling.LossFn, ModelWeights], client_loop.GradientsFn
]


class FedAvgServer(NamedTuple):
  """What the server learns.

  Attributes:
    weights: `ModelWeights` w of the global model.
    optimizer: State of the server's optimizer.
  """

  weights: ModelWeights
  optimizer: Any


class FedAvgClient(NamedTuple):
  """What a client keeps between rounds.

  Attributes:
    weights: `ModelWeights` after the client's last training; initial before its first.
  """

  weights: ModelWeights


def build_fed_avg(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
  local_gradients: LocalGradients | None = None,
  fine_tune_epochs: int = 0,
) -> process_lib.PersonalizedProcess:
  """Builds FedAvg as a `PersonalizedProcess`.

  A batch of one example, such as a client's only one or the rest of its data, has no
  variance: batch norm gives 0 for it and its moving variance shrinks. Floating
  non-trainable variables (batch-norm statistics) are averaged with the same weights; integer ones stay on their client. A client without examples has
  weight 0 and keeps its state; so does one whose training is not finite, which is
  counted in `num_nonfinite`. A round in which no client counts changes nothing.

  Args:
    model_fn: Returns a new Keras model at each call.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer, from `tff.learning.optimizers`.
    epochs: Local passes E per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    server_optimizer: Applied to the averaged change as a pseudo-gradient; default
      SGD with rate 1, which is FedAvg.
    aggregator: A weighted `tff.aggregators` factory; default `MeanFactory`.
    local_gradients: `(bound, loss_fn, start) -> gradients_fn` for `client_loop.train`,
      for a local objective other than the mean loss; start is the `ModelWeights` that
      the round began with. Default: the gradient of the mean loss.
    fine_tune_epochs: Passes by which the process's `personalize` trains the server's
      model on a client's data, with the mean loss; 0 gives a process without it.

  Returns:
    The process. `evaluate` gives `server` (S: the global model) and `client` (MT: the
    model the client trained last; after `personalize` the fine-tuned one).

  Raises:
    TypeError: The model, optimizer or aggregator is of the wrong kind.
    ValueError: A hyper-parameter is out of range, or the model has nothing to train.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  fine_tuning = client_loop.extra_passes(training, fine_tune_epochs=fine_tune_epochs)
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(1.0)
  aggregator = weighted_mean(aggregator)

  def initialize(bound: modelling.BoundModel) -> FedAvgServer:
    slots = server_optimizer.initialize(spec.weights.trainable)
    return FedAvgServer(bound.initial, tf.nest.map_structure(tf.convert_to_tensor, slots))

  algorithm = template.Algorithm(
    initialize=initialize,
    initialize_client=lambda bound, info: FedAvgClient(bound.initial),
    message=lambda server: without_counters(server.weights),
    client_update=functools.partial(
      client_update, spec, training, local_gradients or mean_loss_gradients
    ),
    server_update=functools.partial(server_update, server_optimizer),
    finish_client=None,
    evaluate=functools.partial(evaluate, loss_fn),
    personalize=functools.partial(fine_tune, spec, fine_tuning) if fine_tuning else None,
  )
  hyper_parameters = {
    'algorithm': 'fed_avg',
    **template.describe_training(training, loss_fn),
    'server_optimizer': template.describe(server_optimizer),
    'aggregator': type(aggregator).__name__,
    'fine_tune_epochs': fine_tune_epochs,
  }
  return placement.build(
    algorithm,
    spec,
    aggregator=aggregator,
    evaluation_point='after',
    hyper_parameters=hyper_parameters,
  )


def weighted_mean(
  aggregator: tff.aggregators.WeightedAggregationFactory | None,
) -> tff.aggregators.WeightedAggregationFactory:
  """The user's factory or the default one, `MeanFactory`; TypeError if it takes no weights."""
  aggregator = aggregator or tff.aggregators.MeanFactory()
  if not isinstance(aggregator, tff.aggregators.WeightedAggregationFactory):
    raise TypeError(
      'Updates are averaged by number of examples, which needs a weighted tff.aggregators '
      'factory; tff.aggregators.as_weighted_aggregator converts an unweighted one. '
      f'Received: aggregator={aggregator!r}'
    )
  return aggregator


def mean_loss_gradients(
  bound: modelling.BoundModel, loss_fn: modelling.LossFn, start: ModelWeights
) -> client_loop.GradientsFn:
  """The gradient of a batch's mean loss."""
  del start
  return functools.partial(client_loop.model_gradients, bound, loss_fn)


def client_update(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  local_gradients: LocalGradients,
  bound: modelling.BoundModel,
  weights: ModelWeights,
  num_training: tf.Tensor,
  client: FedAvgClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Trains from the server's weights and forms the update w_k − w with weight n_k."""
  del num_training
  start = received(weights, client.weights)
  bound.assign(start)
  gradients_fn = local_gradients(bound, spec.loss_fn, start)
  result = client_loop.train(data['train'], gradients_fn, bound.trainable, training, data['seed'])
  return finish_training(spec, start, bound.read(), result, client, data, sent=lambda delta: delta)


def finish_training(
  spec: modelling.ModelSpec,
  start: ModelWeights,
  end: ModelWeights,
  result: client_loop.LocalResult,
  client: FedAvgClient,
  data: dict[str, Any],
  *,
  sent: Callable[[ModelWeights], ModelWeights],
  kept: Any = (),
) -> template.ClientOutput:
  """The client's next state, and the update with weight n_k; neither if it must not count.

  Args:
    spec: The model.
    start: Weights that the training began with.
    end: Weights that it ended with.
    result: What the training added up to.
    client: The client's state.
    data: `{'train', 'seed'}`.
    sent: Picks from weights what is shared with the server.
    kept: More results of the training, which are to be finite too.
  """
  num_examples = client_loop.num_rows(data['train'])
  finite = client_loop.all_finite([end, kept])
  counts = tf.logical_and(finite, num_examples > 0)
  end = client_loop.choose(counts, end, start)
  delta = tf.nest.map_structure(
    tf.subtract, *(without_counters(sent(weights)) for weights in (end, start))
  )
  num_bytes = client_loop.num_bytes(delta)
  num_models = int(num_bytes > 0)
  update = template.Update(
    delta,
    tf.where(counts, tf.cast(num_examples, tf.float32), 0.0),
    tf.cast(~finite, tf.int32),
  )
  metrics = {
    'loss': result.loss,
    'num_examples': num_examples,
    'num_targets': client_loop.num_targets(spec.loss_fn, data['train'], spec.targets_per_example),
    'num_steps': result.num_steps,
    'nonfinite': update.nonfinite,
    **template.traffic(
      models_up=num_models, models_down=num_models, bytes_up=num_bytes, bytes_down=num_bytes
    ),
  }
  after = client_loop.choose(counts, FedAvgClient(end), client)
  return template.ClientOutput(update, after, metrics)


def server_update(
  optimizer: tff.learning.optimizers.Optimizer,
  server: FedAvgServer,
  delta: ModelWeights,
  totals: template.RoundTotals,
) -> tuple[FedAvgServer, tuple[()], dict[str, tf.Tensor]]:
  """w ← w + averaged change, through the server's optimizer; nothing if nobody counts."""
  gradients = tf.nest.map_structure(tf.negative, delta.trainable)
  slots, trainable = optimizer.next(server.optimizer, server.weights.trainable, gradients)
  changes = iter(delta.non_trainable)
  others = [w + next(changes) if w.dtype.is_floating else w for w in server.weights.non_trainable]
  new = FedAvgServer(ModelWeights(trainable, others), slots)
  return client_loop.choose(totals.weight > 0, new, server), (), {}


def fine_tune(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  bound: modelling.BoundModel,
  weights: ModelWeights,
  client: FedAvgClient,
  data: dict[str, Any],
) -> tuple[FedAvgClient, dict[str, tf.Tensor]]:
  """Trains the server's model on the client's data; the client's state holds the result.

  A result that is not finite is not kept: the personal model is then the server's.
  """
  start = received(weights, client.weights)
  bound.assign(start)
  gradients_fn = mean_loss_gradients(bound, spec.loss_fn, start)
  result = client_loop.train(data['train'], gradients_fn, bound.trainable, training, data['seed'])
  end = bound.read()
  finite = client_loop.all_finite(end)
  metrics = {
    'loss': result.loss,
    'num_steps': result.num_steps,
    'nonfinite': tf.cast(~finite, tf.int32),
    **template.traffic(
      models_up=0, models_down=1, bytes_up=0, bytes_down=client_loop.num_bytes(weights)
    ),
  }
  return FedAvgClient(client_loop.choose(finite, end, start)), metrics


def evaluate(
  loss_fn: modelling.LossFn,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  weights: ModelWeights,
  client: FedAvgClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """S and MT: the server's model and the client's last one on the client's test data."""
  results = {}
  server = received(weights, client.weights)
  for name, values in (('server', server), ('client', client.weights)):
    bound.assign(values)
    results[name] = client_loop.evaluate_model(bound.model, metrics, loss_fn, data['test'])
  return results


def without_counters(weights: ModelWeights) -> ModelWeights:
  """What of a model travels: all but its integer counters, which stay where they are."""
  return weights._replace(non_trainable=[w for w in weights.non_trainable if w.dtype.is_floating])


def received(weights: ModelWeights, own: ModelWeights) -> ModelWeights:
  """What a client starts from: the server's weights with its own integer counters."""
  floating = iter(without_counters(weights).non_trainable)
  others = [next(floating) if w.dtype.is_floating else w for w in own.non_trainable]
  return ModelWeights(weights.trainable, others)
