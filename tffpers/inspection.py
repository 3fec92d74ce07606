"""Checks of a user's model, loss and metrics, once, before anything is traced."""

import hashlib
import json
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import modelling, seeds

# Any small number that is not 1 shows what broadcasts against what.
_BATCH = 7
_STATEFUL_NOISE = {
  'Multinomial',
  'ParameterizedTruncatedNormal',
  'RandomGammaV2',
  'RandomPoissonV2',
  'RandomShuffle',
  'RandomStandardNormal',
  'RandomUniform',
  'RandomUniformInt',
  'RngReadAndSkip',
  'StatefulRandomBinomial',
  'StatefulStandardNormalV2',
  'StatefulUniform',
  'StatefulUniformInt',
  'TruncatedNormal',
}


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
  _check_new_each_time(model_fn)
  with tf.Graph().as_default() as graph:
    with seeds.keras_randomness(tf.constant([0, 0])):
      model = modelling.build_model(model_fn, element_spec)
    _check_layers(model, graph)
    weights = modelling.ModelWeights(
      *(
        [tf.TensorSpec(v.shape, v.dtype) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
      )
    )
    call = _call(model, loss_fn, metrics_fn, element_spec)
    fingerprint = _fingerprint(model, call.metric_names)
  if not weights.trainable:
    raise ValueError(
      'The model has no trainable variables, so there is nothing to learn. '
      f'Received: model={model.name!r} with {len(weights.non_trainable)} other variables'
    )
  return modelling.ModelSpec(
    model_fn,
    loss_fn,
    metrics_fn,
    element_spec,
    weights,
    call.targets_per_example,
    call.prediction_shape,
    fingerprint,
  )


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
  if getattr(loss_fn, '_fn_kwargs', {}).get('ignore_class') is not None:
    raise ValueError(
      'ignore_class would count ignored targets with loss 0; tffpers.losses.MaskedCrossEntropy('
      f'mask_value=…) gives them no weight. Received: loss_fn={loss_fn.name!r} with ignore_class'
    )
  if not callable(metrics_fn):
    raise TypeError(
      'metrics_fn must be a function without arguments that returns a list of metrics, such as '
      '`lambda: [tf.keras.metrics.SparseCategoricalAccuracy("accuracy")]`. '
      f'Received: metrics_fn={metrics_fn!r}'
    )


def _check_new_each_time(model_fn: Callable[[], tf.keras.Model]) -> None:
  models = []
  for _ in range(2):
    with tf.Graph().as_default():
      models.append(model_fn())
  if models[0] is models[1]:
    raise TypeError(
      'model_fn must build a new model at each call: clients would share variables otherwise. '
      f'Received: the same object twice, {models[0]!r}'
    )


class _Call(NamedTuple):
  """What a call on a symbolic batch showed."""

  metric_names: list[str]
  targets_per_example: int
  prediction_shape: tuple[int | None, ...] | None


def _call(
  model: tf.keras.Model,
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
) -> _Call:
  """Calls model, loss and metrics on a symbolic batch of _BATCH examples."""
  x, y = tf.nest.map_structure(
    lambda s: tf.compat.v1.placeholder(s.dtype, [_BATCH, *s.shape]), element_spec
  )
  given = metrics_fn()
  if {id(m) for m in given if isinstance(m, tf.keras.metrics.Metric)} & set(map(id, metrics_fn())):
    raise TypeError('metrics_fn must make new metrics at each call. Received: the same one twice')
  metrics = modelling.as_keras_metrics(given)
  what = 'the model'
  try:
    prediction = model(x, training=False)
    what = 'loss_fn'
    _check_alignment(y, prediction)
    losses, weights = modelling.per_target_losses(loss_fn, y, prediction)
    for metric, keras_metric in zip(given, metrics, strict=True):
      what = f'the metric {keras_metric.name!r}'
      if metric is not keras_metric and metric(y, prediction).shape.rank == 0:
        raise ValueError('it must return one value per target. Received: a scalar')
      keras_metric.update_state(y, prediction, sample_weight=weights)
  except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
    raise ValueError(
      f'A batch of element_spec={element_spec!r} does not fit {what}: {error}'
    ) from error
  if losses.shape.rank is None or losses.shape[0] != _BATCH or None in losses.shape[1:]:
    raise ValueError(
      'loss_fn must return one loss per target, [batch] or [batch, time], time being fixed. '
      f'Received: losses of shape {losses.shape} for {_BATCH} examples'
    )
  _warn_of_stateful_noise(model, x)
  single = isinstance(prediction, tf.Tensor)
  return _Call(
    [metric.name for metric in metrics],
    losses.shape[1:].num_elements(),
    tuple(prediction.shape[1:]) if single else None,
  )


def _check_alignment(y: Any, prediction: Any) -> None:
  """Targets [b] beside predictions [b, 1] would broadcast to [b, b] in most losses."""
  if isinstance(y, tf.Tensor) and isinstance(prediction, tf.Tensor):
    shapes = y.shape[1:], prediction.shape[1:]
    if shapes[0].rank == 0 and shapes[1].rank == 1 and shapes[1][0] == 1:
      raise ValueError(
        'targets without axes and predictions of shape [1] would broadcast against each other; '
        'give y the shape [n, 1], or let the model return one number per example'
      )


def _check_layers(model: tf.keras.Model, graph: tf.Graph) -> None:
  """Refuses, or warns of, what a model does that a computation could not repeat."""
  for layer in model._flatten_layers():
    if getattr(layer, 'stateful', False) and isinstance(layer, tf.keras.layers.RNN):
      raise ValueError(
        'A stateful recurrent layer would carry the state of one client’s sequences to another’s. '
        f'Received: stateful layer {layer.name!r}'
      )
    if getattr(layer, 'activity_regularizer', None) is not None or (
      getattr(layer, '_is_graph_network', False) and layer._losses
    ):
      raise ValueError(
        'Losses of activations (activity_regularizer, add_loss of a tensor) belong to one symbolic '
        'input and cannot be repeated on a batch; regularise weights, or add_loss a callable. '
        f'Received: layer {layer.name!r}'
      )
  # Also of variables that are not the model's: it may have been cut out of another one.
  made = [*model.variables, *graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)]
  initial = {v.initializer.name for v in made}
  assigned = [
    op.name
    for op in graph.get_operations()
    if op.type == 'AssignVariableOp' and op.name not in initial
  ]
  if assigned:
    raise ValueError(
      'model_fn sets weights of a model that is built already, which a computation does not see; '
      'give them as initial values, for instance with tf.keras.initializers.Constant. '
      f'Received: model={model.name!r}, {assigned[:3]}'
    )


def _warn_of_stateful_noise(model: tf.keras.Model, x: Any) -> None:
  """A run repeats bit for bit only if all noise comes from its seed."""
  with seeds.keras_randomness(tf.constant([0, 0])):
    model(x, training=True)
  definition = tf.compat.v1.get_default_graph().as_graph_def()
  nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
  found = sorted({node.op for node in nodes} & _STATEFUL_NOISE)
  if found:
    warnings.warn(
      'The model draws noise from TensorFlow’s stateful operators, which no seed of a run reaches: '
      f'runs will not repeat. Received: model={model.name!r} with operators {found}',
      stacklevel=4,
    )


def _fingerprint(model: tf.keras.Model, metric_names: list[str]) -> str:
  """A hash of what a resumed run must find unchanged."""
  try:
    with warnings.catch_warnings():
      # Keras warns of parts it cannot write down; here they are only told apart by type.
      warnings.simplefilter('ignore')
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
