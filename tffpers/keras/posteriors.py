"""Which variables of a Keras model are Bayesian, shared or private; divergence from the prior."""

from collections.abc import Iterator

import tensorflow as tf

from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer
from tffpers.keras.layers.gate import Gate
from tffpers.keras.layers.gaussian import GaussianWeight
from tffpers.keras.layers.hierarchical import Hierarchical


def gaussian_weights(model: keras.layers.Layer) -> list[GaussianWeight]:
  """Every Bayesian weight of a model or layer, once.

  Layers are visited depth first in the order in which the model holds them, so two
  models made by the same function agree whatever names Keras gave them. A layer used
  in several places counts once.

  Args:
    model: Sequential, functional, nested or subclassed model, or a single layer.

  Raises:
    ValueError: A Bayesian layer has not been built.
  """
  weights = []
  for layer in _walk(model, set()):
    if isinstance(layer, BayesianLayer):
      if not layer.built:
        raise ValueError(f'{layer.name} has no weights yet: build or call the model first.')
      weights.extend(layer.gaussian_weights)
  return weights


def private_gaussian_weights(model: keras.layers.Layer) -> list[GaussianWeight]:
  """Bayesian weights φ of a model's private paths, in the order of `gaussian_weights`.

  Empty for a model without `layers.Hierarchical`. Arguments and errors are those of
  `gaussian_weights`.
  """
  layers = [layer for layer in _walk(model, set()) if isinstance(layer, Hierarchical)]
  return [weight for layer in layers for weight in gaussian_weights(layer.private)]


def shared_gaussian_weights(model: keras.layers.Layer) -> list[GaussianWeight]:
  """Bayesian weights θ that are not private, in the order of `gaussian_weights`.

  These are all of them in a model without `layers.Hierarchical`, and those of the
  shared-only network otherwise. Arguments and errors are those of `gaussian_weights`.
  """
  private = {id(weight) for weight in private_gaussian_weights(model)}
  return [weight for weight in gaussian_weights(model) if id(weight) not in private]


def gates(model: keras.layers.Layer) -> list[tf.Variable]:
  """The gate, [units], of every `layers.Hierarchical` of a built model, in the model's order."""
  return [layer.gate for layer in _walk(model, set()) if isinstance(layer, Gate)]


def project_gates(model: keras.layers.Layer) -> None:
  """Sets negative gates to 0, as a Keras optimizer does after each step."""
  for gate in gates(model):
    gate.assign(tf.nn.relu(tf.convert_to_tensor(gate)))


def deterministic_weights(model: keras.layers.Layer) -> list[tf.Variable]:
  """Trainable variables that belong to no Bayesian weight, gates included, in Keras' order."""
  bayesian = {id(variable) for weight in gaussian_weights(model) for variable in weight.variables}
  return [variable for variable in model.trainable_variables if id(variable) not in bayesian]


def kl_divergence(model: keras.layers.Layer) -> tf.Tensor:
  """Unscaled KL(posterior ‖ prior) over all Bayesian weights, a scalar in nats.

  Raises:
    ValueError: There is no Bayesian weight, or a Bayesian layer has not been built.
  """
  weights = gaussian_weights(model)
  if not weights:
    raise ValueError(f'{model.name} has no Bayesian weight.')
  return tf.add_n([weight.kl_divergence() for weight in weights])


def _walk(layer: keras.layers.Layer, seen: set[int]) -> Iterator[keras.layers.Layer]:
  if id(layer) in seen:
    return
  seen.add(id(layer))
  yield layer
  # Keras has no public walk that reaches the layers inside wrappers such as RNN.
  for child in layer._flatten_layers(recursive=False, include_self=False):
    yield from _walk(child, seen)
