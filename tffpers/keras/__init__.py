"""Bayesian layers and models for any Keras project; needs no TensorFlow Federated."""

from tffpers.keras import layers, models, noise
from tffpers.keras.posteriors import deterministic_weights, gaussian_weights, kl_divergence

__all__ = [
  'deterministic_weights',
  'gaussian_weights',
  'kl_divergence',
  'layers',
  'models',
  'noise',
]
