"""VIRTUAL and its baselines on sensors: HAR, VSN, and the watch data of a package.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

--sensors=har needs `UCI HAR Dataset/` (or the stand-in `har561_from_hapt.npz`) in --data_dir,
vsn the published `events/` or `vehicle.mat`; watch is in the package seglearn==1.2.5, which
`pip install --no-deps` brings. The default preset `paper` has the paper's settings (C = 10,
E = 20, batch 20; rounds HAR 30, VSN 25; learning rate and β from its grids). Features are
standardised by the training rows of all clients: HAR's, in [−1, 1] but far from centred, train
slowly and leave the clients' own models fluctuating otherwise.
"""

import functools

import environment  # isort: skip  # noqa: F401

import common
import tensorflow as tf
import virtual_methods
from absl import flags

from tffpers import datasets
from tffpers.keras import models

FLAGS = flags.FLAGS
for module in (common, virtual_methods):
  flags.adopt_module_key_flags(module)

PRESETS = {
  'paper': {
    'rounds': 30,
    'clients_per_round': 10,
    'epochs': 20,
    'batch_size': 20,
    'client_learning_rate': 0.03,
    'clip_norm': 0.0,
    'beta': 1e-4,
    'scale_learning_rate_multiplier': 3000.0,
    'evaluate_every': 5,
  },
}
NUM_CLASSES = {'har': 6, 'vsn': 2, 'watch': 7}

common.define_presets(PRESETS, 'paper')
flags.DEFINE_enum('sensors', 'har', list(NUM_CLASSES), 'Which data.')
flags.DEFINE_bool('standardize', True, 'Give every feature mean 0 and standard deviation 1.')


def load() -> tuple[datasets.FederatedDataset, datasets.FederatedDataset]:
  """Train and test data under the flags."""
  loader = getattr(datasets, f'load_{FLAGS.sensors}')
  train, test = loader(FLAGS.data_dir, seed=FLAGS.seed)
  return datasets.standardize(train, test) if FLAGS.standardize else (train, test)


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(PRESETS, FLAGS.preset)
  train, test = load()
  train, validation = common.hold_out(train)
  model_fn = functools.partial(
    models.mlp,
    input_shape=tuple(train.element_spec[0].shape),
    num_classes=NUM_CLASSES[FLAGS.sensors],
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  methods = virtual_methods.builders(train, model_fn, loss, common.classifier_metrics)
  common.report(common.run_methods(methods, train, test, validation, FLAGS.sensors))


if __name__ == '__main__':
  common.run(main)
