"""Federated attentive message passing, the heuristic for deep networks (HeurFedAMP).

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, *Personalized Cross-Silo Federated Learning on
Non-IID Data*, AAAI 2021, arXiv 2007.03797.

The server holds all N clients' models and mixes one for each of them:

  u_i = ξ_ii w_i + Σ_{j≠i} ξ_ij w_j,   ξ_ij = (1 − ξ_ii) softmax_{j≠i}(σ cos(w_i, w_j))

with a fixed self-weight ξ_ii. Client i minimises F_i(w) + μ/2 ‖w − u_i‖², starting from
u_i, and sends the result, its personal model w_i. μ is the paper's λ/α_k. With ξ_ii = 1
this is a proximal local method, with μ = 0 besides local training.
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
from tffpers.algorithms import by_client, by_index, fed_prox, flat, placement, template

ModelWeights = modelling.ModelWeights


class AmpClient(NamedTuple):
  """What a client keeps between rounds.

  Attributes:
    index: int32, its place among the clients.
    weights: `ModelWeights` w_i after its last training; initial before its first.
  """

  index: tf.Tensor
  weights: ModelWeights


def build_fed_amp(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  num_clients: int,
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  mu: float,
  sigma: float,
  self_weight: float,
) -> process_lib.PersonalizedProcess:
  """Builds HeurFedAMP as a `PersonalizedProcess`.

  All models start as the run's initial one. A client without examples changes nothing;
  nor does one whose training is not finite, which is counted in `num_nonfinite`; its model
  at the server stays as it is and goes on taking part in the mixtures. Variables that are
  not trained stay on their client. There is no `aggregator` to choose: the server needs
  each model by itself.

  Args:
    model_fn: Returns a new Keras model at each call; all trainable weights of one dtype.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    num_clients: N ≥ 2.
    optimizer: The clients' optimizer, from `tff.learning.optimizers`.
    epochs: Local passes per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    mu: μ = λ/α_k ≥ 0, strength of the proximal term.
    sigma: σ ≥ 0; 0 mixes the others evenly.
    self_weight: ξ_ii in [0, 1].

  Returns:
    The process. `evaluate` gives `client`, the model the client trained last. There is no
    `server` model.

  Raises:
    TypeError: The model or optimizer is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train or
      weights of several dtypes.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  flat.check(spec)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  by_client.check_num_clients(num_clients)
  _check(mu, sigma, self_weight)
  algorithm = template.Algorithm(
    initialize=functools.partial(by_client.initial_server, num_clients),
    initialize_client=lambda bound, info: AmpClient(info.index, bound.initial),
    message=lambda server: (),
    selection=template.Selection(
      num_clients,
      functools.partial(request, num_clients),
      functools.partial(mix, sigma, self_weight),
    ),
    client_update=functools.partial(client_update, spec, training, mu),
    server_update=by_client.server_update,
    finish_client=None,
    evaluate=functools.partial(by_client.evaluate, loss_fn),
  )
  return placement.build(
    algorithm,
    spec,
    aggregator=by_index.SumByIndex(num_clients),
    evaluation_point='after',
    hyper_parameters={
      'algorithm': 'fed_amp',
      **template.describe_training(training, loss_fn),
      'num_clients': num_clients,
      'mu': mu,
      'sigma': sigma,
      'self_weight': self_weight,
    },
  )


def _check(mu: float, sigma: float, self_weight: float) -> None:
  for name, value, high in (
    ('mu', mu, math.inf),
    ('sigma', sigma, math.inf),
    ('self_weight', self_weight, 1),
  ):
    if not (isinstance(value, numbers.Real) and math.isfinite(value) and 0 <= value <= high):
      limit = 'a finite number ≥ 0' if high == math.inf else 'in [0, 1]'
      raise ValueError(f'{name} must be {limit}. Received: {name}={value!r}')


def request(num_clients: int, message: tuple[()], client: AmpClient, seed: tf.Tensor) -> tf.Tensor:
  """A client asks for the mixture of its own place."""
  del message, seed
  # A client that is not among the N has no examples and trains on nothing.
  return tf.minimum(client.index, num_clients - 1)[tf.newaxis]


def mix(sigma: float, self_weight: float, server: by_client.Models, key: tf.Tensor) -> tf.Tensor:
  """u_i, [d], for the client at a place."""
  models = server.models
  directions = tf.math.l2_normalize(models, 1)
  cosines = tf.linalg.matvec(directions, directions[key])
  own = tf.one_hot(key, models.shape[0], dtype=models.dtype)
  others = tf.where(own > 0, tf.constant(-math.inf, models.dtype), sigma * cosines)
  return flat.mixed(self_weight * own + (1 - self_weight) * tf.nn.softmax(others), models)


def client_update(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  mu: float,
  bound: modelling.BoundModel,
  received: template.Requested,
  num_training: tf.Tensor,
  client: AmpClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Trains from u_i with the proximal term around it."""
  del num_training
  cloud = flat.split(received.slices[0], spec.weights.trainable)
  start = ModelWeights(cloud, client.weights.non_trainable)
  bound.assign(start)
  gradients_fn = fed_prox.proximal_gradients(mu, bound, spec.loss_fn, start)
  result = client_loop.train(data['train'], gradients_fn, bound.trainable, training, data['seed'])
  after = AmpClient(client.index, bound.read())
  return by_client.finish_training(
    spec,
    flat.join(after.weights.trainable),
    client,
    after,
    result,
    data,
    received=received,
    num_downloads=1,
    metrics={},
  )
