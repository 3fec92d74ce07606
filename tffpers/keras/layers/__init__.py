"""Bayesian layers."""

from tffpers.keras.layers.base import BayesianLayer
from tffpers.keras.layers.dense import BayesianDense
from tffpers.keras.layers.embedding import BayesianEmbedding
from tffpers.keras.layers.gaussian import GaussianWeight
from tffpers.keras.layers.lstm import BayesianLSTM
from tffpers.keras.layers.lstm_cell import BayesianLSTMCell

__all__ = [
  'BayesianDense',
  'BayesianEmbedding',
  'BayesianLSTM',
  'BayesianLSTMCell',
  'BayesianLayer',
  'GaussianWeight',
]
