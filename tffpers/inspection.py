"""Checks of a user's model, loss and metrics, once, before anything is traced."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tffpers import modelling


def inspect_model(
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
) -> modelling.ModelSpec:
  """Checks a user's model and reads its shapes.

  Args:
    model_fn: Returns a new, uncompiled `tf.keras.Model` at each call.
    loss_fn: A Keras loss or a function of `(y, prediction)`, see `per_target_losses`.
    metrics_fn: Returns a list of Keras metrics or plain functions.
    element_spec: `(x, y)` as nested `tf.TensorSpec` without the leading axis, for
      instance `FederatedDataset.element_spec`.

  Returns:
    The `ModelSpec`.

  Raises:
    TypeError: An argument is no function, `model_fn` returns something other than a
      Keras model or the same model twice, `element_spec` is no pair of specs.
    ValueError: The model has nothing to train, does not take `element_spec`'s x, or
      its predictions do not fit the loss or a metric.
  """
  _check_element_spec(element_spec)
  _check_functions(model_fn, loss_fn, metrics_fn)
  with tf.Graph().as_default():
    model = modelling.build_model(model_fn, element_spec)
    weights = modelling.ModelWeights(
      *(
        [tf.TensorSpec(v.shape, v.dtype) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
      )
    )
    names = _check_call(model, loss_fn, metrics_fn, element_spec)
    fingerprint = _fingerprint(model, names)
  with tf.Graph().as_default():
    if model_fn() is model:
      raise TypeError(
        'model_fn must build a new model at each call: clients would share variables otherwise. '
        f'Received: the same model twice, {model.name!r}'
      )
  if not weights.trainable:
    raise ValueError(
      'The model has no trainable variables, so there is nothing to learn. '
      f'Received: model={model.name!r} with {len(weights.non_trainable)} other variables'
    )
  return modelling.ModelSpec(model_fn, loss_fn, metrics_fn, element_spec, weights, fingerprint)


def _check_functions(model_fn: Any, loss_fn: Any, metrics_fn: Any) -> None:
  if isinstance(model_fn, tf.keras.Model) or not callable(model_fn):
    raise TypeError(
      'model_fn must be a function without arguments that builds a new tf.keras.Model, such as '
      f'`lambda: tffpers.keras.models.mlp()`. Received: model_fn={model_fn!r}'
    )
  if not callable(loss_fn):
    raise TypeError(
      'loss_fn must be a Keras loss object or a function (y, prediction) -> losses, such as '
      '`tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. '
      f'Received: loss_fn={loss_fn!r}'
    )
  if not callable(metrics_fn):
    raise TypeError(
      'metrics_fn must be a function without arguments that returns a list of metrics, such as '
      '`lambda: [tf.keras.metrics.SparseCategoricalAccuracy("accuracy")]`. '
      f'Received: metrics_fn={metrics_fn!r}'
    )


def _check_call(
  model: tf.keras.Model,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
) -> list[str]:
  """Calls model, loss and metrics on a symbolic batch; returns the metrics' names."""
  x, y = tf.nest.map_structure(
    lambda s: tf.compat.v1.placeholder(s.dtype, [None, *s.shape]), element_spec
  )
  metrics = modelling.as_keras_metrics(metrics_fn())
  what = 'the model'
  try:
    prediction = model(x, training=False)
    what = 'loss_fn'
    _, weights = modelling.per_target_losses(loss_fn, y, prediction)
    for metric in metrics:
      what = f'the metric {metric.name!r}'
      metric.update_state(y, prediction, sample_weight=weights)
  except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
    raise ValueError(
      f'A batch of element_spec={element_spec!r} does not fit {what}: {error}'
    ) from error
  return [metric.name for metric in metrics]


def _fingerprint(model: tf.keras.Model, metric_names: list[str]) -> str:
  """A hash of what a resumed run must find unchanged."""
  try:
    config = model.get_config()
  except NotImplementedError:
    # A subclassed model without a configuration is known by its class and variables.
    config = [type(model).__name__, *(v.shape.as_list() for v in model.variables)]
  # Objects without a JSON form are told by their type: an address would differ next time.
  text = json.dumps([config, metric_names], sort_keys=True, default=lambda o: type(o).__name__)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_element_spec(element_spec: Any) -> None:
  pair = isinstance(element_spec, tuple) and len(element_spec) == 2
  if not pair or not all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(element_spec)):
    raise TypeError(
      'element_spec must be a pair (x, y) of tf.TensorSpec for one example. '
      f'Received: element_spec={element_spec!r}'
    )
