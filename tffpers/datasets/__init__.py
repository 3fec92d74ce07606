"""Data sets with one entry for each client; knows nothing of any algorithm."""

from tffpers.datasets import partition
from tffpers.datasets.digits import load_digits
from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.femnist import load_femnist
from tffpers.datasets.har import load_har
from tffpers.datasets.mnist import load_fashion_mnist, load_mnist, load_pmnist
from tffpers.datasets.shakespeare import ShakespeareReport, load_shakespeare, shakespeare_report
from tffpers.datasets.statistics import dataset_statistics, standardize
from tffpers.datasets.vsn import load_vsn
from tffpers.datasets.watch import load_watch

__all__ = [
  'FederatedDataset',
  'ShakespeareReport',
  'dataset_statistics',
  'load_digits',
  'load_fashion_mnist',
  'load_femnist',
  'load_har',
  'load_mnist',
  'load_pmnist',
  'load_shakespeare',
  'load_vsn',
  'load_watch',
  'partition',
  'shakespeare_report',
  'standardize',
]
