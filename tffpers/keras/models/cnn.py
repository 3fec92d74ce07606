"""Small convolutional networks for images, deterministic, Bayesian or hierarchical."""

import functools
from collections.abc import Sequence
from typing import Any

from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianConv2D, BayesianDense
from tffpers.keras.layers.priors import Prior
from tffpers.keras.models import images
from tffpers.keras.models.stack import stack


def cnn(
  *,
  input_shape: Sequence[int] = (28, 28, 1),
  filters: Sequence[int] = (32, 64),
  hidden: Sequence[int] = (100, 100),
  dropout: float = 0.0,
  num_classes: int = 10,
  normalization: str | None = None,
  bayesian: bool = False,
  hierarchical: bool = False,
  prior: Prior = 1.0,
  initial_scale: float = 0.02,
) -> keras.Model:
  """ReLU network of 5×5 convolutions without padding, each before a 2×2 max-pool, then dense.

  By default the network of VIRTUAL's image experiments (arXiv 1906.06268). APPLE's (arXiv
  2110.08394) has `filters=(20, 50), hidden=(500,)`; those of the adaptive experts (arXiv
  2206.07832) have one hidden layer and dropout, such as `hidden=(512,), dropout=0.42`.

  The Bayesian one uses local reparametrisation in dense layers and flipout in
  convolutions, whose training step is then some three times as fast: there are far
  fewer weights than outputs to draw noise for.

  Args:
    input_shape: Height, width and channels of an image.
    filters: Channels of the convolutions.
    hidden: Widths of the hidden dense layers.
    dropout: Share of each hidden dense layer's outputs that training sets to 0, in [0, 1).
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
    ValueError: `input_shape` has not three entries, `dropout` is not in [0, 1),
      `hierarchical` without `bayesian`, or a `normalization` that there is not.
  """
  images.check_image_shape(input_shape)
  images.check_plain_normalization(normalization, bayesian=bayesian)
  if not 0.0 <= dropout < 1.0:
    raise ValueError(f'dropout must be in [0, 1). Received: dropout={dropout}')
  common: dict[str, Any] = {'prior': prior, 'initial_scale': initial_scale} if bayesian else {}
  dense = BayesianDense if bayesian else keras.layers.Dense

  def conv(channels: int, activation: str | None) -> keras.layers.Layer:
    if bayesian:
      return BayesianConv2D(channels, 5, activation=activation, estimator='flipout', **common)
    return keras.layers.Conv2D(channels, 5, activation=activation)

  layers: list[Any] = [keras.Input(tuple(input_shape))]
  for channels in filters:
    layers += [*images.with_relu(conv, channels, normalization), keras.layers.MaxPooling2D(2)]
  layers.append(keras.layers.Flatten())
  for units in hidden:
    layers += images.with_relu(functools.partial(dense, **common), units, normalization)
    if dropout > 0.0:
      layers.append(keras.layers.Dropout(dropout))
  layers.append(dense(num_classes, **common))
  return stack(layers, bayesian=bayesian, hierarchical=hierarchical)
