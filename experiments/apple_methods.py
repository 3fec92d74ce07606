"""APPLE and what it is compared with, for the scripts of its paper."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import algorithms, datasets, process

Build = Callable[..., process.PersonalizedProcess]


@dataclasses.dataclass(frozen=True)
class Values:
  """Hyper-parameters; those of one method alone begin with its name, APPLE's do not.

  Attributes:
    rounds: R.
    epochs: Local passes per round.
    batch_size: Examples per local step.
    client_learning_rate: η1; APFL steps α_i with it too, as its paper does.
    momentum: Of every local step, APPLE's p_i included; from 0 again each round.
    clip_norm: Largest global norm of a local gradient; 0 does not clip.
    dr_learning_rate: η2.
    mu: μ.
    schedule: λ's, `cosine` or `exponential`.
    schedule_ratio: L/R.
    max_downloads: M, also FedFomo's.
    priority: `abs` or `signed`.
    prox_mu: FedProx' μ.
    fine_tune_epochs: Passes of fine-tuning after FedAvg and FedProx.
    amp_mu: HeurFedAMP's μ.
    amp_sigma: HeurFedAMP's σ.
    amp_self_weight: HeurFedAMP's ξ_ii.
  """

  rounds: int
  epochs: int
  batch_size: int
  client_learning_rate: float
  momentum: float
  clip_norm: float
  dr_learning_rate: float
  mu: float
  schedule: str
  schedule_ratio: float
  max_downloads: int
  priority: str
  prox_mu: float
  fine_tune_epochs: int
  amp_mu: float
  amp_sigma: float
  amp_self_weight: float


@dataclasses.dataclass(frozen=True)
class Method:
  """One row of the tables: a model of the clients' in one of the runs.

  Attributes:
    run: Name of the run, a key of `builders`.
    measured: Prefix of the columns of a history that hold the model's test accuracy.
    chosen_by: Prefix of the columns, after `validation_`, by which its round is chosen.
  """

  run: str
  measured: str = 'clients'
  chosen_by: str = 'clients'


REFERENCE = 'FedAvg-FT'
# Fine-tuned models are measured on test data only. The clients' models after local training,
# which is the same number of passes from the server's last model but one, choose their round.
METHODS = {
  'separate': Method('local'),
  'FedAvg': Method('fed_avg', 'server', 'server'),
  REFERENCE: Method('fed_avg', 'personalized_clients'),
  'FedProx': Method('fed_prox', 'server', 'server'),
  'FedProx-FT': Method('fed_prox', 'personalized_clients'),
  'APFL': Method('apfl'),
  'HeurFedAMP': Method('fed_amp'),
  'FedFomo': Method('fed_fomo'),
  'APPLE': Method('apple'),
}
RUNS = tuple(dict.fromkeys(method.run for method in METHODS.values()))


def builders(
  train: datasets.FederatedDataset, model_fn: Callable[[], tf.keras.Model], values: Values
) -> Mapping[str, Build]:
  """What builds the process of each run; takes changed arguments.

  Args:
    train: The clients' training data, of which APPLE counts p_0.
    model_fn: Builds the network.
    values: Hyper-parameters.
  """
  shared: dict[str, Any] = {
    'model_fn': model_fn,
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    'element_spec': train.element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(values.client_learning_rate, values.momentum),
    'epochs': values.epochs,
    'batch_size': values.batch_size,
    'clip_norm': values.clip_norm or None,
  }
  tuned = {**shared, 'fine_tune_epochs': values.fine_tune_epochs}
  cross_silo = {**shared, 'num_clients': len(train)}
  limit = {'max_downloads': num_downloads(values.max_downloads, len(train))}
  return {
    'local': functools.partial(algorithms.build_local, **shared),
    'fed_avg': functools.partial(algorithms.build_fed_avg, **tuned),
    'fed_prox': functools.partial(algorithms.build_fed_prox, mu=values.prox_mu, **tuned),
    'apfl': functools.partial(
      algorithms.build_apfl, alpha_learning_rate=values.client_learning_rate, **shared
    ),
    'fed_amp': functools.partial(
      algorithms.build_fed_amp,
      mu=values.amp_mu,
      sigma=values.amp_sigma,
      self_weight=values.amp_self_weight,
      **cross_silo,
    ),
    'fed_fomo': functools.partial(algorithms.build_fed_fomo, **limit, **cross_silo),
    'apple': functools.partial(
      algorithms.build_apple,
      client_num_examples={key: train.num_examples(key) for key in train.client_ids},
      rounds=values.rounds,
      dr_learning_rate=values.dr_learning_rate,
      mu=values.mu,
      schedule=values.schedule,
      schedule_ratio=values.schedule_ratio,
      priority=values.priority,
      dr_momentum=values.momentum,
      **limit,
      **shared,
    ),
  }


def num_downloads(max_downloads: int, num_clients: int) -> int:
  """min(M, N − 1), at least 1."""
  return max(1, min(max_downloads, num_clients - 1))
