"""Bayesian layers and models for any Keras project; needs no TensorFlow Federated."""

from tffpers.keras import layers, models, noise
from tffpers.keras.hierarchical import hierarchical
from tffpers.keras.layers.gaussian import scales_remembered
from tffpers.keras.partition import Partition
from tffpers.keras.posteriors import (
  deterministic_weights,
  gates,
  gaussian_weights,
  kl_divergence,
  private_gaussian_weights,
  project_gates,
  shared_gaussian_weights,
)
from tffpers.keras.rules import last_blocks, named, tagged
from tffpers.keras.tags import personal, shared
from tffpers.keras.units import block_name, blocks

__all__ = [
  'Partition',
  'block_name',
  'blocks',
  'deterministic_weights',
  'gates',
  'gaussian_weights',
  'hierarchical',
  'kl_divergence',
  'last_blocks',
  'layers',
  'models',
  'named',
  'noise',
  'personal',
  'private_gaussian_weights',
  'project_gates',
  'scales_remembered',
  'shared',
  'shared_gaussian_weights',
  'tagged',
]
