"""Adaptive expert models and what they are compared with, for the scripts of their paper."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import algorithms, process
from tffpers.keras import models

Build = Callable[..., process.PersonalizedProcess]
ElementSpec = tuple[tf.TensorSpec, tf.TensorSpec]


@dataclasses.dataclass(frozen=True)
class Values:
  """Hyper-parameters; those that begin with `cluster`, `local` or `gate` are of that network.

  Attributes:
    rounds: R.
    epochs: E, local passes per round.
    batch_size: Examples per local step, in both phases.
    clip_norm: Largest global norm of a local gradient; 0 does not clip.
    num_models: J.
    epsilon: ε of the ε-greedy run.
    initial_models: `random` or `balanced`.
    check_every: Rounds between two checks of the cluster models.
    model_patience: Checks after which a cluster model stops; 0 never stops one.
    personal_epochs: Most passes of each model of the second phase.
    patience: Passes without a lower validation loss that end it.
    train_experts: Whether experts are trained with the gate.
    client_learning_rate: The clients' SGD rate for cluster models and FedAvg.
    cluster_decay: Their weight decay, an L2 penalty of half of it on all kernels.
    cluster_filters: Channels of both convolutions.
    cluster_hidden: Units of the hidden dense layers.
    cluster_dropout: Of those layers.
    local_learning_rate: AdamW's.
    local_decay: AdamW's, decoupled.
    local_filters: As above.
    local_hidden: As above.
    local_dropout: As above.
    gate_learning_rate: AdamW's.
    gate_decay: AdamW's, decoupled.
    gate_filters: As above.
    gate_hidden: As above.
    gate_dropout: As above.
  """

  rounds: int
  epochs: int
  batch_size: int
  clip_norm: float
  num_models: int
  epsilon: float
  initial_models: str
  check_every: int
  model_patience: int
  personal_epochs: int
  patience: int
  train_experts: bool
  client_learning_rate: float
  cluster_decay: float
  cluster_filters: tuple[int, ...]
  cluster_hidden: tuple[int, ...]
  cluster_dropout: float
  local_learning_rate: float
  local_decay: float
  local_filters: tuple[int, ...]
  local_hidden: tuple[int, ...]
  local_dropout: float
  gate_learning_rate: float
  gate_decay: float
  gate_filters: tuple[int, ...]
  gate_hidden: tuple[int, ...]
  gate_dropout: float


@dataclasses.dataclass(frozen=True)
class Method:
  """One row of the tables: a model of the clients' at the end of one of the runs.

  Attributes:
    run: Name of the run, a key of `builders`.
    column: The client's column of its accuracy on test data.
  """

  run: str
  column: str


METHODS = {
  'FedAvg': Method('fed_avg', 'server_accuracy'),
  'IFCA': Method('ifca', 'personalized_ifca_accuracy'),
  'fine-tuned': Method('ifca', 'personalized_fine_tuned_accuracy'),
  'local': Method('ifca', 'personalized_local_accuracy'),
  'ensemble': Method('ifca', 'personalized_ensemble_accuracy'),
  'mixture, ε = 0': Method('ifca', 'personalized_client_accuracy'),
  'mixture, ε-greedy': Method('experts', 'personalized_client_accuracy'),
}
RUNS = tuple(dict.fromkeys(method.run for method in METHODS.values()))


def builders(element_spec: ElementSpec, num_classes: int, values: Values) -> Mapping[str, Build]:
  """What builds the process of each run; `clusters` is `ifca` without a second phase.

  Args:
    element_spec: `(x, y)` specs of one example.
    num_classes: Number of classes.
    values: Hyper-parameters.
  """
  shared: dict[str, Any] = {
    'model_fn': network(element_spec, num_classes, values, 'cluster'),
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    'element_spec': element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(values.client_learning_rate),
    'epochs': values.epochs,
    'batch_size': values.batch_size,
    'clip_norm': values.clip_norm or None,
  }
  adamw = tff.learning.optimizers.build_adamw
  experts = functools.partial(
    algorithms.build_adaptive_experts,
    **shared,
    gate_model_fn=network(element_spec, values.num_models + 1, values, 'gate'),
    local_model_fn=network(element_spec, num_classes, values, 'local'),
    local_optimizer=adamw(values.local_learning_rate, weight_decay=values.local_decay),
    gate_optimizer=adamw(values.gate_learning_rate, weight_decay=values.gate_decay),
    num_models=values.num_models,
    initial_models=values.initial_models,
    check_every=values.check_every,
    patience=values.model_patience or None,
    personal_epochs=values.personal_epochs,
    personal_patience=values.patience,
    train_experts=values.train_experts,
  )
  return {
    'fed_avg': functools.partial(algorithms.build_fed_avg, **shared),
    'clusters': functools.partial(
      algorithms.build_ifca,
      **shared,
      num_models=values.num_models,
      initial_models=values.initial_models,
    ),
    'ifca': functools.partial(experts, epsilon=0.0),
    'experts': functools.partial(experts, epsilon=values.epsilon),
  }


def network(
  element_spec: ElementSpec, num_outputs: int, values: Values, part: str
) -> Callable[[], tf.keras.Model]:
  """Builds the paper's network for a part; a perceptron for images as small as digits.

  Args:
    element_spec: For the shape of an image.
    num_outputs: Classes or experts.
    values: Hyper-parameters.
    part: `cluster`, `local` or `gate`.
  """
  shape = element_spec[0].shape
  filters, hidden, dropout = (
    getattr(values, f'{part}_{name}') for name in ('filters', 'hidden', 'dropout')
  )
  # TFF's SGD has no weight decay; AdamW's is its own.
  decay = values.cluster_decay if part == 'cluster' else 0.0

  def build() -> tf.keras.Model:
    if min(shape[:2]) < 16:
      return with_decay(
        models.mlp(input_shape=shape, hidden=hidden, num_classes=num_outputs), decay
      )
    return with_decay(
      models.cnn(
        input_shape=shape,
        filters=filters,
        hidden=hidden,
        dropout=dropout,
        num_classes=num_outputs,
      ),
      decay,
    )

  return build


def with_decay(model: tf.keras.Model, decay: float) -> tf.keras.Model:
  """The network with ½ · decay · ‖W‖² of every kernel in its loss.

  A step of SGD with rate η then takes η · decay · W off a kernel: weight decay.

  Args:
    model: A network, not yet trained.
    decay: At least 0.
  """
  if not decay:
    return model
  penalty = {'class_name': 'L2', 'config': {'l2': decay / 2}}

  def penalized(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    config = layer.get_config()
    if 'kernel_regularizer' in config:
      config['kernel_regularizer'] = penalty
    return layer.__class__.from_config(config)

  return tf.keras.models.clone_model(model, clone_function=penalized)


def widths(texts: Sequence[str]) -> tuple[int, ...]:
  """Numbers of a list flag."""
  return tuple(int(text) for text in texts)
