"""Adaptive expert models on FEMNIST, a client for each writer.

Isaksson et al., *Adaptive Expert Models for Personalization in Federated Learning*, arXiv
2206.07832.

  python experiments/experts_femnist.py --output_dir=runs/experts_femnist

runs a stand-in on digits, which come with scikit-learn: clients of unequal sizes and mixes of
classes. --preset=acceptance is the same on Debian's package dataset-fashion-mnist; the paper's
setting needs FEMNIST's files in --data_dir, see `tffpers.datasets.load_femnist`:

  python experiments/experts_femnist.py --preset=paper --data_dir=… --output_dir=runs/femnist

Runs that are finished are not repeated, and studies share them.
"""

import environment  # isort: skip  # noqa: F401

import common
import experts_data
import experts_flags
import experts_presets
import image_sets
from absl import flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(experts_flags)

PAPER = {
  'dataset': 'femnist',
  'num_clients': 182,
  'client_fraction': 0.03,
  'num_train': 200,
  'num_test': 40,
  'rounds': 4000,
  'epochs': 3,
  'batch_size': 10,
  'clip_norm': 0.0,
  'evaluate_every': 100,
  'num_seeds': 3,
  'num_models': 9,
  'epsilon': 0.0615,
  'initial_models': 'random',
  'personal_epochs': 100,
  'patience': 5,
  'train_experts': False,
  **experts_presets.networks(
    cluster=(0.0724, (32, 64), (2048,), 0.66, 7.3e-4),
    local=(1.67e-3, (32, 64), (2048,), 0.49, 0.0146),
    gate=(3.07e-3, (64, 16), (256,), 0.28, 0.027),
  ),
}
PRESETS = {
  'quick': {
    **PAPER,
    **experts_presets.QUICK,
    'num_clients': 8,
    'client_fraction': 0.5,
    'num_train': 100,
    'personal_epochs': 10,
  },
  'paper': PAPER,
  'acceptance': {**PAPER, **experts_presets.ACCEPTANCE, 'client_fraction': 0.5},
}
_CLASSES = 62
common.define_presets(PRESETS, 'quick')
flags.DEFINE_enum('dataset', None, ['femnist', 'digits', 'fashion_mnist', 'mnist'], 'Which images.')
FLAGS.set_default('validation_share', 0.2)


def main() -> None:
  """Loads, runs and reports."""
  preset = experts_flags.start(PRESETS)
  if FLAGS.dataset == 'femnist':
    deal, num_classes = _writers, _CLASSES
  else:
    deal, num_classes = _stand_in()
  experts_flags.run_studies(experts_flags.setting(deal, None, num_classes, preset))


def _writers(fraction: float | None, seed: int) -> experts_data.Clients:
  del fraction
  return experts_data.writers(
    FLAGS.data_dir,
    num_clients=FLAGS.num_clients,
    validation_share=FLAGS.validation_share,
    seed=seed,
  )


def _stand_in() -> tuple[experts_data.Deal, int]:
  arrays = image_sets.read(FLAGS.dataset, FLAGS.data_dir)

  def deal(fraction: float | None, seed: int) -> experts_data.Clients:
    del fraction
    return experts_data.unequal(arrays, seed=seed, **experts_flags.dealing())

  return deal, image_sets.num_classes(arrays)


if __name__ == '__main__':
  common.run(main)
