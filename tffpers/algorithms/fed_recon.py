"""Federated reconstruction (FedRecon), through TensorFlow Federated's own implementation.

Singhal, Sidahmed, Garrett, Wu, Rush, Prakash, *Federated Reconstruction: Partially Local
Federated Learning*, NeurIPS 2021, arXiv 2102.03448, Algorithm 1;
`tff.learning.algorithms.build_fed_recon`.

The model's weights are g, shared, and l, personal. Round t: client i receives g; draws l_i
anew and trains it, g being frozen, for some passes (the reconstruction); then trains g, l_i
being frozen, and sends the change of g and its number of examples. The server averages the
changes. Clients keep nothing, so a client that never took part is served as well as any:
FedPer without the memory of the head.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling
from tffpers import keras as tffpers_keras
from tffpers import process as process_lib
from tffpers.algorithms import fed_avg, fed_per, fed_recon_client, fed_recon_process, template
from tffpers.keras import normalization


def reconstruction_model(
  model_fn: Callable[[], tf.keras.Model], partition: fed_per.Rule, element_spec: tuple[Any, Any]
) -> tff.learning.models.ReconstructionModel:
  """A partition as TFF takes it: shared variables are its global ones, personal its local ones.

  For TFF's own builders, whose model functions have to make a new model at each call, as in
  `lambda: reconstruction_model(model_fn, partition, element_spec)`. With them TFF's rules
  hold: initial values and dropout come from unseeded generators, regularisers do not count,
  and statistics of batch normalisation are not aggregated.

  Args:
    model_fn: Returns a new Keras model at each call.
    partition: Says which variables of a built model are personal; see
      `tffpers.keras.last_blocks`, `tagged` and `named`.
    element_spec: `(x, y)` specs of one example.

  Returns:
    The model; its batches are pairs `(x, y)` with a leading axis of any length.

  Raises:
    TypeError: `model_fn` returned no Keras model.
    ValueError: The partition does not fit it.
  """
  model = modelling.build_model(model_fn, element_spec)
  split = partition(model)
  trainable = split.split(model.trainable_variables)
  non_trainable = split.split_non_trainable(model.non_trainable_variables)
  return tff.learning.models.ReconstructionModel.from_keras_model_and_variables(
    model,
    global_trainable_variables=trainable[0],
    global_non_trainable_variables=non_trainable[0],
    local_trainable_variables=trainable[1],
    local_non_trainable_variables=non_trainable[1],
    input_spec=tf.nest.map_structure(
      lambda s: tf.TensorSpec([None, *s.shape], s.dtype), element_spec
    ),
  )


def build_fed_recon(
  *,
  model_fn: Callable[[], tf.keras.Model],
  partition: fed_per.Rule,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  reconstruction_optimizer: tff.learning.optimizers.Optimizer | None = None,
  reconstruction_epochs: int = 1,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> process_lib.PersonalizedProcess:
  """Builds TFF's federated reconstruction as a `PersonalizedProcess`.

  The server's state is TFF's own, so that a `tff.learning.templates.LearningProcess` of the
  same model takes it; the clients have none. Both phases of a round use all of a client's
  examples, in the batches that `build_fed_per` would take for its head's and for its joint
  passes. Personal variables start, in each round and evaluation, from a draw of that client's
  seed. A client without examples or whose change is not finite does not count. TFF's loop
  tells nothing of single clients, so `client_metrics` have sizes only and no losses.

  Args:
    model_fn: Returns a new Keras model at each call.
    partition: Says which variables of a built model are personal; see
      `tffpers.keras.last_blocks`, `tagged` and `named`. With nothing personal this is FedAvg.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    optimizer: The clients' optimizer of shared variables, from `tff.learning.optimizers`.
    epochs: Local passes per round over the shared variables.
    batch_size: Examples per step, in both phases.
    clip_norm: Largest global norm of a local gradient, in both phases; None does not clip.
    reconstruction_optimizer: That of personal variables; default `optimizer`.
    reconstruction_epochs: Passes of a reconstruction.
    server_optimizer: As in `build_fed_avg`, for the shared variables.
    aggregator: A weighted `tff.aggregators` factory; default `MeanFactory`.

  Returns:
    The process. `evaluate`, which takes `train` and `test` data, gives `client`: the server's
    variables with personal ones reconstructed on the client's training data, measured on its
    test data. A client without training data has personal variables as drawn.

  Raises:
    TypeError: The model, optimizer or aggregator is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train, the
      partition does not fit it or shares moving statistics, which TFF would leave at
      their initial values.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  split = fed_per.partition_of(spec, partition)
  _check_statistics(spec, split)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  reconstruction = _reconstruction(training, reconstruction_optimizer, reconstruction_epochs)
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(1.0)
  aggregator = fed_avg.weighted_mean(aggregator)
  work = fed_recon_client.ClientWork(spec, split, training, reconstruction)
  recon = tff.learning.algorithms.build_fed_recon(
    work.model_fn,
    loss_fn=fed_recon_client.Given,
    server_optimizer_fn=server_optimizer,
    client_optimizer_fn=fed_recon_client.optimizer_of(training),
    reconstruction_optimizer_fn=fed_recon_client.optimizer_of(reconstruction),
    dataset_split_fn=work.dataset_split_fn,
    model_aggregator_factory=fed_recon_process.Counted(aggregator),
    metrics_aggregator=fed_recon_process.no_metrics,
  )
  return process_lib.PersonalizedProcess(
    initialize=fed_recon_process.initialize(work, recon),
    initialize_client=fed_recon_process.initialize_client(recon),
    next=fed_recon_process.next_round(work, recon),
    evaluate=fed_recon_process.evaluate(work, recon),
    evaluation_point='after',
    hyper_parameters={
      'algorithm': 'fed_recon',
      **template.describe_training(training, loss_fn),
      'reconstruction_optimizer': template.describe(reconstruction.optimizer),
      'reconstruction_epochs': reconstruction_epochs,
      'personal_trainable': list(split.trainable),
      'personal_non_trainable': list(split.non_trainable),
      'server_optimizer': template.describe(server_optimizer),
      'aggregator': type(aggregator).__name__,
      'model': spec.fingerprint,
    },
  )


def _reconstruction(
  training: client_loop.LocalTraining,
  optimizer: tff.learning.optimizers.Optimizer | None,
  epochs: int,
) -> client_loop.LocalTraining:
  passes = client_loop.extra_passes(training, reconstruction_epochs=epochs)
  settings = passes or dataclasses.replace(training, epochs=0)
  return settings if optimizer is None else dataclasses.replace(settings, optimizer=optimizer)


def _check_statistics(spec: modelling.ModelSpec, split: tffpers_keras.Partition) -> None:
  with tf.Graph().as_default():
    model = modelling.build_model(spec.model_fn, spec.element_spec)
    shared, _ = split.split_non_trainable(model.non_trainable_variables)
    moving = {
      id(variable): layer.name
      for layer in model._flatten_layers()
      if layer.trainable
      for variable in normalization.personal_variables(layer, 'personal_statistics')
    }
  found = sorted({moving[id(variable)] for variable in shared if id(variable) in moving})
  if found:
    raise ValueError(
      'Federated reconstruction aggregates no moving statistics: shared ones would stay at their '
      "initial values. Expected a partition with normalization='personal_statistics' or "
      f"'personal', or a network with group normalisation. Received: shared statistics of {found}"
    )
