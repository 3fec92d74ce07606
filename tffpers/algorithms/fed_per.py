"""Federated learning with personalization layers (FedPer).

Arivazhagan, Aggarwal, Singh, Choudhary, *Federated Learning with Personalization Layers*,
arXiv 1912.00818, Algorithm 1.

The model's weights are W_B, the shared base, and W_P, the personal head. Round k: client j
receives W_B^{k−1}; trains (W_B, W_P_j) jointly for e epochs of mini-batch SGD from
(W_B^{k−1}, W_P_j^{k−1}); keeps W_P_j^k and sends W_B,j^k − W_B^{k−1} and n_j, its number of
examples. The server sets W_B^k = W_B^{k−1} + Σ_j n_j (W_B,j^k − W_B^{k−1}) / Σ_j n_j. Heads
never travel. With nothing personal this is FedAvg bit for bit, with everything personal it
is local training.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling, seeds
from tffpers import keras as tffpers_keras
from tffpers import process as process_lib
from tffpers.algorithms import fed_avg, placement, template

ModelWeights = modelling.ModelWeights
Rule: TypeAlias = Callable[[tf.keras.Model], tffpers_keras.Partition]
HEAD = 7  # Label of the head's own passes among a client's seeds.


def build_fed_per(
  *,
  model_fn: Callable[[], tf.keras.Model],
  partition: Rule,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  head_epochs: int = 0,
  head_start: str = 'own',
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> process_lib.PersonalizedProcess:
  """Builds FedPer as a `PersonalizedProcess`.

  Variables of the base that are not trained (batch-norm statistics) are averaged if
  floating; integer ones stay on their client, and so does everything of the head. Empty
  and non-finite clients are treated as by `build_fed_avg`.

  Args:
    model_fn: Returns a new Keras model at each call.
    partition: Says which variables of a built model are personal; see
      `tffpers.keras.last_blocks` (K_P), `tagged` and `named`.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer, from `tff.learning.optimizers`.
    epochs: Local passes e per round over base and head jointly.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    head_epochs: Passes on the head alone, the base frozen, before the joint ones (the
      paper's fine-tuning).
    head_start: `own`: each client draws the initial values of its head; `common`: all
      heads start as the run's initial model.
    server_optimizer: As in `build_fed_avg`, for the base.
    aggregator: A weighted `tff.aggregators` factory; default `MeanFactory`.

  Returns:
    The process, whose evaluation point is `before`. `evaluate` gives `client`, the
    server's base with the client's own head, which is before the client's next local
    training, and `after`, base and head as the client's last training left them.

  Raises:
    TypeError: The model, optimizer or aggregator is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train, or the
      partition does not fit it.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  split = partition_of(spec, partition)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  head_training = client_loop.extra_passes(training, head_epochs=head_epochs)
  if head_training is not None and not any(split.trainable):
    raise ValueError(
      'head_epochs train what is personal, and this partition leaves nothing personal to train. '
      f'Received: head_epochs={head_epochs}, partition={partition!r}'
    )
  if head_start not in ('own', 'common'):
    raise ValueError(f"head_start must be 'own' or 'common'. Received: head_start={head_start!r}")
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(1.0)
  aggregator = fed_avg.weighted_mean(aggregator)
  algorithm = template.Algorithm(
    initialize=functools.partial(initial_server, split, server_optimizer),
    initialize_client=functools.partial(initial_client, spec, split, head_start),
    message=lambda server: fed_avg.without_counters(server.weights),
    client_update=functools.partial(client_update, spec, split, training, head_training),
    server_update=functools.partial(fed_avg.server_update, server_optimizer),
    finish_client=None,
    evaluate=functools.partial(evaluate, loss_fn, split),
  )
  hyper_parameters = {
    'algorithm': 'fed_per',
    **template.describe_training(training, loss_fn),
    'head_epochs': head_epochs,
    'head_start': head_start,
    'personal_trainable': list(split.trainable),
    'personal_non_trainable': list(split.non_trainable),
    'server_optimizer': template.describe(server_optimizer),
    'aggregator': type(aggregator).__name__,
  }
  return placement.build(
    algorithm,
    spec,
    aggregator=aggregator,
    evaluation_point='before',
    hyper_parameters=hyper_parameters,
  )


def partition_of(spec: modelling.ModelSpec, partition: Rule) -> tffpers_keras.Partition:
  """The partition of the user's model; TypeError where the rule is none."""
  if not callable(partition):
    raise TypeError(
      'partition must be a rule such as tffpers.keras.last_blocks(1), a function from a model to '
      f'a tffpers.keras.Partition. Received: partition={partition!r}'
    )
  with tf.Graph().as_default():
    split = partition(modelling.build_model(spec.model_fn, spec.element_spec))
  if not isinstance(split, tffpers_keras.Partition):
    raise TypeError(
      'partition must return a tffpers.keras.Partition. '
      f'Received: partition={partition!r}, which returned {split!r}'
    )
  return split


def base_of(split: tffpers_keras.Partition, weights: ModelWeights) -> ModelWeights:
  """W_B of a whole model's values."""
  trainable, _ = split.split(weights.trainable)
  non_trainable, _ = split.split_non_trainable(weights.non_trainable)
  return ModelWeights(trainable, non_trainable)


def with_base(
  split: tffpers_keras.Partition, base: ModelWeights, own: ModelWeights
) -> ModelWeights:
  """A whole model's values: W_B of the server, W_P and integer counters of the client."""
  received = fed_avg.received(base, base_of(split, own))
  return ModelWeights(
    split.join(received.trainable, split.split(own.trainable)[1]),
    split.join_non_trainable(
      received.non_trainable, split.split_non_trainable(own.non_trainable)[1]
    ),
  )


def initial_server(
  split: tffpers_keras.Partition,
  optimizer: tff.learning.optimizers.Optimizer,
  bound: modelling.BoundModel,
) -> fed_avg.FedAvgServer:
  """W_B⁰ of the run's initial model."""
  base = base_of(split, bound.initial)
  slots = optimizer.initialize([tf.TensorSpec(w.shape, w.dtype) for w in base.trainable])
  return fed_avg.FedAvgServer(base, tf.nest.map_structure(tf.convert_to_tensor, slots))


def initial_client(
  spec: modelling.ModelSpec,
  split: tffpers_keras.Partition,
  head_start: str,
  bound: modelling.BoundModel,
  info: template.ClientInfo,
) -> fed_avg.FedAvgClient:
  """The run's initial base with a head of the client's own draw."""
  if head_start == 'common':
    return fed_avg.FedAvgClient(bound.initial)
  own = modelling.bind(spec, info.seed).initial
  return fed_avg.FedAvgClient(with_base(split, base_of(split, bound.initial), own))


def client_update(
  spec: modelling.ModelSpec,
  split: tffpers_keras.Partition,
  training: client_loop.LocalTraining,
  head_training: client_loop.LocalTraining | None,
  bound: modelling.BoundModel,
  base: ModelWeights,
  num_training: tf.Tensor,
  client: fed_avg.FedAvgClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Trains the head alone if asked to, then base and head; sends the base's change."""
  del num_training
  start = with_base(split, base, client.weights)
  bound.assign(start)
  if head_training is not None:
    train_head(spec, split, head_training, bound, data)
    # Statistics of the base have moved in training mode; the base is to be as received.
    bound.assign(with_base(split, base, bound.read()))
  gradients_fn = functools.partial(client_loop.model_gradients, bound, spec.loss_fn)
  result = client_loop.train(data['train'], gradients_fn, bound.trainable, training, data['seed'])
  return fed_avg.finish_training(
    spec, start, bound.read(), result, client, data, sent=functools.partial(base_of, split)
  )


def train_head(
  spec: modelling.ModelSpec,
  split: tffpers_keras.Partition,
  training: client_loop.LocalTraining,
  bound: modelling.BoundModel,
  data: dict[str, Any],
) -> None:
  """Trains the head of the bound model alone on `{'train', 'seed'}`."""
  _, head = split.split(bound.trainable)

  def gradients_fn(batch, seed):
    return client_loop.model_gradients(bound, spec.loss_fn, batch, seed, head)

  # A seed of its own: the joint passes draw what they would draw without this one.
  client_loop.train(data['train'], gradients_fn, head, training, seeds.fold(data['seed'], HEAD))


def evaluate(
  loss_fn: modelling.LossFn,
  split: tffpers_keras.Partition,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  base: ModelWeights,
  client: fed_avg.FedAvgClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """The client's head on the server's base, and on its own base as last trained."""
  results = {}
  models = {'client': with_base(split, base, client.weights), 'after': client.weights}
  for name, weights in models.items():
    bound.assign(weights)
    results[name] = client_loop.evaluate_model(bound.model, metrics, loss_fn, data['test'])
  return results
