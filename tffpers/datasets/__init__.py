"""Data sets with one entry for each client; knows nothing of any algorithm."""

from tffpers.datasets.federated_dataset import FederatedDataset
from tffpers.datasets.shakespeare import ShakespeareReport, load_shakespeare, shakespeare_report

__all__ = ['FederatedDataset', 'ShakespeareReport', 'load_shakespeare', 'shakespeare_report']
