"""VIRTUAL, its controls and the baselines it is judged by, for the scripts of its paper."""

import functools
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff
from absl import flags

from tffpers import datasets, modelling, process
from tffpers.algorithms import build_fed_avg, build_fed_prox, build_virtual

FLAGS = flags.FLAGS

# Images; other data change what they must.
PAPER = {
  'dataset': 'mnist',
  'network': 'mlp',
  'num_clients': 100,
  'rounds': 100,
  'clients_per_round': 10,
  'epochs': 20,
  'batch_size': 20,
  'client_learning_rate': 0.1,
  'clip_norm': 0.0,
  'beta': 1e-4,
  'scale_learning_rate_multiplier': 3000.0,
  'evaluate_every': 5,
}
PRESETS = {
  'paper': PAPER,
  'quick': {
    **PAPER,
    'dataset': 'digits',
    'num_clients': 20,
    'rounds': 30,
    'epochs': 10,
  },
}

METHODS = {
  'fed_avg': 'FedAvg',
  'fed_prox': 'FedProx',
  'virtual': 'VIRTUAL with the shared-only network',
  'virtual_frozen': 'the same with σ kept at its start',
  'virtual_hierarchical': 'VIRTUAL with private paths and gates',
}

flags.DEFINE_list(
  'method',
  ['fed_avg', 'virtual'],
  'Methods to run on the same clients and seed: '
  + ', '.join(f'{name} ({what})' for name, what in METHODS.items()),
)
flags.register_validator(
  'method', lambda names: set(names) <= set(METHODS), f'must be some of {",".join(METHODS)}'
)
flags.DEFINE_float('beta', None, 'VIRTUAL: weight β of the divergence.', lower_bound=0)
flags.DEFINE_float(
  'damping', None, 'VIRTUAL: d in (0, 1]; default 1/C.', lower_bound=0.0, upper_bound=1.0
)
flags.DEFINE_float(
  'scale_learning_rate_multiplier',
  None,
  'VIRTUAL: factor on the steps of ln σ.',
  lower_bound=0,
)
flags.DEFINE_enum(
  'factor_weighting', 'equal', ['equal', 'by_size'], 'VIRTUAL: a factor’s share of the prior.'
)
flags.DEFINE_enum(
  'client_start', 'server', ['server', 'own'], 'VIRTUAL: where a client’s training starts.'
)
flags.DEFINE_bool('fed_avg_init', False, 'VIRTUAL: s_i ← s^(1/K) before each training.')
flags.DEFINE_float(
  'prune_percentile', 0.0, 'VIRTUAL: changes below it are not sent.', lower_bound=0
)
flags.DEFINE_integer(
  'evaluation_samples',
  0,
  'VIRTUAL: weight samples in evaluation; 0 is the posterior mean.',
  lower_bound=0,
)
flags.DEFINE_float('mu', 0.01, 'FedProx: strength μ of the proximal term.', lower_bound=0)


def builders(
  train: datasets.FederatedDataset,
  model_fn: Callable[..., tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
) -> dict[str, Callable[[], process.PersonalizedProcess]]:
  """The methods of --method, ready to be built.

  Args:
    train: The clients' training data.
    model_fn: Builds the network; takes `bayesian` and `hierarchical`.
    loss_fn: Per-target losses.
    metrics_fn: Metrics of evaluation.
  """
  shared = {
    'loss_fn': loss_fn,
    'metrics_fn': metrics_fn,
    'element_spec': train.element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(FLAGS.client_learning_rate),
    'epochs': FLAGS.epochs,
    'batch_size': FLAGS.batch_size,
    'clip_norm': FLAGS.clip_norm or None,
  }
  plain = {'model_fn': functools.partial(model_fn, bayesian=False), **shared}
  names = ('factor_weighting', 'client_start', 'fed_avg_init', 'prune_percentile')
  virtual = {
    'model_fn': functools.partial(model_fn, bayesian=True),
    'scale_learning_rate_multiplier': FLAGS.scale_learning_rate_multiplier,
    **{name: FLAGS[name].value for name in names},
    'client_num_examples': [train.num_examples(i) for i in train.client_ids],
    'beta': FLAGS.beta,
    'damping': FLAGS.damping,
    'evaluation_samples': FLAGS.evaluation_samples,
    **shared,
  }
  known = {
    'fed_avg': functools.partial(build_fed_avg, **plain),
    'fed_prox': functools.partial(build_fed_prox, mu=FLAGS.mu, **plain),
    'virtual': functools.partial(build_virtual, **virtual),
    'virtual_frozen': functools.partial(
      build_virtual, **{**virtual, 'scale_learning_rate_multiplier': 0.0}
    ),
    'virtual_hierarchical': functools.partial(
      build_virtual,
      **{**virtual, 'model_fn': functools.partial(model_fn, bayesian=True, hierarchical=True)},
    ),
  }
  return {name: known[name] for name in FLAGS.method}
