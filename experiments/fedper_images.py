"""FedPer and its rivals on small images: Fashion-MNIST, MNIST or digits.

Arivazhagan et al., *Federated Learning with Personalization Layers*, arXiv 1912.00818.

  python experiments/fedper_images.py --output_dir=runs/fedper

draws accuracy over rounds and the band over clients, FedPer beside FedAvg, where every client
holds k classes; --study=layers,linear,fine_tuning,labels makes the other figures. Tables give
statistics over clients before and after local training. digits comes with scikit-learn and
needs nothing; fashion_mnist is Debian's package dataset-fashion-mnist or the files in
--data_dir; mnist needs `mnist.npz` or the IDX files there. Runs that are finished are not
repeated.
"""

import functools

import environment  # isort: skip  # noqa: F401

import common
import fedper_figures
import image_sets
from absl import flags

from tffpers.keras import models

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(fedper_figures)

QUICK = {
  'dataset': 'digits',
  'rounds': 30,
  'clients_per_round': None,
  'epochs': 4,
  'batch_size': 20,
  'client_learning_rate': 0.05,
  'clip_norm': 0.0,
  'evaluate_every': 2,
  'fine_tune_epochs': 4,
  'classes': ['2', '4', '10'],
}
PRESETS = {
  'quick': QUICK,
  'fashion': {
    **QUICK,
    'dataset': 'fashion_mnist',
    'rounds': 60,
    'epochs': 1,
    'batch_size': 32,
    'client_learning_rate': 0.03,
    'evaluate_every': 5,
    'fine_tune_epochs': 1,
    'num_train': 30000,
    'num_test': 5000,
  },
}
common.define_presets(PRESETS, 'quick')
flags.DEFINE_enum('dataset', None, ['digits', 'fashion_mnist', 'mnist'], 'Which images.')


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(PRESETS, FLAGS.preset)
  arrays = image_sets.read(FLAGS.dataset, FLAGS.data_dir)
  shape = arrays.x_train.shape[1:]
  # Two convolutions need more than the eight pixels of a digit's side.
  model_fn = (
    functools.partial(models.mlp, input_shape=shape)
    if FLAGS.dataset == 'digits'
    else functools.partial(models.cnn, input_shape=shape, filters=(16, 32), hidden=(100,))
  )
  fedper_figures.run(arrays, model_fn, num_classes=10, settings=list(PRESETS['fashion']))


if __name__ == '__main__':
  common.run(main)
