"""Adaptive expert models.

Isaksson, Listo Zec, Cöster, Gillblad, Girdzijauskas, *Adaptive Expert Models for
Personalization in Federated Learning*, arXiv 2206.07832.

First phase: IFCA with model averaging in which a client picks, with probability ε, an
active model by chance instead of its best one, and in which each model stops when it no
longer improves. Second phase (`personalize`): each client trains an expert of its own and a
gate that mixes it with all cluster models, see `expert_mixture`.
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
  cluster_rounds,
  cluster_stopping,
  clusters,
  early_stopping,
  expert_evaluation,
  expert_mixture,
  expert_models,
  fed_avg,
  placement,
  template,
)


def build_adaptive_experts(
  *,
  model_fn: Callable[[], tf.keras.Model],
  gate_model_fn: Callable[[], tf.keras.Model],
  num_models: int,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  local_optimizer: tff.learning.optimizers.Optimizer,
  gate_optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  personal_epochs: int,
  personal_patience: int | None = None,
  clip_norm: float | None = None,
  epsilon: float = 0.0,
  initial_models: str = 'random',
  check_every: int = 1,
  patience: int | None = None,
  when_stopped: str = 'next_best',
  local_model_fn: Callable[[], tf.keras.Model] | None = None,
  train_experts: bool = False,
  mix_unpicked: bool = True,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
) -> process_lib.PersonalizedProcess:
  """Builds adaptive expert models as a `PersonalizedProcess`.

  Everything said of `build_ifca` holds here. Models are mixed as probabilities in log space,
  so all of them return logits and the loss takes logits.

  Args:
    model_fn: Returns a new cluster model at each call.
    gate_model_fn: Returns a new gate: a model of the same x with `num_models` + 1 outputs,
      logits, of which the last one is for the client's own expert.
    num_models: J, the number of cluster models; 1 mixes a local and a global model.
    loss_fn: Per-target losses of logits: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer for cluster models, from `tff.learning.optimizers`; SGD
      without momentum in the paper.
    local_optimizer: That of the client's own expert; AdamW in the paper.
    gate_optimizer: That of the gate, and of the experts where they are trained with it;
      AdamW in the paper.
    epochs: Local passes per round.
    batch_size: Examples per local step, in both phases.
    personal_epochs: Most passes of the second phase, for each model.
    personal_patience: Passes without a lower validation loss after which a model of the
      second phase stops; None makes all passes. Either way it ends with its best weights.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    epsilon: ε in [0, 1], probability of picking a model by chance; 0 is IFCA.
    initial_models: As in `build_ifca`.
    check_every: Rounds from one check of the cluster models to the next.
    patience: Checks without a lower validation loss after which a cluster model stops, with
      its best weights; from then on it is neither sent, tried, trained nor aggregated.
      None never stops a model, and rounds then need no validation data. Once all have
      stopped (metric `num_active` is 0) the run ends; a check in which nobody picked a model
      does not count against it, so with `rest` it may never do.
    when_stopped: What a client does whose best model has stopped (not settled in the
      paper): `next_best` picks among the active ones, `rest` takes no part.
    local_model_fn: Returns a new own expert; default a `model_fn`.
    train_experts: Whether the gate is trained together with copies of all experts on the
      client, or alone.
    mix_unpicked: Whether models that no client ever trained take part in the mixture and in
      the ensemble (not settled in the paper).
    server_optimizer: As in `build_ifca`.

  Returns:
    The process, whose evaluation point is `before` and whose `personalize` is the second
    phase. `personalize` and `evaluate` need training and validation data; a client without
    validation data chooses by its training data and makes all passes. `evaluate` gives
    `client` (before the second phase as `ifca`; after it the mixture), `ifca` (the cluster
    model with the lowest validation loss; in `best_0`, `best_1`, … a 1 for which one),
    `fine_tuned` (that one trained by `optimizer` on the client's data), `local` (the own
    expert) and `ensemble` (the mean of all experts' probabilities); what there is not before
    the second phase is NaN.

  Raises:
    TypeError: A model or optimizer is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the loss does not take logits, or models'
      outputs do not fit each other.
  """
  check_logits(loss_fn)
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  local = inspection.inspect_model(local_model_fn or model_fn, loss_fn, metrics_fn, element_spec)
  gate = inspection.inspect_model(gate_model_fn, _sum_of_outputs, list, element_spec)
  _check_outputs(spec, local, gate, num_models)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  first = clusters.Clusters(
    spec,
    training,
    num_models,
    server_optimizer or tff.learning.optimizers.build_sgdm(1.0),
    epsilon=epsilon,
    initial_models=initial_models,
    stopping=None if patience is None else cluster_stopping.StoppingRule(check_every, patience),
    when_stopped=when_stopped,
  )

  def personal(own: tff.learning.optimizers.Optimizer) -> early_stopping.PersonalTraining:
    passes = client_loop.LocalTraining(own, personal_epochs, batch_size, clip_norm)
    return early_stopping.PersonalTraining(passes, personal_patience)

  settings = expert_models.Experts(
    first,
    local,
    gate,
    personal(optimizer),
    personal(local_optimizer),
    personal(gate_optimizer),
    train_experts,
    mix_unpicked,
  )
  hyper_parameters = {
    'algorithm': 'adaptive_experts',
    **clusters.describe(first),
    'local_optimizer': template.describe(local_optimizer),
    'gate_optimizer': template.describe(gate_optimizer),
    'personal_epochs': personal_epochs,
    'personal_patience': personal_patience,
    'train_experts': train_experts,
    'mix_unpicked': mix_unpicked,
    'local_model': local.fingerprint,
    'gate_model': gate.fingerprint,
  }
  return placement.build(
    _algorithm(settings),
    spec,
    aggregator=by_index.SumByIndex(num_models),
    evaluation_point='before',
    hyper_parameters=hyper_parameters,
  )


def _algorithm(settings: expert_models.Experts) -> template.Algorithm:
  first = cluster_rounds.functions(settings.clusters)

  def initialize_client(bound, info):
    cluster = first['initialize_client'](bound, info)
    return expert_models.ExpertsClient(cluster, expert_models.nothing(settings))

  def client_update(bound, message, num_training, client, data):
    output = first['client_update'](bound, message, num_training, client.cluster, data)
    left = expert_models.emptied(client.personal)
    return output._replace(pending=expert_models.ExpertsClient(output.pending, left))

  return template.Algorithm(
    **{
      **first,
      'bind': functools.partial(expert_models.bind, settings),
      'initialize_client': initialize_client,
      'client_update': client_update,
      'whole_message': lambda server: expert_models.WholeModels(
        fed_avg.without_counters(server.models), server.picked
      ),
    },
    evaluate=functools.partial(expert_evaluation.evaluate, settings),
    evaluate_data_sets=('train', 'validation', 'test'),
    personalize=functools.partial(expert_mixture.personalize, settings),
    personalize_data_sets=('train', 'validation'),
  )


def _sum_of_outputs(y: Any, logits: tf.Tensor) -> tf.Tensor:
  """Stands for a loss where a gate's shapes are read; a gate has no targets."""
  del y
  return tf.reduce_sum(logits, -1)


def check_logits(loss_fn: modelling.LossFn) -> None:
  """Refuses Keras' own losses of probabilities, or of no classes at all.

  Raises:
    ValueError: Its configuration does not say that it takes logits, or its logits are not of
      classes that exclude each other.
  """
  stock = type(loss_fn).__module__.startswith('keras.')
  if isinstance(loss_fn, tf.keras.losses.Loss) and stock and not _takes_logits(loss_fn):
    raise ValueError(
      'Experts are mixed as log probabilities, so models return logits and the loss takes them, '
      'as tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True) does. '
      f'Received: loss_fn={loss_fn.name!r} without from_logits=True'
    )
  binary = (tf.keras.losses.BinaryCrossentropy, tf.keras.losses.BinaryFocalCrossentropy)
  if isinstance(loss_fn, binary):
    raise ValueError(
      'Experts are mixed as probabilities of classes that exclude each other, one logit for '
      f'each class, two for two. Received: loss_fn={loss_fn.name!r}, of one logit for yes or no'
    )


def _takes_logits(loss_fn: tf.keras.losses.Loss) -> bool:
  return bool(loss_fn.get_config().get('from_logits'))


def _check_outputs(
  spec: modelling.ModelSpec,
  local: modelling.ModelSpec,
  gate: modelling.ModelSpec,
  num_models: int,
) -> None:
  shape, outputs = spec.prediction_shape, gate.prediction_shape
  if not shape or None in shape:
    raise ValueError(
      'Experts must return one tensor of logits with fixed shape [..., classes]. '
      f'Received: model_fn with outputs of shape {shape}'
    )
  if (shape[-1] or 0) < 2:
    raise ValueError(
      'Experts must return one logit for each class, two for two: a softmax of one is always 1. '
      f'Received: model_fn with outputs of shape {shape}'
    )
  if local.prediction_shape != shape:
    raise ValueError(
      f'The own expert must return what cluster models return, {shape}. '
      f'Received: local_model_fn with outputs of shape {local.prediction_shape}'
    )
  expected = [(num_models + 1,), (*shape[:-1], num_models + 1)]
  if outputs not in expected:
    raise ValueError(
      f'The gate must return one logit per expert, shape {expected[0]}, num_models + 1 of them. '
      f'Received: gate_model_fn with outputs of shape {outputs}'
    )
