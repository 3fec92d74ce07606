"""Bayesian layers and models for any Keras project; needs no TensorFlow Federated."""

from tffpers.keras import layers, models, noise
from tffpers.keras.hierarchical import hierarchical
from tffpers.keras.layers.gaussian import scales_computed_once
from tffpers.keras.posteriors import (
  deterministic_weights,
  gates,
  gaussian_weights,
  kl_divergence,
  private_gaussian_weights,
  project_gates,
  shared_gaussian_weights,
)

__all__ = [
  'deterministic_weights',
  'gates',
  'gaussian_weights',
  'hierarchical',
  'kl_divergence',
  'layers',
  'models',
  'noise',
  'private_gaussian_weights',
  'project_gates',
  'scales_computed_once',
  'shared_gaussian_weights',
]
