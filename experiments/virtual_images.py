"""VIRTUAL and its baselines on images: MNIST, PMNIST, FEMNIST, Fashion-MNIST, digits.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

--dataset=mnist and pmnist need `mnist.npz` or the IDX files in --data_dir, femnist TFF's or
LEAF's files; fashion_mnist is Debian's package dataset-fashion-mnist; digits and
permuted_digits come with scikit-learn and need nothing. The default preset `paper` has the
paper's settings (100 clients, C = 10, E = 20, batch 20; rounds MNIST 100, PMNIST and FEMNIST
250; learning rate and β from its grids); `quick` runs digits in a minute or two.
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

DATASETS = ('mnist', 'pmnist', 'femnist', 'fashion_mnist', 'digits', 'permuted_digits')

common.define_presets(virtual_methods.PRESETS, 'paper')
flags.DEFINE_enum('dataset', None, DATASETS, 'Which images.')
flags.DEFINE_enum('network', None, ['mlp', 'cnn'], 'MLP 2×100, or two convolutions before it.')
flags.DEFINE_integer('num_clients', None, 'Number of clients K.', lower_bound=1)


def load() -> tuple[datasets.FederatedDataset, datasets.FederatedDataset]:
  """Train and test data under the flags; parts and permutations follow --seed."""
  arguments = {'num_clients': FLAGS.num_clients, 'seed': FLAGS.seed}
  if FLAGS.dataset.endswith('digits'):
    return datasets.load_digits(permuted=FLAGS.dataset == 'permuted_digits', **arguments)
  return getattr(datasets, f'load_{FLAGS.dataset}')(FLAGS.data_dir, **arguments)


def main() -> None:
  """Loads, runs and reports."""
  common.apply_preset(virtual_methods.PRESETS, FLAGS.preset)
  train, test = load()
  train, validation = common.hold_out(train)
  network = {'mlp': models.mlp, 'cnn': getattr(models, 'cnn', None)}[FLAGS.network]
  model_fn = functools.partial(network, input_shape=tuple(train.element_spec[0].shape))
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  methods = virtual_methods.builders(train, model_fn, loss, common.classifier_metrics)
  common.report(common.run_methods(methods, train, test, validation, FLAGS.dataset))


if __name__ == '__main__':
  common.run(main)
