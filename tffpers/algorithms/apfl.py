"""Adaptive personalized federated learning (APFL).

Deng, Kamani, Mahdavi, *Adaptive Personalized Federated Learning*, arXiv 2003.13461,
Algorithm 1; Section 4.2 for α_i.

Beside the global model w, which is FedAvg's, client i has a private model v_i and a mixing
weight α_i in [0, 1]. Its personalised model is v̄_i = α_i v_i + (1 − α_i) w, and it
minimises F_i(v̄_i) over v_i and α_i. One mini-batch, all gradients at the same point:

  w   ← w − η ∇F_i(w)
  v_i ← v_i − η α_i ∇F_i(v̄_i)
  α_i ← clip(α_i − η_α ⟨∇F_i(v̄_i), v_i − w⟩, 0, 1)

The client sends the change of w; the server averages as FedAvg does, by examples. (The
paper averages its sampled devices uniformly, and steps α_i with η; the authors' code does
so once a round and pulls α_i towards 0.) With α_i = 1, fixed, v_i is local training; w is
FedAvg whatever α_i.
"""

import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling
from tffpers import process as process_lib
from tffpers.algorithms import fed_avg, flat, placement, template

ModelWeights = modelling.ModelWeights


class ApflClient(NamedTuple):
  """What a client keeps between rounds; it never leaves the client.

  Attributes:
    weights: `ModelWeights`: v_i, and the personalised model's variables that are not
      trained.
    alpha: α_i.
  """

  weights: ModelWeights
  alpha: tf.Tensor


class Training(NamedTuple):
  """What local steps change.

  Attributes:
    slots: The optimizer's, for w and v together.
    shared: w, [d].
    own: v_i, [d].
    alpha: α_i.
    shared_statistics: Variables that are not trained, as training w moves them.
    own_statistics: The same for v̄_i.
  """

  slots: Any
  shared: tf.Tensor
  own: tf.Tensor
  alpha: tf.Tensor
  shared_statistics: list[tf.Tensor]
  own_statistics: list[tf.Tensor]


def build_apfl(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  alpha: float = 0.5,
  alpha_learning_rate: float = 0.01,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> process_lib.PersonalizedProcess:
  """Builds APFL as a `PersonalizedProcess`.

  v_i starts as the run's initial model. Empty and non-finite clients are treated as by
  `build_fed_avg`; so are variables of w that are not trained, while those of v̄_i stay
  on the client.

  Args:
    model_fn: Returns a new Keras model at each call; all trainable weights of one dtype.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer for w and v, from `tff.learning.optimizers`.
    epochs: Local passes per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of each of the two gradients; None does not clip.
    alpha: α_i at the start, in [0, 1].
    alpha_learning_rate: η_α ≥ 0; 0 keeps α_i as it started.
    server_optimizer: As in `build_fed_avg`.
    aggregator: A weighted `tff.aggregators` factory; default `MeanFactory`.

  Returns:
    The process. `evaluate` gives `server` (w) and `client`: v̄_i of the client's v_i and
    α_i as its last training left them, and the server's current w.

  Raises:
    TypeError: The model, optimizer or aggregator is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train or
      weights of several dtypes.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  flat.check(spec)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  _check_rates(alpha, alpha_learning_rate)
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(1.0)
  aggregator = fed_avg.weighted_mean(aggregator)

  def initialize(bound: modelling.BoundModel) -> fed_avg.FedAvgServer:
    slots = client_loop.initial_slots(server_optimizer, spec.weights.trainable)
    return fed_avg.FedAvgServer(bound.initial, slots)

  algorithm = template.Algorithm(
    initialize=initialize,
    initialize_client=lambda bound, info: ApflClient(
      bound.initial, tf.constant(alpha, spec.weights.trainable[0].dtype)
    ),
    message=lambda server: fed_avg.without_counters(server.weights),
    client_update=functools.partial(client_update, spec, training, alpha_learning_rate),
    server_update=functools.partial(fed_avg.server_update, server_optimizer),
    finish_client=None,
    evaluate=functools.partial(evaluate, loss_fn),
  )
  return placement.build(
    algorithm,
    spec,
    aggregator=aggregator,
    evaluation_point='after',
    hyper_parameters={
      'algorithm': 'apfl',
      **template.describe_training(training, loss_fn),
      'alpha': alpha,
      'alpha_learning_rate': alpha_learning_rate,
      'server_optimizer': template.describe(server_optimizer),
      'aggregator': type(aggregator).__name__,
    },
  )


def _check_rates(alpha: float, alpha_learning_rate: float) -> None:
  if not (isinstance(alpha, numbers.Real) and 0 <= alpha <= 1):
    raise ValueError(f'alpha must be in [0, 1]. Received: alpha={alpha!r}')
  rate = alpha_learning_rate
  if not (isinstance(rate, numbers.Real) and math.isfinite(rate) and rate >= 0):
    raise ValueError(
      f'alpha_learning_rate must be a finite number ≥ 0. Received: alpha_learning_rate={rate!r}'
    )


def client_update(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  alpha_learning_rate: float,
  bound: modelling.BoundModel,
  weights: ModelWeights,
  num_training: tf.Tensor,
  client: ApflClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Trains w, v_i and α_i, and forms the update of w with weight n_i."""
  del num_training
  start = fed_avg.received(weights, client.weights)
  shared, own = flat.join(start.trainable), flat.join(client.weights.trainable)
  state = Training(
    client_loop.initial_slots(training.optimizer, [shared, own]),
    shared,
    own,
    client.alpha,
    start.non_trainable,
    client.weights.non_trainable,
  )
  step = local_step(spec, training, alpha_learning_rate, bound)
  trained, result = client_loop.run_steps(data['train'], step, state, training, data['seed'])
  after = ApflClient(
    ModelWeights(flat.split(trained.own, start.trainable), trained.own_statistics), trained.alpha
  )
  end = ModelWeights(flat.split(trained.shared, start.trainable), trained.shared_statistics)
  output = fed_avg.finish_training(
    spec,
    start,
    end,
    result,
    fed_avg.FedAvgClient(start),
    data,
    sent=lambda delta: delta,
    kept=after,
  )
  metrics = {**output.metrics, 'alpha': trained.alpha}
  return template.ClientOutput(
    output.update, client_loop.choose(output.update.weight > 0, after, client), metrics
  )


def local_step(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  alpha_learning_rate: float,
  bound: modelling.BoundModel,
) -> client_loop.StepFn:
  """One mini-batch for both models and α."""

  def gradient_at(weights, statistics, batch, seed):
    flat.assign(bound.trainable, weights)
    modelling.assign_all(bound.non_trainable, statistics)
    gradients, loss_sum, weight_sum = client_loop.model_gradients(bound, spec.loss_fn, batch, seed)
    gradient = flat.join(client_loop.clipped(gradients, training.clip_norm))
    return gradient, [v.read_value() for v in bound.non_trainable], loss_sum, weight_sum

  def step(batch, seed, state):
    mixed = mixture(state.alpha, state.own, state.shared)
    by_shared, shared_statistics, _, _ = gradient_at(
      state.shared, state.shared_statistics, batch, seed
    )
    by_mixed, own_statistics, loss_sum, weight_sum = gradient_at(
      mixed, state.own_statistics, batch, seed
    )
    slots, (shared, own) = training.optimizer.next(
      state.slots, [state.shared, state.own], [by_shared, state.alpha * by_mixed]
    )
    slope = tf.tensordot(by_mixed, state.own - state.shared, 1)
    alpha = tf.clip_by_value(state.alpha - alpha_learning_rate * slope, 0, 1)
    new = Training(slots, shared, own, alpha, shared_statistics, own_statistics)
    return new, loss_sum, weight_sum

  return step


def mixture(alpha: tf.Tensor, own: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
  """v̄ = α v + (1 − α) w."""
  return alpha * own + (1 - alpha) * shared


def evaluate(
  loss_fn: modelling.LossFn,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  weights: ModelWeights,
  client: ApflClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """The server's model and the personalised one on the client's test data."""
  mixed = [
    mixture(client.alpha, v, w)
    for v, w in zip(client.weights.trainable, weights.trainable, strict=True)
  ]
  results = {}
  server = fed_avg.received(weights, client.weights)
  personal = ModelWeights(mixed, client.weights.non_trainable)
  for name, values in (('server', server), ('client', personal)):
    bound.assign(values)
    results[name] = client_loop.evaluate_model(bound.model, metrics, loss_fn, data['test'])
  return results
