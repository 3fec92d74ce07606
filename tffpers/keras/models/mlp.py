"""Multi-layer perceptron, deterministic, Bayesian or hierarchical."""

import math
from collections.abc import Sequence

from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense
from tffpers.keras.layers.priors import Prior
from tffpers.keras.models import images
from tffpers.keras.models.stack import stack


def mlp(
  *,
  input_shape: Sequence[int] = (784,),
  hidden: Sequence[int] = (100, 100),
  num_classes: int = 10,
  normalization: str | None = None,
  bayesian: bool = False,
  hierarchical: bool = False,
  prior: Prior = 1.0,
  initial_scale: float = 0.02,
) -> keras.Model:
  """ReLU perceptron with logits at the end.

  The Bayesian one uses local reparametrisation (network of VIRTUAL, arXiv 1906.06268).

  Args:
    input_shape: Shape of an example without the batch; flattened if it has several axes.
    hidden: Widths of the hidden layers.
    num_classes: Number of logits.
    normalization: `'group'` or `'batch'` puts such a layer, see `images.normalize`, before
      each ReLU of a network that is not Bayesian; None puts none.
    bayesian: Gaussian posteriors over every weight; False gives plain Keras layers.
    hierarchical: Shared and private paths, see `tffpers.keras.hierarchical`.
    prior: Prior of the Bayesian layers, see `BayesianLayer`.
    initial_scale: Initial σ of the Bayesian layers.

  Returns:
    A model from [batch, *input_shape] to logits [batch, num_classes].

  Raises:
    ValueError: `hierarchical` without `bayesian`, or a `normalization` that there is not.
  """
  images.check_plain_normalization(normalization, bayesian=bayesian)

  def dense(units: int, activation: str | None) -> keras.layers.Layer:
    if not bayesian:
      return keras.layers.Dense(units, activation)
    return BayesianDense(units, activation, prior=prior, initial_scale=initial_scale)

  flatten = [keras.layers.Reshape((math.prod(input_shape),))] if len(input_shape) != 1 else []
  layers = [layer for units in hidden for layer in images.with_relu(dense, units, normalization)]
  inputs = keras.Input(tuple(input_shape))
  return stack(
    [inputs, *flatten, *layers, dense(num_classes, None)],
    bayesian=bayesian,
    hierarchical=hierarchical,
  )
