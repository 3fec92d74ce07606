"""FedPer and its rivals on FLICKR-AES: photographs rated by people with tastes of their own.

Arivazhagan et al., *Federated Learning with Personalization Layers*, arXiv 1912.00818.

  python experiments/fedper_flickr_aes.py --data_dir=… --output_dir=runs/fedper_flickr

draws accuracy over rounds and the band over 30 random workers, FedPer beside FedAvg;
--study=layers,linear,fine_tuning makes the other figures. --data_dir holds the ratings' csv
and the folder 40K/ of images (https://github.com/alanspike/personalizedImageAesthetics).
--preset=quick stands in for them with digits, which come with scikit-learn: each client has
names of its own for the classes, as each worker has a taste. Runs that are finished are not
repeated.
"""

import functools

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
  'dataset': 'flickr_aes',
  'network': 'resnet34',
  'k_p': 2,
  'num_clients': 30,
  'rounds': 100,
  'clients_per_round': None,
  'epochs': 4,
  'batch_size': 4,
  'client_learning_rate': 0.01,
  'clip_norm': 0.0,
  'evaluate_every': 5,
  'fine_tune_epochs': 4,
  'image_size': 224,
  'stem': 'imagenet',
}
PRESETS = {
  'paper': PAPER,
  'quick': {
    **PAPER,
    'dataset': 'digits',
    'network': 'resnet_small',
    'num_clients': 10,
    'rounds': 20,
    'batch_size': 20,
    'client_learning_rate': 0.05,
    'stem': 'cifar',
  },
}
common.define_presets(PRESETS, 'paper')
flags.DEFINE_enum('dataset', None, ['flickr_aes', 'digits'], 'Which images.')
flags.DEFINE_integer('image_size', None, 'Side that photographs are resized to.', lower_bound=8)


def load(seed: int) -> tuple[datasets.FederatedDataset, datasets.FederatedDataset]:
  """Workers drawn by a seed."""
  return datasets.load_flickr_aes(
    FLAGS.data_dir, num_clients=FLAGS.num_clients, image_size=FLAGS.image_size, seed=seed
  )


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(PRESETS, FLAGS.preset)
  if FLAGS.dataset == 'flickr_aes':
    panel, data, num_classes = 'workers', load, 5
    shape = (FLAGS.image_size, FLAGS.image_size, 3)
  else:
    arrays, num_classes = datasets.read_digits(), 10
    panel, data = 'own labels', functools.partial(fedper_figures.own_names, arrays, num_classes)
    shape = arrays.x_train.shape[1:]
  fedper_figures.run_studies(
    fedper_networks.model_fn(shape, num_classes),
    {panel: data},
    mixed=(panel, data),
    renamed=None,
    settings=[*PAPER, 'normalization'],
  )


if __name__ == '__main__':
  common.run(main)
