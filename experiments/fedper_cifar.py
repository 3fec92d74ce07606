"""FedPer and its rivals on CIFAR-10 and CIFAR-100.

Arivazhagan et al., *Federated Learning with Personalization Layers*, arXiv 1912.00818.

  python experiments/fedper_cifar.py --data_dir=… --output_dir=runs/fedper_cifar

draws Figures 3 to 5 for CIFAR-10: accuracy over rounds and the band over clients for k = 4, 8
and 10 classes per client. --study=layers,linear,fine_tuning,labels makes the other figures;
--preset=cifar100 those of CIFAR-100 (k = 40, 80, 100). --data_dir holds the python or binary
files of https://www.cs.toronto.edu/~kriz/cifar.html. --preset=quick runs digits, which come
with scikit-learn, on a small residual network. Networks have group normalisation unless
--normalization=batch. Runs that are finished are not repeated.
"""

import environment  # isort: skip  # noqa: F401

import common
import fedper_figures
import fedper_networks
from absl import flags

from tffpers import datasets

FLAGS = flags.FLAGS
for module in (fedper_figures, fedper_networks):
  flags.adopt_module_key_flags(module)

PAPER = {
  'dataset': 'cifar10',
  'network': 'resnet34',
  'k_p': 2,
  'rounds': 100,
  'clients_per_round': None,
  'epochs': 4,
  'batch_size': 128,
  'client_learning_rate': 0.01,
  'clip_norm': 0.0,
  'evaluate_every': 5,
  'fine_tune_epochs': 4,
  'classes': ['4', '8', '10'],
}
PRESETS = {
  'paper': PAPER,
  'cifar100': {**PAPER, 'dataset': 'cifar100', 'k_p': 1, 'classes': ['40', '80', '100']},
  'quick': {
    **PAPER,
    'dataset': 'digits',
    'network': 'resnet_small',
    'rounds': 20,
    'batch_size': 20,
    'client_learning_rate': 0.05,
  },
}
NUM_CLASSES = {'cifar10': 10, 'cifar100': 100, 'digits': 10}

common.define_presets(PRESETS, 'paper')
flags.DEFINE_enum('dataset', None, list(NUM_CLASSES), 'Which images.')


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(PRESETS, FLAGS.preset)
  if FLAGS.dataset == 'digits':
    arrays = datasets.read_digits()
  else:
    arrays = getattr(datasets, f'read_{FLAGS.dataset}')(FLAGS.data_dir)
  num_classes = NUM_CLASSES[FLAGS.dataset]
  model_fn = fedper_networks.model_fn(arrays.x_train.shape[1:], num_classes)
  fedper_figures.run(
    arrays, model_fn, num_classes=num_classes, settings=[*PAPER, 'stem', 'normalization']
  )


if __name__ == '__main__':
  common.run(main)
