"""A mixture of experts for any Keras model.

With client-side experts and gate: Isaksson et al., *Adaptive Expert Models for
Personalization in Federated Learning*, arXiv 2206.07832.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tffpers.keras import mixing
from tffpers.keras.backend import keras
from tffpers.keras.layers.base import validate_size


class _Composite(keras.layers.Layer):
  """Base of layers made of other layers, whose weights come layer by layer.

  Keras lists what is trainable first: freezing one of two equal layers would swap their
  weights in `get_weights` and `set_weights`.
  """

  @property
  def parts(self) -> list[keras.layers.Layer]:
    """The layers that this one is made of, in order."""
    raise NotImplementedError

  @property
  def weights(self) -> list[Any]:
    """All weights, part by part, whichever of them are trainable."""
    return [weight for part in self.parts for weight in part.weights]

  variables = weights

  def build(self, input_shape: Any) -> None:
    for part in self.parts:
      _build(part, input_shape)
    self.built = True


@keras.utils.register_keras_serializable(package='tffpers')
class SoftmaxGate(_Composite):
  """log g: how much of a mixture is each expert's, for each example.

  The gate's g = softmax(W·h(x) + b) is positive and sums to 1. (`Gate` is another thing:
  VIRTUAL's gate has one free number per unit.)

  Args:
    num_experts: Number of experts.
    network: Layer or model that gives the features h(x), [batch, ..., features]; None is x.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.

  Inputs are what `network` takes; outputs are log g, [batch, ..., num_experts], float32 or
  float64.

  Raises:
    ValueError: `num_experts` is not a positive integer.

  >>> log_g = SoftmaxGate(3)(tf.ones([2, 5]))
  >>> tf.reduce_sum(tf.exp(log_g), -1).numpy().round(4).tolist()
  [1.0, 1.0]
  """

  def __init__(self, num_experts: int, network: keras.layers.Layer | None = None, **kwargs):
    super().__init__(**kwargs)
    self.num_experts = validate_size('num_experts', num_experts)
    self.network = network
    self.logits = keras.layers.Dense(num_experts, dtype=self.dtype_policy, name='logits')

  @property
  def parts(self) -> list[keras.layers.Layer]:
    return [self.logits] if self.network is None else [self.network, self.logits]

  def build(self, input_shape: Any) -> None:
    if self.network is not None:
      _build(self.network, input_shape)
      input_shape = self.network.compute_output_shape(input_shape)
    _build(self.logits, input_shape)
    self.built = True

  def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
    features = inputs if self.network is None else _call(self.network, inputs, training)
    return tf.nn.log_softmax(_precise(self.logits(features)))

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    if self.network is not None:
      input_shape = self.network.compute_output_shape(input_shape)
    return (*tuple(input_shape)[:-1], self.num_experts)

  def get_config(self) -> dict[str, Any]:
    network = None if self.network is None else _serialize(self.network)
    return super().get_config() | {'num_experts': self.num_experts, 'network': network}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> 'SoftmaxGate':
    network = config['network'] and keras.layers.deserialize(config['network'])
    return cls(**(config | {'network': network}))


@keras.utils.register_keras_serializable(package='tffpers')
class MixtureOfExperts(_Composite):
  """log Σ_e g_e(x) f_e(x): class probabilities of experts, mixed by a gate in log space.

  The result may be used as logits (`from_logits=True`): a further softmax leaves the
  probabilities as they are. It is finite wherever one expert that the gate does not exclude
  gives a class a probability, even where another gives it none.

  `get_weights` and `set_weights` go expert by expert and end with the gate, whichever of
  them are trainable.

  Args:
    experts: One or more layers or models of the same inputs; each returns logits
      [batch, ..., classes].
    gate: Layer or model of the same inputs that returns one logit per expert, [batch,
      experts], or one gate per target, [batch, ..., experts]; such as `SoftmaxGate`.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.

  Inputs are what the experts take; outputs are log probabilities [batch, ..., classes],
  float32 or float64.

  Raises:
    ValueError: There are no experts, one layer occurs twice, or (when called) experts
      return different numbers of logits, or the gate's outputs do not fit the number of
      experts or their targets.

  >>> experts = [keras.layers.Dense(4) for _ in range(3)]
  >>> log_p = MixtureOfExperts(experts, SoftmaxGate(3))(tf.ones([2, 5]))
  >>> log_p.shape, tf.reduce_sum(tf.exp(log_p), -1).numpy().round(4).tolist()
  (TensorShape([2, 4]), [1.0, 1.0])
  """

  def __init__(self, experts: Sequence[keras.layers.Layer], gate: keras.layers.Layer, **kwargs):
    super().__init__(**kwargs)
    experts = list(experts)
    if not experts:
      raise ValueError('A mixture needs at least one expert. Received: experts=[]')
    if len({id(part) for part in [*experts, gate]}) <= len(experts):
      raise ValueError(
        'Experts and gate must be different layers, each with weights of its own. '
        f'Received: {[part.name for part in [*experts, gate]]}'
      )
    self.experts = experts
    self.gate = gate

  @property
  def parts(self) -> list[keras.layers.Layer]:
    return [*self.experts, self.gate]

  def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
    found = [_precise(_call(expert, inputs, training)) for expert in self.experts]
    if len({(logits.dtype, logits.shape[-1]) for logits in found}) > 1:
      raise ValueError(
        f'{self.name}: all experts must return as many logits, of one type. '
        f'Received: {[(logits.dtype.name, logits.shape) for logits in found]}'
      )
    logits = tf.stack(found, -2)
    gate = _precise(_call(self.gate, inputs, training))
    if gate.shape[-1] != len(self.experts):
      raise ValueError(
        f'{self.name}: the gate must return one logit per expert, {len(self.experts)}. '
        f'Received: gate outputs of shape {gate.shape}'
      )
    if len(gate.shape) >= len(logits.shape):
      raise ValueError(
        f'{self.name}: the gate must return [batch, experts], or one gate per target as experts '
        f'return logits, {logits.shape[:-1]}. Received: gate outputs of shape {gate.shape}'
      )
    while len(gate.shape) < len(logits.shape) - 1:
      gate = tf.expand_dims(gate, 1)
    return mixing.log_mixture(gate, logits)

  def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
    return tuple(self.experts[0].compute_output_shape(input_shape))

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {
      'experts': [_serialize(expert) for expert in self.experts],
      'gate': _serialize(self.gate),
    }

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> 'MixtureOfExperts':
    experts = [keras.layers.deserialize(expert) for expert in config['experts']]
    return cls(**(config | {'experts': experts, 'gate': keras.layers.deserialize(config['gate'])}))


def _build(layer: keras.layers.Layer, shape: Any) -> None:
  if not layer.built:
    # Names must differ within a model file, and Keras 2 opens no scope in a direct build.
    with tf.name_scope(layer.name):
      layer.build(shape)


def _call(layer: keras.layers.Layer, inputs: Any, training: bool | None) -> tf.Tensor:
  takes = 'training' in inspect.signature(layer.call).parameters
  return layer(inputs, training=training) if takes else layer(inputs)


def _precise(logits: tf.Tensor) -> tf.Tensor:
  """Half-precision logits as float32: their exponentials leave float16's range."""
  return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def _serialize(layer: keras.layers.Layer) -> dict[str, Any]:
  saved = keras.layers.serialize(layer)
  # When Keras 2 loads .h5 it looks at this entry only, even for a registered class.
  saved['class_name'] = saved.get('registered_name') or saved['class_name']
  return saved
