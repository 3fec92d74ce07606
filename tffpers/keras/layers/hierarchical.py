"""Layers of VIRTUAL's hierarchical network, which act on a shared and a private path.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tffpers.keras import noise
from tffpers.keras.backend import keras
from tffpers.keras.layers.base import BayesianLayer
from tffpers.keras.layers.gate import Gate
from tffpers.keras.layers.priors import Prior, serialize_prior, validate_prior

# Draws of the private path have a stream of their own: inside a noise scope the shared
# path then gets the noise that it gets without a private one.
_PRIVATE_STREAM = 1
# Above every seed that a layer picks itself, so no two of a model's layers share noise.
_PRIVATE_SEED = 2**31


class _TwoPaths(keras.layers.Layer):
  """Base of layers from `[h_s, h_p]` to `[h_s, h_p]`: `shared` acts on one, `private` on the other.

  Args:
    layer: What acts on the shared path.
    private: What acts on the private path; may be the same.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.
  """

  def __init__(self, layer: keras.layers.Layer, private: keras.layers.Layer, **kwargs):
    # Each layer casts its own inputs; the ids of an embedding must not be cast at all.
    super().__init__(autocast=False, **({'dtype': layer.dtype_policy} | kwargs))
    self.shared = layer
    self.private = private
    self.supports_masking = True

  def build(self, input_shape: Any) -> None:
    shared, private = input_shape
    _build(self.shared, shared)
    with noise.stream(_PRIVATE_STREAM):
      _build(self.private, private)
    self.built = True

  def call_private(self, inputs: tf.Tensor, mask: tf.Tensor | None, training: bool | None):
    """Output of the private path."""
    with noise.stream(_PRIVATE_STREAM):
      return _call(self.private, inputs, mask=mask, training=training)

  def compute_mask(self, inputs: Sequence[tf.Tensor], mask: Any = None) -> list[Any]:
    layers = (self.shared, self.private)
    return [
      layer.compute_mask(x, m) for layer, x, m in zip(layers, inputs, _pair(mask), strict=True)
    ]

  def compute_output_shape(self, input_shape: Any) -> list[tuple[int | None, ...]]:
    shared, private = (tuple(shape) for shape in input_shape)
    return [
      tuple(self.shared.compute_output_shape(shared)),
      tuple(self.private.compute_output_shape(private)),
    ]

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {'layer': _serialize(self.shared)}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> '_TwoPaths':
    layer = keras.layers.deserialize(config['layer'])
    return cls(**(config | {'layer': layer}))


@keras.utils.register_keras_serializable(package='tffpers')
class Hierarchical(_TwoPaths):
  """A Bayesian layer on a shared path, with a private twin whose output enters it gated.

    h_p' = private(h_p)
    h_s' = shared(h_s, lateral = g ⊙ h_p')

  A dense or convolutional layer adds the lateral before its activation, where g has
  one number per unit or channel; an embedding adds it to its rows and an LSTM to its
  outputs, step by step and after the recurrence.

  With g = 0, and the private path finite, h_s' is what `layer` alone computes, inside a
  noise scope with the same noise.

  Args:
    layer: The shared layer, a `BayesianLayer`. The private one is a new layer with the
      same configuration, including `kl_weight`, and a seed of its own.
    private_prior: Prior of the private layer, see `BayesianLayer`; None is that of
      `layer`.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.

  Inputs `[h_s, h_p]` give outputs `[h_s', h_p']` of equal shapes.

  Raises:
    TypeError: `layer` is no Bayesian layer whose call takes a `lateral`.
    ValueError: `layer` returns its state.

  >>> from tffpers.keras.layers import BayesianDense
  >>> h_s, h_p = Hierarchical(BayesianDense(3, "relu"))([tf.ones([2, 5]), tf.ones([2, 5])])
  >>> h_s.shape, h_p.shape
  (TensorShape([2, 3]), TensorShape([2, 3]))
  """

  def __init__(self, layer: BayesianLayer, *, private_prior: Prior | None = None, **kwargs):
    _check_layer(layer)
    self_prior = None if private_prior is None else validate_prior(private_prior)
    super().__init__(layer, _private_twin(layer, self_prior), **kwargs)
    self.private_prior = self_prior
    self.gate = Gate(dtype=layer.dtype_policy, name=f'{layer.name}_gate')

  def build(self, input_shape: Any) -> None:
    super().build(input_shape)
    _build(self.gate, self.private.compute_output_shape(input_shape[1]))

  def call(
    self, inputs: Sequence[tf.Tensor], mask: Any = None, training: bool | None = None
  ) -> list[tf.Tensor]:
    masks = _pair(mask)
    private = self.call_private(inputs[1], masks[1], training)
    shared = _call(
      self.shared, inputs[0], mask=masks[0], training=training, lateral=self.gate(private)
    )
    return [shared, private]

  def get_config(self) -> dict[str, Any]:
    prior = None if self.private_prior is None else serialize_prior(self.private_prior)
    return super().get_config() | {'private_prior': prior}


@keras.utils.register_keras_serializable(package='tffpers')
class BothPaths(_TwoPaths):
  """A layer without weights applied to both paths, each with its own noise.

  Args:
    layer: Such as pooling, reshaping or dropout.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.

  Inputs `[h_s, h_p]` give outputs `[layer(h_s), layer(h_p)]`.

  Raises:
    ValueError: `layer` turns out to have weights when it is built.

  >>> h_s, h_p = BothPaths(keras.layers.Flatten())([tf.ones([2, 5, 3]), tf.ones([2, 5, 3])])
  >>> h_s.shape
  TensorShape([2, 15])
  """

  def __init__(self, layer: keras.layers.Layer, **kwargs):
    super().__init__(layer, layer, **kwargs)

  def build(self, input_shape: Any) -> None:
    super().build(input_shape)
    if self.shared.weights:
      raise ValueError(
        f'{self.shared.name} has weights but is no BayesianLayer, so it can be neither shared nor '
        'private: use the Bayesian layer, or leave its weights out. '
        f'Received: layer={type(self.shared).__name__}'
      )

  def call(
    self, inputs: Sequence[tf.Tensor], mask: Any = None, training: bool | None = None
  ) -> list[tf.Tensor]:
    masks = _pair(mask)
    private = self.call_private(inputs[1], masks[1], training)
    return [_call(self.shared, inputs[0], mask=masks[0], training=training), private]


def _check_layer(layer: Any) -> None:
  if not isinstance(layer, BayesianLayer) or not _takes(layer, 'lateral'):
    raise TypeError(
      'Hierarchical needs a BayesianLayer whose call takes a lateral. '
      f'Received: layer={type(layer).__name__}'
    )
  if getattr(layer, 'return_state', False):
    raise ValueError(
      f'{layer.name}: a layer on two paths cannot return its state. Received: return_state=True'
    )


def _private_twin(layer: BayesianLayer, prior: Any) -> BayesianLayer:
  config = layer.get_config()
  config['name'] = f'{layer.name}_private'
  if prior is not None:
    config['prior'] = prior
  if layer.seed is not None:
    config['seed'] = layer.seed + _PRIVATE_SEED
  return type(layer).from_config(config)


def _serialize(layer: keras.layers.Layer) -> dict[str, Any]:
  saved = keras.layers.serialize(layer)
  # When Keras 2 loads .h5 it looks at this entry only, even for a registered class.
  saved['class_name'] = saved['registered_name'] or saved['class_name']
  return saved


def _build(layer: keras.layers.Layer, shape: Any) -> None:
  if not layer.built:
    # Names must differ within a model file, and Keras 2 opens no scope in a direct build.
    with tf.name_scope(layer.name):
      layer.build(shape)


def _call(layer: keras.layers.Layer, inputs: tf.Tensor, **optional: Any) -> tf.Tensor:
  """Calls a layer with those arguments that it takes."""
  return layer(inputs, **{name: value for name, value in optional.items() if _takes(layer, name)})


def _takes(layer: keras.layers.Layer, argument: str) -> bool:
  return argument in inspect.signature(layer.call).parameters


def _pair(mask: Any) -> Sequence[Any]:
  return (None, None) if mask is None else mask
