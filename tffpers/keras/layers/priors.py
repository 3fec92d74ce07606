"""Priors of Bayesian weights: how one is given, checked and saved."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tffpers.keras.backend import keras

Prior = float | str | Callable[[tuple[int, ...], tf.DType], tfd.Normal]


def validate_prior(prior: Prior) -> float | Callable[[tuple[int, ...], tf.DType], tfd.Normal]:
  """The prior as a positive float or a callable.

  Args:
    prior: Scale s of N(0, s²); a callable `(shape, dtype) -> tfd.Normal`; or the
      name under which such a callable is registered with Keras.

  Raises:
    TypeError: None of these.
    ValueError: A scale that is not positive and finite, or an unknown name.
  """
  if isinstance(prior, str):
    return _registered_prior(prior)
  if callable(prior):
    return prior
  if isinstance(prior, bool) or not isinstance(prior, numbers.Real):
    raise TypeError(
      'prior must be the scale of a zero-mean Normal (a number) or a callable '
      f'(shape, dtype) -> tfp.distributions.Normal. Received: prior={prior!r}'
    )
  if not (math.isfinite(prior) and prior > 0):
    raise ValueError(f'The scale of a prior must be positive and finite. Received: prior={prior}')
  return float(prior)


def serialize_prior(prior: float | Callable[..., tfd.Normal]) -> float | str:
  """The prior as plain JSON: a scale, or the registered name of a callable.

  Raises:
    ValueError: A callable that is not registered with Keras.
  """
  if not callable(prior):
    return prior
  name = keras.utils.get_registered_name(prior)
  if not isinstance(name, str) or keras.utils.get_registered_object(name) is not prior:
    raise ValueError(
      'A prior callable can only be saved if it is registered: decorate it with '
      f'keras.utils.register_keras_serializable(package=...). Received: prior={prior!r}'
    )
  return name


def check_prior(prior: Any, path: str, shape: tuple[int, ...], dtype: tf.DType) -> None:
  """Refuses what a prior callable returned for the weight `path`.

  Raises:
    TypeError: Not a Normal, or one of another dtype.
    ValueError: Its shape does not broadcast to `shape`.
  """
  if not isinstance(prior, tfd.Normal):
    raise TypeError(
      f'{path}: a prior callable must return a tfp.distributions.Normal. '
      f'Received: {type(prior).__name__}'
    )
  if prior.dtype != dtype:
    raise TypeError(f'{path}: the prior must have dtype {dtype.name}. Received: {prior.dtype.name}')
  if tf.broadcast_static_shape(prior.batch_shape, tf.TensorShape(shape)) != shape:
    raise ValueError(
      f'{path}: the prior must broadcast to {shape}. Received: shape={prior.batch_shape}'
    )


def _registered_prior(name: str) -> Callable[..., tfd.Normal]:
  found = keras.utils.get_registered_object(name)
  if found is None:
    raise ValueError(
      'Unknown prior: expected the name of a callable registered with Keras before the '
      f'model is loaded. Received: prior={name!r}'
    )
  return found
