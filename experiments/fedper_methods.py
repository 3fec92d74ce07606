"""FedPer, its ablations and its rivals, for the scripts of its paper."""

import functools
from collections.abc import Callable
from typing import Any

import common
import tensorflow as tf
import tensorflow_federated as tff
from absl import flags

from tffpers import datasets, process
from tffpers import keras as tffpers_keras
from tffpers.algorithms import build_fed_avg, build_fed_per, build_fed_prox, build_local

FLAGS = flags.FLAGS

METHODS = {
  'fed_avg': 'FedAvg, with fine-tuning beside it',
  'fed_prox': 'FedProx, with fine-tuning beside it',
  'local': 'each client alone',
  'fed_per': 'FedPer',
  'fed_per_head_first': 'FedPer whose rounds begin with a pass on the head alone',
  'fed_per_linear': 'FedPer on a linear base',
}

flags.DEFINE_integer('k_p', 1, 'FedPer: K_P, personal units from the output.', lower_bound=0)
flags.DEFINE_integer(
  'fine_tune_epochs', None, 'FedAvg, FedProx: passes of fine-tuning.', lower_bound=0
)
flags.DEFINE_float('mu', 0.01, 'FedProx: strength μ of the proximal term.', lower_bound=0)

Build = Callable[..., process.PersonalizedProcess]
# Columns of a history that hold the clients' accuracies before local training, after it,
# and after fine-tuning.
SERVER_FIRST = {'before': 'server', 'after': 'clients', 'fine-tuned': 'personalized_clients'}
PERSONAL = {'before': 'clients', 'after': 'after'}


def builders(
  train: datasets.FederatedDataset,
  model_fn: Callable[[], tf.keras.Model],
) -> dict[str, Build]:
  """What builds each method; takes changed arguments.

  Args:
    train: The clients' training data.
    model_fn: Builds the network.
  """
  shared: dict[str, Any] = {
    'model_fn': model_fn,
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': common.classifier_metrics,
    'element_spec': train.element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(FLAGS.client_learning_rate),
    'epochs': FLAGS.epochs,
    'batch_size': FLAGS.batch_size,
    'clip_norm': FLAGS.clip_norm or None,
  }
  tuned = {**shared, 'fine_tune_epochs': FLAGS.fine_tune_epochs}
  fed_per = functools.partial(
    build_fed_per, partition=tffpers_keras.last_blocks(FLAGS.k_p), **shared
  )
  return {
    'fed_avg': functools.partial(build_fed_avg, **tuned),
    'fed_prox': functools.partial(build_fed_prox, mu=FLAGS.mu, **tuned),
    'local': functools.partial(build_local, **shared),
    'fed_per': fed_per,
    'fed_per_head_first': functools.partial(fed_per, head_epochs=1),
    'fed_per_linear': functools.partial(
      fed_per, model_fn=lambda: tffpers_keras.models.linear_base(model_fn(), FLAGS.k_p)
    ),
  }


def points(method: str) -> dict[str, str]:
  """Prefixes of history columns by when a client is measured."""
  return SERVER_FIRST if method in ('fed_avg', 'fed_prox') else PERSONAL
