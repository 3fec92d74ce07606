"""What all Bayesian layers have in common: their arguments, their noise and their KL."""

import math
import random
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tffpers.keras import noise
from tffpers.keras.backend import NO_AUTOCAST, keras
from tffpers.keras.layers.gaussian import (
  MAX_SCALE,
  MIN_SCALE,
  GaussianWeight,
)
from tffpers.keras.layers.priors import Prior, serialize_prior, validate_prior


class BayesianLayer(keras.layers.Layer):
  """Base of layers whose weights have mean-field Gaussian posteriors.

  A layer samples its weights when `training` is true and uses their posterior mean
  otherwise; `tffpers.keras.noise.scope` overrides both that rule and the source of
  the noise. Outside a scope, noise is a function of `seed` and of a non-trainable
  counter of draws, so it differs from call to call and repeats with the seed.

  Args:
    prior: Scale s of the prior N(0, s²) of every weight; or a callable
      `(shape, dtype) -> tfd.Normal`, or its Keras-registered name.
    initial_scale: Standard deviation σ each posterior starts with. The default of
      0.02 is small beside fan-in scaled means, so a new layer trains like a
      deterministic one.
    kl_weight: None adds no loss. A number, such as 1/(number of training examples),
      adds kl_weight · KL(posterior ‖ prior) to the model's losses, once per step
      however often the layer is called.
    seed: Seed of the noise outside a scope; None picks one with Python's `random`.
      Give two layers of a model different seeds: equal ones share noise.
    sample_at_inference: Sample also when `training` is false.
    **kwargs: `name`, `dtype`, `trainable` of a Keras layer.

  Raises:
    TypeError: A prior of the wrong type.
    ValueError: A number out of range.
  """

  def __init__(
    self,
    *,
    prior: Prior = 1.0,
    initial_scale: float = 0.02,
    kl_weight: float | None = None,
    seed: int | None = None,
    sample_at_inference: bool = False,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self.prior = validate_prior(prior)
    self.initial_scale = _validate_initial_scale(initial_scale)
    self.kl_weight = _validate_kl_weight(kl_weight)
    self.seed = None if seed is None else int(seed)
    self.sample_at_inference = bool(sample_at_inference)
    self._base_seed = random.randrange(2**31) if seed is None else self.seed
    self.supports_masking = True

  @property
  def gaussian_weights(self) -> list[GaussianWeight]:
    """The layer's own Bayesian weights in order of creation (not those of sublayers)."""
    return [value for value in vars(self).values() if isinstance(value, GaussianWeight)]

  def kl_divergence(self) -> tf.Tensor:
    """Unscaled KL(posterior ‖ prior) of the layer's own weights, a scalar in nats."""
    return tf.add_n([weight.kl_divergence() for weight in self.gaussian_weights])

  def add_gaussian_weight(
    self, name: str, shape: tuple[int, ...], initializer: Callable[..., tf.Tensor]
  ) -> GaussianWeight:
    """A new Bayesian weight; keep it as an attribute of the layer. Call from `build`.

    Args:
      name: Name within the layer.
      shape: Shape of the weight.
      initializer: Keras initializer of the means.
    """
    return GaussianWeight(
      self,
      name,
      shape,
      initializer=initializer,
      initial_scale=self.initial_scale,
      prior=self.prior,
      kl_weight=self.kl_weight,
    )

  def build(self, input_shape: Any) -> None:
    """Adds the counter of draws; subclasses add their weights first."""
    self._draws = self.add_weight(
      name='draws',
      shape=(),
      dtype='int64',
      initializer='zeros',
      trainable=False,
      **NO_AUTOCAST,
    )
    self.built = True

  def is_sampling(self, training: bool | None) -> bool:
    """Whether a call with `training` samples the weights.

    Raises:
      TypeError: `training` is a symbolic tensor.
    """
    forced = noise.forced_sampling()
    if forced is not None:
      return forced
    if tf.is_tensor(training):
      training = tf.get_static_value(training)
      if training is None:
        raise TypeError(f'{self.name}: training must be a Python bool, not a symbolic tensor.')
    return bool(training) or self.sample_at_inference

  def draw_seeds(self, count: int) -> list[tf.Tensor]:
    """Seeds, integer [2], of the next `count` draws of this layer."""
    seeds = [noise.next_seed() for _ in range(count)]
    if seeds[0] is not None:
      return seeds
    first = tf.convert_to_tensor(self._draws)
    self._draws.assign_add(count)
    return [tf.stack([tf.constant(self._base_seed, tf.int64), first + i]) for i in range(count)]

  def get_config(self) -> dict[str, Any]:
    """Constructor arguments as plain JSON.

    Raises:
      ValueError: A prior callable that is not registered with Keras.
    """
    return super().get_config() | {
      'prior': serialize_prior(self.prior),
      'initial_scale': self.initial_scale,
      'kl_weight': self.kl_weight,
      'seed': self.seed,
      'sample_at_inference': self.sample_at_inference,
    }


def validate_size(name: str, value: int) -> int:
  """`value` as a positive int, or ValueError."""
  if isinstance(value, bool) or int(value) != value or value < 1:
    raise ValueError(f'{name} must be a positive integer. Received: {name}={value!r}')
  return int(value)


def _validate_initial_scale(value: float) -> float:
  if not MIN_SCALE <= value <= MAX_SCALE:
    raise ValueError(
      f'initial_scale must lie in [{MIN_SCALE}, {MAX_SCALE}]. Received: initial_scale={value}'
    )
  return float(value)


def _validate_kl_weight(value: float | None) -> float | None:
  if value is None:
    return None
  if not (math.isfinite(value) and value >= 0):
    raise ValueError(f'kl_weight must be finite and >= 0. Received: kl_weight={value}')
  return float(value)
