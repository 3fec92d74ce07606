"""A Keras model inside a TFF computation.

`bind` builds the model inside the graph of a computation and hands out its variables
in a fixed order, keyed by position, never by Keras' automatic names.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tffpers import seeds

LossFn: TypeAlias = Callable[[Any, Any], tf.Tensor]
Metric: TypeAlias = tf.keras.metrics.Metric | Callable[[Any, Any], tf.Tensor]


class ModelWeights(NamedTuple):
  """Values of a model's variables in the model's own order.

  Attributes:
    trainable: One tensor per trainable variable.
    non_trainable: One tensor per other variable (batch-norm statistics, counters).
  """

  trainable: list[tf.Tensor]
  non_trainable: list[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """What a builder knows about the user's model before anything runs.

  Attributes:
    model_fn: Returns a new Keras model at each call.
    loss_fn: Per-target losses, see `per_target_losses`.
    metrics_fn: Returns Keras metrics or plain functions `(y, prediction) -> values`.
    element_spec: `(x, y)` specs of one example, without the leading axis.
    weights: `ModelWeights` of `tf.TensorSpec`.
    targets_per_example: Losses that one example gives, 1 or a sequence's length.
    prediction_shape: Shape of a prediction without the batch; None where there are several.
    fingerprint: Changes with the model's architecture and the metrics' names, not from
      process to process.
  """

  model_fn: Callable[[], tf.keras.Model]
  loss_fn: LossFn
  metrics_fn: Callable[[], list[Metric]]
  element_spec: tuple[Any, Any]
  weights: ModelWeights
  targets_per_example: int
  prediction_shape: tuple[int | None, ...] | None
  fingerprint: str

  @property
  def data_spec(self) -> dict[str, Any]:
    """Specs of a whole client's `{'x', 'y'}` with a leading axis of any length."""
    x, y = tf.nest.map_structure(
      lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), self.element_spec
    )
    return {'x': x, 'y': y}


@dataclasses.dataclass(frozen=True)
class BoundModel:
  """A model whose variables live in the current graph.

  Attributes:
    model: The Keras model.
    trainable: Its trainable variables.
    non_trainable: Its other variables.
    initial: Their initial values, drawn from the seed given to `bind`; empty if none was.
    seed: That seed; None if none was given.
  """

  model: tf.keras.Model
  trainable: list[tf.Variable]
  non_trainable: list[tf.Variable]
  initial: ModelWeights
  seed: tf.Tensor | None = None

  def initial_value(self, variable: tf.Variable) -> tf.Tensor:
    """What a trainable variable starts with under the seed given to `bind`."""
    for candidate, value in zip(self.trainable, self.initial.trainable, strict=False):
      if candidate is variable:
        return value
    raise ValueError(f'{variable.name} is no trainable variable of {self.model.name} with a seed')

  def assign(self, weights: ModelWeights) -> None:
    """Sets all variables."""
    assign_all(self.trainable, weights.trainable)
    assign_all(self.non_trainable, weights.non_trainable)

  def read(self) -> ModelWeights:
    """Values of all variables."""
    return ModelWeights(
      [v.read_value() for v in self.trainable], [v.read_value() for v in self.non_trainable]
    )


def bind(spec: ModelSpec, seed: tf.Tensor | None = None) -> BoundModel:
  """Builds the model in the current TFF graph.

  Args:
    spec: From `inspection.inspect_model`.
    seed: int32[2] for the initial values. Without it no initial value is drawn:
      the variables start at zero and are to be assigned.

  Returns:
    The `BoundModel`.
  """
  values: dict[Any, tf.Tensor] = {}
  randomness = seeds.keras_randomness(tf.constant([0, 0]) if seed is None else seed)
  with randomness, _captured_initial_values(values, draw=seed is not None):
    model = build_model(spec.model_fn, spec.element_spec)
  trainable, non_trainable = model.trainable_variables, model.non_trainable_variables
  initial = ModelWeights(
    *(
      [values[id(_handle(v))] for v in group if seed is not None]
      for group in (trainable, non_trainable)
    )
  )
  return BoundModel(model, trainable, non_trainable, initial, seed)


def assign_all(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
  """Sets variables one by one."""
  for variable, value in zip(variables, values, strict=True):
    variable.assign(value)


def build_model(
  model_fn: Callable[[], tf.keras.Model], element_spec: tuple[Any, Any]
) -> tf.keras.Model:
  """A built model in the current graph, or TypeError for anything but a Keras model."""
  model = model_fn()
  if not isinstance(model, tf.keras.Model):
    raise TypeError(f'model_fn must return a tf.keras.Model. Received: {type(model).__name__}')
  if not model.built:
    # A subclassed model has no variables, hence nothing to train, until it is called.
    model(
      tf.nest.map_structure(lambda s: tf.zeros([1, *s.shape], s.dtype), element_spec[0]),
      training=False,
    )
  return model


def per_target_losses(
  loss_fn: LossFn, y: Any, prediction: Any
) -> tuple[tf.Tensor, tf.Tensor | None]:
  """Losses and weights of every target of a batch, unreduced.

  Args:
    loss_fn: A `tf.keras.losses.Loss` (its reduction is not used) or a function that
      returns one loss per target. If it has a method `weights(y)`, that gives each
      target's weight; padding gets weight 0.
    y: Targets of a batch, [b, ...].
    prediction: What the model returned for the batch.

  Returns:
    `(losses, weights)`, float32, of the same shape, [b] or [b, time]; weights are None
    where all count the same.

  Raises:
    ValueError: The loss is already reduced to a scalar.
  """
  call = loss_fn.call if isinstance(loss_fn, tf.keras.losses.Loss) else loss_fn
  losses = tf.cast(call(y, prediction), tf.float32)
  if losses.shape.rank == 0:
    raise ValueError(
      'loss_fn must return one loss per target, so that means over clients and batches can be '
      f'taken per target. Received: a scalar from loss_fn={loss_fn!r}'
    )
  weigh = getattr(loss_fn, 'weights', None)
  return losses, None if weigh is None else tf.cast(weigh(y), tf.float32)


def as_keras_metrics(metrics: list[Metric]) -> list[tf.keras.metrics.Metric]:
  """Keras metrics as they are, plain functions as their weighted mean under their own name.

  Raises:
    TypeError: An entry is neither, or a name occurs twice.
  """
  result = []
  for metric in metrics:
    if not isinstance(metric, tf.keras.metrics.Metric):
      if not callable(metric):
        raise TypeError(
          'metrics_fn must return Keras metrics or functions (y, prediction) -> values. '
          f'Received: {metric!r}'
        )
      metric = tf.keras.metrics.MeanMetricWrapper(metric, name=metric.__name__)
    result.append(metric)
  names = [metric.name for metric in result]
  if len(set(names)) < len(names) or {'loss', 'num_examples', 'num_targets'} & set(names):
    raise TypeError(
      "Metric names must be distinct and other than 'loss', 'num_examples', 'num_targets'. "
      f'Received: names={names}'
    )
  return result


def _handle(variable: tf.Variable) -> Any:
  """What stays the same when Keras wraps a variable, as mixed precision does."""
  return variable.handle


@contextlib.contextmanager
def _captured_initial_values(values: dict[Any, tf.Tensor], *, draw: bool) -> Iterator[None]:
  """Records initial values and starts the variables at zero.

  TFF runs initialisers before a computation has its arguments, so an initial value
  that depends on a seed must be an ordinary tensor; and drawing values that are
  overwritten at once is waste on every client in every round.
  """

  def create(next_creator, **kwargs):
    value = kwargs['initial_value']
    with tf.init_scope():
      value = value() if callable(value) else tf.convert_to_tensor(value)
      kwargs['initial_value'] = tf.zeros(value.shape, value.dtype)
    variable = next_creator(**kwargs)
    if draw:
      values[id(_handle(variable))] = value
    return variable

  with tf.variable_creator_scope(create):
    yield
