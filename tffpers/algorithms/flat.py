"""A model's trainable weights as one vector, so that mixing models is one product."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tffpers import modelling, seeds


def check(spec: modelling.ModelSpec) -> None:
  """ValueError for a model whose trainable weights are not of one dtype."""
  dtypes = sorted({w.dtype.name for w in spec.weights.trainable})
  if len(dtypes) > 1:
    raise ValueError(
      'Models are mixed as vectors, so all trainable weights need one dtype. '
      f'Received: a model with dtypes {dtypes}'
    )


def join(values: Sequence[tf.Tensor]) -> tf.Tensor:
  """Tensors as one vector [d], in their order."""
  return tf.concat([tf.reshape(v, [-1]) for v in values], 0)


def split(vector: tf.Tensor, like: Sequence[Any]) -> list[tf.Tensor]:
  """The inverse of `join` for tensors, variables or specs `like` those joined."""
  sizes = [tf.TensorShape(v.shape).num_elements() for v in like]
  parts = tf.split(vector, sizes)
  return [tf.reshape(part, v.shape) for part, v in zip(parts, like, strict=True)]


def assign(variables: Sequence[tf.Variable], vector: tf.Tensor) -> None:
  """Sets variables from a vector [d]."""
  modelling.assign_all(variables, split(vector, variables))


def mixed(weights: tf.Tensor, models: tf.Tensor) -> tf.Tensor:
  """Σ_j weights_j models_j, [d], of weights [N] and models [N, d]."""
  return tf.squeeze(tf.matmul(weights[tf.newaxis], models), 0)


def initial_model(spec: modelling.ModelSpec, seed: tf.Tensor, place: int | tf.Tensor) -> tf.Tensor:
  """An initial model drawn for a place, independent of those of other places.

  Args:
    spec: The model.
    seed: int32[2]; whoever knows it draws the same model.
    place: Which of the models.

  Returns:
    [d].
  """
  return join(modelling.bind(spec, seeds.fold(seed, place)).initial.trainable)


def initial_models(spec: modelling.ModelSpec, seed: tf.Tensor, count: int) -> tf.Tensor:
  """The initial models of the places from 0 to `count` − 1, [count, d]."""
  return tf.stack([initial_model(spec, seed, i) for i in range(count)])
