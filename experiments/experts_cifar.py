"""Adaptive expert models where each client has two majority classes (CIFAR-10 in the paper).

Isaksson et al., *Adaptive Expert Models for Personalization in Federated Learning*, arXiv
2206.07832.

  python experiments/experts_cifar.py --output_dir=runs/experts

compares the mixture with ε-greedy and with ε = 0, IFCA, its fine-tuned model, local training,
the ensemble and FedAvg on digits, which come with scikit-learn: statistics over clients and
their distribution. --study=fractions draws accuracy against the majority classes' fraction p,
--study=models against the number of cluster models J, --study=epsilon against ε, and
--study=choices who picks which model.
The paper's setting (its files in --data_dir or Keras' cache), and the shorter one of the
documentation on Debian's package dataset-fashion-mnist:

  python experiments/experts_cifar.py --preset=paper --study=methods,fractions,models,choices
    --output_dir=runs/experts_cifar
  python experiments/experts_cifar.py --preset=acceptance --majority_fraction=1
    --output_dir=runs/experts_fashion

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
  'num_clients': 20,
  'client_fraction': 1.0,
  'num_train': 500,
  'num_test': 100,
  'majority_fraction': 1.0,
  'rounds': 100,
  'epochs': 3,
  'batch_size': 10,
  'clip_norm': 0.0,
  'evaluate_every': 10,
  'num_seeds': 3,
  'num_models': 3,
  'epsilon': 0.2325,
  'initial_models': 'random',
  'personal_epochs': 100,
  'patience': 5,
  'train_experts': True,
  **experts_presets.networks(
    cluster=(0.0869, (32, 64), (512,), 0.42, 2.6e-4),
    local=(1.12e-3, (64, 64), (512,), 0.51, 0.0136),
    gate=(2.9e-4, (32, 16), (128,), 0.70, 4.9e-4),
  ),
}
PRESETS = {
  'quick': {
    **PAPER,
    **experts_presets.QUICK,
    'num_clients': 5,
    'num_train': 100,
    'num_test': 40,
    'batch_size': 20,
    'personal_epochs': 20,
    'local_learning_rate': 0.01,
    'gate_learning_rate': 0.01,
  },
  'paper': PAPER,
  'acceptance': {**PAPER, **experts_presets.ACCEPTANCE},
}
common.define_presets(PRESETS, 'quick')
flags.DEFINE_enum('dataset', None, ['digits', 'fashion_mnist', 'mnist', 'cifar10'], 'Which images.')
flags.DEFINE_float(
  'majority_fraction', None, 'p: share of a client’s data that its two majority classes hold.', 0, 1
)
FLAGS.set_default('validation_share', 0.2)


def main() -> None:
  """Loads, runs and reports."""
  preset = experts_flags.start(PRESETS)
  arrays = image_sets.read(FLAGS.dataset, FLAGS.data_dir)

  def deal(fraction: float | None, seed: int) -> experts_data.Clients:
    assert fraction is not None
    return experts_data.label_skew(arrays, fraction=fraction, seed=seed, **experts_flags.dealing())

  experts_flags.run_studies(
    experts_flags.setting(deal, FLAGS.majority_fraction, image_sets.num_classes(arrays), preset)
  )


if __name__ == '__main__':
  common.run(main)
