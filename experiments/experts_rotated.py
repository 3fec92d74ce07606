"""Adaptive expert models where half of the clients see images upside down.

Isaksson et al., *Adaptive Expert Models for Personalization in Federated Learning*, arXiv
2206.07832 (rotated CIFAR-10).

  python experiments/experts_rotated.py --output_dir=runs/rotated

runs on digits, which come with scikit-learn, and says for each seed whether IFCA puts every
client on the cluster model of its rotation; --study=starts counts on how many random and
balanced starts it does, --study=methods compares all methods, --study=choices draws who picks
which model. The paper's setting, and the shorter one of the documentation on Debian's package
dataset-fashion-mnist:

  python experiments/experts_rotated.py --preset=paper --study=rotations,methods,models
    --output_dir=runs/rotated_cifar
  python experiments/experts_rotated.py --preset=acceptance --study=rotations,starts
    --output_dir=runs/rotated_fashion

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
  'dataset': 'cifar10',
  'num_clients': 200,
  'client_fraction': 0.1,
  'num_train': 500,
  'num_test': 100,
  'rounds': 600,
  'epochs': 5,
  'batch_size': 50,
  'clip_norm': 0.0,
  'evaluate_every': 50,
  'num_seeds': 3,
  'num_models': 2,
  'epsilon': 0.82,
  'initial_models': 'random',
  'personal_epochs': 600,
  'patience': 5,
  'train_experts': False,
  **experts_presets.networks(
    cluster=(5.15e-4, (64, 64), (384, 194), 0.22, 5.4e-4),
    local=(2.0e-4, (64, 64), (384, 194), 0.73, 0.019),
    gate=(2.1e-5, (16, 16), (128,), 0.42, 0.0136),
  ),
}
PRESETS = {
  'quick': {
    **PAPER,
    **experts_presets.QUICK,
    'num_clients': 6,
    'client_fraction': 1.0,
    'num_train': 200,
    'num_test': 60,
    'epsilon': 0.2,
    'initial_models': 'balanced',
    'personal_epochs': 10,
    'client_learning_rate': 0.1,
    'local_learning_rate': 0.01,
    'gate_learning_rate': 0.01,
  },
  'paper': PAPER,
  'acceptance': {
    **PAPER,
    **experts_presets.ACCEPTANCE,
    'epsilon': 0.2325,
    'initial_models': 'balanced',
  },
}
common.define_presets(PRESETS, 'quick')
flags.DEFINE_enum('dataset', None, ['digits', 'fashion_mnist', 'mnist', 'cifar10'], 'Which images.')
FLAGS.set_default('validation_share', 0.2)
FLAGS.set_default('study', ['rotations'])


def main() -> None:
  """Loads, runs and reports."""
  preset = experts_flags.start(PRESETS)
  arrays = image_sets.read(FLAGS.dataset, FLAGS.data_dir)

  def deal(fraction: float | None, seed: int) -> experts_data.Clients:
    del fraction
    return experts_data.rotated(arrays, seed=seed, **experts_flags.dealing())

  experts_flags.run_studies(
    experts_flags.setting(deal, None, image_sets.num_classes(arrays), preset)
  )


if __name__ == '__main__':
  common.run(main)
