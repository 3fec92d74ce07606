"""Data sets with one entry for each client; knows nothing of any algorithm."""

from tffpers.datasets import partition
from tffpers.datasets.arrays import Arrays
from tffpers.datasets.cifar import load_cifar100, read_cifar10, read_cifar100
from tffpers.datasets.digits import load_digits, read_digits
from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.femnist import load_femnist
from tffpers.datasets.flickr_aes import FlickrAesReport, flickr_aes_report, load_flickr_aes
from tffpers.datasets.har import load_har
from tffpers.datasets.label_report import (
  label_counts,
  label_csv,
  label_markdown,
  majority_accuracy,
)
from tffpers.datasets.medmnist import read_medmnist
from tffpers.datasets.mnist import (
  load_fashion_mnist,
  load_mnist,
  load_pmnist,
  read_fashion_mnist,
  read_mnist,
)
from tffpers.datasets.shakespeare import ShakespeareReport, load_shakespeare, shakespeare_report
from tffpers.datasets.statistics import dataset_statistics, standardize
from tffpers.datasets.vsn import load_vsn
from tffpers.datasets.watch import load_watch

__all__ = [
  'Arrays',
  'FederatedDataset',
  'FlickrAesReport',
  'ShakespeareReport',
  'dataset_statistics',
  'flickr_aes_report',
  'label_counts',
  'label_csv',
  'label_markdown',
  'load_cifar100',
  'load_digits',
  'load_fashion_mnist',
  'load_femnist',
  'load_flickr_aes',
  'load_har',
  'load_mnist',
  'load_pmnist',
  'load_shakespeare',
  'load_vsn',
  'load_watch',
  'majority_accuracy',
  'partition',
  'read_cifar10',
  'read_cifar100',
  'read_digits',
  'read_fashion_mnist',
  'read_medmnist',
  'read_mnist',
  'shakespeare_report',
  'standardize',
]
