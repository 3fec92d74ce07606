"""The studies of VIRTUAL: Tables I and III, Figures 2 to 4, grid search, uncertainty.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

  statistics   Table I: how large the clients of every data set are
  grid         learning rate × β × damping chosen on validation data, then three seeds
  beta         Figure 2: S and MT against β, at the grid's learning rate if it has run
  curves       Figure 3: S and MT over rounds; lag, steadiness and gap
  snr          Figure 4: |μ|/σ of the clients' posteriors
  pruning      Table III: pruned updates, bytes and accuracy
  uncertainty  likelihood, calibration and entropy, with and without noise for inputs

Each study writes tables as CSV and Markdown and a figure as PNG into --output_dir, and its
runs into runs/<study>/ there. Runs found there are always continued, and not repeated if
they are finished: one folder is for one data set and one preset. The data sets are those of
virtual_images.py and virtual_sensors.py, which say what they need. The preset `paper` has
the paper's settings; `small` has 30 rounds, and digits if no data set is named.
"""

import functools
import pathlib
import shlex
import sys
import time
from collections.abc import Callable

import environment  # isort: skip  # noqa: F401

import common
import study_curves
import study_data
import study_posteriors
import study_tuning
import study_uncertainty
import tensorflow as tf
import virtual_methods
from absl import flags
from study_setting import Setting

from tffpers import runtime
from tffpers.keras import models

FLAGS = flags.FLAGS
for module in (common, virtual_methods):
  flags.adopt_module_key_flags(module)

STUDIES = ('statistics', 'grid', 'beta', 'curves', 'snr', 'pruning', 'uncertainty')
PRESETS = {
  'paper': virtual_methods.PRESETS['paper'],
  'small': {**virtual_methods.PRESETS['quick'], 'rounds': 30, 'evaluate_every': 1},
}
# Where a data set has settings of its own in the paper.
PAPER_CHANGES = {
  'pmnist': {'rounds': 250},
  'femnist': {'rounds': 250},
  'har': {'rounds': 30, 'client_learning_rate': 0.03},
  'vsn': {'rounds': 25, 'client_learning_rate': 0.01},
  'watch': {'rounds': 30, 'client_learning_rate': 0.01},
}
GRIDS = {
  'paper': {'learning_rates': study_tuning.LEARNING_RATES, 'betas': study_tuning.BETAS},
  'small': {'learning_rates': (0.01, 0.03, 0.1), 'betas': (0.0, 1e-4, 1e-2)},
}
DATASETS = tuple(study_data.NUM_CLASSES)
# What a caption says besides rounds, seeds, K and C.
SETTINGS = (
  'network',
  'client_learning_rate',
  'epochs',
  'batch_size',
  'clip_norm',
  'beta',
  'damping',
  'scale_learning_rate_multiplier',
  'mu',
  'factor_weighting',
)
# What it says if it was given.
OPTIONS = ('client_start', 'fed_avg_init', 'prune_percentile', 'evaluation_samples')

flags.mark_flag_as_required('output_dir')
flags.DEFINE_list('study', list(STUDIES), 'Which studies.')
flags.register_validator(
  'study', lambda names: set(names) <= set(STUDIES), f'must be some of {",".join(STUDIES)}'
)
flags.DEFINE_enum('preset', 'small', list(PRESETS), 'Settings of flags that are not given.')
flags.DEFINE_enum('dataset', None, DATASETS, 'Which data.')
flags.DEFINE_enum('network', None, ['mlp', 'cnn'], 'MLP 2×100, or two convolutions before it.')
flags.DEFINE_integer('num_clients', None, 'Number of clients K, where the data leave it open.')


def apply_preset() -> None:
  """The preset's settings, with those of the data set, for flags that were not given."""
  preset = PRESETS[FLAGS.preset]
  dataset = FLAGS.dataset or preset['dataset']
  changes = {'dataset': dataset}
  if FLAGS.preset == 'paper':
    changes |= PAPER_CHANGES.get(dataset, {})
  common.apply_preset({FLAGS.preset: {**preset, **changes}}, FLAGS.preset)


def setting() -> Setting:
  """Data, methods and settings under the flags."""
  train, test = study_data.load(
    FLAGS.dataset, FLAGS.data_dir, num_clients=FLAGS.num_clients, seed=FLAGS.seed
  )
  model_fn = functools.partial(
    {'mlp': models.mlp, 'cnn': models.cnn}[FLAGS.network],
    input_shape=tuple(train.element_spec[0].shape),
    num_classes=study_data.NUM_CLASSES[FLAGS.dataset],
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  FLAGS.method = list(virtual_methods.METHODS)  # The studies choose among all of them.
  return Setting(
    dataset=FLAGS.dataset,
    preset=FLAGS.preset,
    command=f'python experiments/virtual_studies.py {shlex.join(sys.argv[1:])}',
    folder=pathlib.Path(FLAGS.output_dir),
    train=train,
    test=test,
    methods=virtual_methods.builders(train, model_fn, loss, common.classifier_metrics),
    rounds=FLAGS.rounds,
    clients_per_round=FLAGS.clients_per_round,
    evaluate_every=FLAGS.evaluate_every,
    seed=FLAGS.seed,
    values={
      name: FLAGS[name].value
      for name in (*SETTINGS, *(option for option in OPTIONS if FLAGS[option].present))
    },
    progress=FLAGS.progress,
  )


def studies(chosen: Setting) -> dict[str, Callable[[], None]]:
  """The studies, ready to be run."""
  return {
    'statistics': lambda: study_data.statistics(chosen, FLAGS.data_dir, FLAGS.num_clients),
    'grid': lambda: study_tuning.grid(chosen, **GRIDS[FLAGS.preset]),
    'beta': lambda: study_tuning.beta(chosen, learning_rate=_learning_rate(chosen)),
    'curves': lambda: study_curves.curves(chosen),
    'snr': lambda: study_posteriors.snr(chosen),
    'pruning': lambda: study_posteriors.pruning(chosen),
    'uncertainty': lambda: study_uncertainty.uncertainty(chosen),
  }


def _learning_rate(chosen: Setting) -> float:
  """The one that was given, or the grid's choice, or the preset's."""
  if FLAGS['client_learning_rate'].present:
    return FLAGS.client_learning_rate
  return study_tuning.chosen_learning_rate(chosen) or FLAGS.client_learning_rate


def main() -> None:
  """Runs the studies one after another."""
  for flag in ('method', 'validation_share'):
    if FLAGS[flag].present:
      raise ValueError(f'The studies choose their --{flag} themselves. Received: --{flag}')
  apply_preset()
  runtime.use(FLAGS.runtime)
  available = studies(setting())
  for name in (study for study in STUDIES if study in FLAGS.study):
    started = time.perf_counter()
    available[name]()
    print(f'\nStudy {name}: {time.perf_counter() - started:.0f} s', flush=True)


if __name__ == '__main__':
  common.run(main)
