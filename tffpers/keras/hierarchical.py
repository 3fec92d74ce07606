"""VIRTUAL's hierarchical network from any stack of Bayesian layers."""

from collections.abc import Sequence

from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer
from tffpers.keras.layers.hierarchical import BothPaths, Hierarchical
from tffpers.keras.layers.priors import Prior


def hierarchical(
  layers: keras.Sequential | Sequence[keras.layers.Layer],
  *,
  private_prior: Prior | None = None,
) -> keras.Model:
  """Gives every Bayesian layer of a stack a private twin that enters it through a gate.

  Each layer has two paths, h_p = act(private(h_p)) and h_s = act(shared(h_s) + g ⊙ h_p);
  the output is h_s (VIRTUAL, arXiv 1906.06268); see `layers.Hierarchical`. Layers
  without weights act on both paths. `shared_gaussian_weights`, `private_gaussian_weights`
  and `gates` tell the variables apart.

  The given layers become the shared path: a given `Sequential` stays the shared-only
  network, and the result equals it when all gates are 0.

  Args:
    layers: Built `Sequential`, or the layers of one with a `keras.Input` in front.
    private_prior: Prior of the private layers, see `BayesianLayer`; None is each
      shared layer's own.

  Returns:
    A functional model with the stack's inputs and outputs.

  Raises:
    TypeError: A Bayesian layer takes no `lateral`.
    ValueError: The input's shape is unknown, or a layer that is not Bayesian has weights.

  >>> from tffpers.keras.layers import BayesianDense
  >>> model = hierarchical([keras.Input((5,)), BayesianDense(4, "relu"), BayesianDense(3)])
  >>> model.output_shape
  (None, 3)
  """
  stack = layers if isinstance(layers, keras.Sequential) else keras.Sequential(list(layers))
  if not stack.built or not stack.inputs:
    raise ValueError(
      'The shape of the inputs must be known: start the layers with a keras.Input. '
      f'Received: layers={[layer.name for layer in stack.layers]}'
    )
  (given,) = stack.inputs
  inputs = keras.Input(tuple(given.shape)[1:], dtype=given.dtype)
  paths = [inputs, inputs]
  for layer in stack.layers:
    if isinstance(layer, BayesianLayer):
      paths = Hierarchical(layer, private_prior=private_prior)(paths)
    else:
      paths = BothPaths(layer)(paths)
  return keras.Model(inputs, paths[0])
