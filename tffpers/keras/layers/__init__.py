"""Bayesian layers, and a mixture of experts."""

from tffpers.keras.layers.affine import BayesianAffine
from tffpers.keras.layers.base import BayesianLayer
from tffpers.keras.layers.conv import BayesianConv2D
from tffpers.keras.layers.dense import BayesianDense
from tffpers.keras.layers.embedding import BayesianEmbedding
from tffpers.keras.layers.gate import Gate
from tffpers.keras.layers.gaussian import GaussianWeight
from tffpers.keras.layers.hierarchical import BothPaths, Hierarchical
from tffpers.keras.layers.lstm import BayesianLSTM
from tffpers.keras.layers.lstm_cell import BayesianLSTMCell
from tffpers.keras.layers.mixture import MixtureOfExperts, SoftmaxGate

__all__ = [
  'BayesianAffine',
  'BayesianConv2D',
  'BayesianDense',
  'BayesianEmbedding',
  'BayesianLSTM',
  'BayesianLSTMCell',
  'BayesianLayer',
  'BothPaths',
  'Gate',
  'GaussianWeight',
  'Hierarchical',
  'MixtureOfExperts',
  'SoftmaxGate',
]
