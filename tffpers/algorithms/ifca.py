"""The Iterative Federated Clustering Algorithm (IFCA).

Ghosh, Chung, Yin, Ramchandran, *An Efficient Framework for Clustered Federated Learning*,
NeurIPS 2020, arXiv 2006.04088, Algorithm 1.

One round: every client picks, of the server's J models w^j, the one with the lowest loss on
its training data, trains it to w_k and sends the change. Option II (model averaging):
w^j ← w^j + Σ_k n_k (w_k − w^j) / Σ_k n_k over the clients that picked j. Option I (gradient
averaging): w^j ← w^j + Σ_k (w_k − w^j) / m over the clients that picked j, m being the number
of all participants; with one full-batch SGD step of rate γ that is w^j − γ/m Σ_k ∇F_k(w^j).
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling
from tffpers import process as process_lib
from tffpers.algorithms import (
  by_index,
  cluster_client,
  cluster_rounds,
  clusters,
  placement,
  template,
)

_AVERAGING = ('models', 'gradients')


def build_ifca(
  *,
  model_fn: Callable[[], tf.keras.Model],
  num_models: int,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  averaging: str = 'models',
  initial_models: str = 'random',
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
) -> process_lib.PersonalizedProcess:
  """Builds IFCA as a `PersonalizedProcess`.

  With one model, Option II is FedAvg bit for bit. Non-trainable variables, clients without
  examples and non-finite clients are treated as by `build_fed_avg`; so is each model in a
  round in which nobody picks it. All J losses of a client are computed in one pass over its
  data; a loss that is NaN is never chosen, and equal ones are decided by chance.

  Sums are by model, so there is no `aggregator`: TFF's factories would need J models from
  each client.

  Args:
    model_fn: Returns a new Keras model at each call.
    num_models: J, the number of cluster models.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer, from `tff.learning.optimizers`.
    epochs: Local passes per round.
    batch_size: Examples per local step; the choice of a model does not depend on it.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    averaging: `models` (Option II) or `gradients` (Option I, see above).
    initial_models: `random`: J draws from J seeds. `balanced`: the first round trains
      nothing; its clients upload which model of each of 50 candidate starts is clearly their
      best one (by more than 3 standard errors of the difference, see
      `cluster_vote.clearly_best`) or that none is, and training begins from the first start
      in which every model is the best one of at least 0.7 / J of them (35 % of two), or else
      from the start whose least popular model is the most popular. Metric `balanced` tells
      which it was; a random start often leaves a model to nobody for ever, and a balanced
      one seldom.
    server_optimizer: Applied to each model's averaged change as a pseudo-gradient; default
      SGD with rate 1.

  Returns:
    The process, whose evaluation point is `before`. `evaluate` needs the client's training
    data besides its test data, and gives `client` (the cluster model with the lowest loss
    on the training data; in `best_0`, `best_1`, … a 1 for which one it is) and `after` (the
    model that the client trained last). Metrics of a client's round: `picked`, `best`:
    int32[J], one-hot.

  Raises:
    TypeError: The model or optimizer is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train, or its
      initial values are constant, so that the J models would be identical.
  """
  if averaging not in _AVERAGING:
    raise ValueError(f'averaging must be one of {_AVERAGING}. Received: averaging={averaging!r}')
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  settings = clusters.Clusters(
    spec,
    client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm),
    num_models,
    server_optimizer or tff.learning.optimizers.build_sgdm(1.0),
    by_participants=averaging == 'gradients',
    initial_models=initial_models,
  )
  return placement.build(
    template.Algorithm(
      **cluster_rounds.functions(settings),
      evaluate=functools.partial(evaluate, settings),
      evaluate_data_sets=('train', 'test'),
    ),
    spec,
    aggregator=by_index.SumByIndex(num_models),
    evaluation_point='before',
    hyper_parameters={'algorithm': 'ifca', **clusters.describe(settings)},
  )


def evaluate(
  settings: clusters.Clusters,
  bound: clusters.Bound,
  metrics: list[tf.keras.metrics.Metric],
  models: modelling.ModelWeights,
  client: clusters.ClusterClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """The client's best cluster model by its training data, and the one it trained last."""
  best = cluster_client.best_model(
    settings, bound.clusters, models, client.weights, data['train'], data['seed']
  )
  results = {}
  for name, weights in (
    ('client', clusters.one_model(models, best, client.weights)),
    ('after', client.weights),
  ):
    bound.clusters[0].assign(weights)
    results[name] = client_loop.evaluate_model(
      bound.clusters[0].model,
      metrics,
      settings.spec.loss_fn,
      data['test'],
    )
  results['client'].update(clusters.named_best(best, settings.num_models))
  return results
