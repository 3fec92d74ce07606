"""Training and evaluation on one client, shared by every algorithm.

A client's data are whole tensors with a leading axis of n examples. Batches are
gathered by shuffled index in a while loop: no input pipeline, no retracing per
client or batch size. Everything here runs inside a `tf.function`.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import modelling, seeds

EVALUATION_BATCH = 128

Batch: TypeAlias = dict[str, Any]
GradientsFn: TypeAlias = Callable[[Batch, tf.Tensor], tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]]
StepFn: TypeAlias = Callable[[Batch, tf.Tensor, Any], tuple[Any, tf.Tensor, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class LocalTraining:
  """How a client trains in one round.

  Attributes:
    optimizer: A TFF optimizer; every client starts a round with fresh slots.
    epochs: Passes E over the client's data, ≥ 0.
    batch_size: Examples per step, ≥ 1; the last, shorter batch of a pass is used too.
    clip_norm: Gradients with a larger global norm are scaled to it; None never does.
  """

  optimizer: tff.learning.optimizers.Optimizer
  epochs: int
  batch_size: int
  clip_norm: float | None = None

  def __post_init__(self):
    if not isinstance(self.optimizer, tff.learning.optimizers.Optimizer):
      raise TypeError(
        'optimizer must be one of tff.learning.optimizers: it is a recipe, so each client gets '
        f'slots of its own. Received: optimizer={self.optimizer!r}'
      )
    for name, low in (('epochs', 0), ('batch_size', 1)):
      value = getattr(self, name)
      if not is_integer(value, low):
        raise ValueError(f'{name} must be an integer ≥ {low}. Received: {name}={value!r}')
    clip = self.clip_norm
    if clip is not None and not (math.isfinite(clip) and clip > 0):
      raise ValueError(f'clip_norm must be positive and finite. Received: clip_norm={clip!r}')
    state = self.optimizer.initialize([tf.TensorSpec([], tf.float32)])
    rates = self.optimizer.get_hparams(state)
    if not all(math.isfinite(float(rate)) for rate in rates.values()):
      raise ValueError(f"The optimizer's numbers must be finite. Received: {dict(rates)}")


def is_integer(value: object, low: int) -> bool:
  """Whether a hyper-parameter is an integer, of numpy's too but no bool, and at least `low`."""
  return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= low


def extra_passes(training: LocalTraining, **epochs: int) -> LocalTraining | None:
  """The same training for another number of passes, given by name; None for 0 of them."""
  ((name, value),) = epochs.items()
  if not is_integer(value, 0):
    raise ValueError(f'{name} must be an integer ≥ 0. Received: {name}={value!r}')
  return dataclasses.replace(training, epochs=value) if value else None


class LocalResult(NamedTuple):
  """What one client's training added up to.

  Attributes:
    loss: float32, mean loss per target over all steps, NaN without a step.
    num_steps: int32, gradient steps taken.
  """

  loss: tf.Tensor
  num_steps: tf.Tensor


def num_rows(data: Batch) -> tf.Tensor:
  """Number of examples n of a client's data, int32."""
  return tf.shape(tf.nest.flatten(data)[0])[0]


def num_targets(loss_fn: modelling.LossFn, data: Batch, per_example: int) -> tf.Tensor:
  """Sum of the weights of all targets: for masked text its characters; float32.

  Args:
    loss_fn: Per-target losses; its `weights`, if it has them, are summed.
    data: `{'x', 'y'}`, whole-client tensors.
    per_example: Targets of an example where there are no weights, see `ModelSpec`.
  """
  weigh = getattr(loss_fn, 'weights', None)
  if weigh is not None:
    return tf.reduce_sum(tf.cast(weigh(data['y']), tf.float32))
  return tf.cast(per_example * num_rows(data), tf.float32)


def train(
  data: Batch,
  gradients_fn: GradientsFn,
  variables: list[tf.Variable],
  settings: LocalTraining,
  seed: tf.Tensor,
  adjust: Callable[[list[tf.Tensor], list[tf.Tensor]], list[tf.Tensor]] | None = None,
) -> LocalResult:
  """Runs the local steps of one round on `variables`.

  Args:
    data: `{'x', 'y'}`, whole-client tensors.
    gradients_fn: `(batch, step_seed) -> (gradients, loss_sum, weight_sum)`; one
      gradient per variable, sums over the batch's targets.
    variables: What is trained, in the gradients' order.
    settings: Optimizer, epochs, batch size, clipping.
    seed: int32[2] of this client in this round.
    adjust: `(old values, proposed values) -> new values` after each optimizer step.

  Returns:
    The `LocalResult`.
  """
  step = optimizer_step(gradients_fn, variables, settings, adjust)
  _, result = run_steps(data, step, initial_slots(settings.optimizer, variables), settings, seed)
  return result


def optimizer_step(
  gradients_fn: GradientsFn,
  variables: list[tf.Variable],
  settings: LocalTraining,
  adjust: Callable[[list[tf.Tensor], list[tf.Tensor]], list[tf.Tensor]] | None = None,
) -> StepFn:
  """One step of the optimizer on variables, for `run_steps`; its state are the slots."""

  def step(batch, step_seed, slots):
    gradients, loss_sum, weight_sum = gradients_fn(batch, step_seed)
    gradients = clipped(gradients, settings.clip_norm)
    old = [v.read_value() for v in variables]
    slots, new = settings.optimizer.next(slots, old, gradients)
    for variable, value in zip(variables, adjust(old, new) if adjust else new, strict=True):
      variable.assign(value)
    return slots, loss_sum, weight_sum

  return step


def initial_slots(optimizer: tff.learning.optimizers.Optimizer, values: list[Any]) -> Any:
  """A TFF optimizer's fresh state for tensors or variables like `values`."""
  specs = [tf.TensorSpec(v.shape, v.dtype) for v in values]
  return tf.nest.map_structure(tf.convert_to_tensor, optimizer.initialize(specs))


def clipped(gradients: list[tf.Tensor], clip_norm: float | None) -> list[tf.Tensor]:
  """The gradients, scaled to the global norm `clip_norm` if theirs is larger."""
  return gradients if clip_norm is None else tf.clip_by_global_norm(gradients, clip_norm)[0]


def run_steps(
  data: Batch, step_fn: StepFn, state: Any, settings: LocalTraining, seed: tf.Tensor
) -> tuple[Any, LocalResult]:
  """Runs the local steps of one round on a state of tensors; `train` is one way of stepping.

  Args:
    data: `{'x', 'y'}`, whole-client tensors.
    step_fn: `(batch, step_seed, state) -> (state, loss_sum, weight_sum)`; sums over the
      batch's targets. It may set variables as well.
    state: Nested tensors of fixed shapes.
    settings: Epochs and batch size.
    seed: int32[2] of this client in this round.

  Returns:
    The last state and the `LocalResult`.
  """
  n = num_rows(data)
  shuffle_seed, noise_seed = seeds.fold(seed, 0), seeds.fold(seed, 1)

  def step(order, start, state, loss_sum, weight_sum, count):
    rows = order[start : start + settings.batch_size]
    batch = tf.nest.map_structure(lambda t: tf.gather(t, rows), data)
    state, loss, weight = step_fn(batch, seeds.fold(noise_seed, count), state)
    return start + settings.batch_size, state, loss_sum + loss, weight_sum + weight, count + 1

  def epoch(index, *state):
    order = tf.random.experimental.stateless_shuffle(
      tf.range(n), seeds.fold(shuffle_seed, index), alg='philox'
    )
    _, *state = tf.while_loop(
      lambda start, *_: start < n,
      lambda start, *s: step(order, start, *s),
      (0, *state),
      parallel_iterations=1,
    )
    return index + 1, *state

  _, state, loss_sum, weight_sum, count = tf.while_loop(
    lambda index, *_: index < settings.epochs, epoch, (0, state, 0.0, 0.0, 0), parallel_iterations=1
  )
  return state, LocalResult(loss_sum / weight_sum, count)


def model_gradients(
  bound: modelling.BoundModel,
  loss_fn: modelling.LossFn,
  batch: Batch,
  seed: tf.Tensor,
  variables: list[tf.Variable] | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
  """Gradient of a batch's objective.

  Args:
    bound: The model.
    loss_fn: Per-target losses.
    batch: `{'x', 'y'}`.
    seed: int32[2] for dropout and weight noise.
    variables: What to differentiate for; default all trainable variables.

  Returns:
    `(gradients, loss_sum, weight_sum)`; variables that the loss does not reach get
    zeros. The sums are those of the data term alone.
  """
  with tf.GradientTape() as tape:
    value, loss_sum, weight_sum = objective(bound, loss_fn, batch, seed)
  gradients = tape.gradient(
    value,
    bound.trainable if variables is None else variables,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  return [tf.convert_to_tensor(g) for g in gradients], loss_sum, weight_sum


def objective(
  bound: modelling.BoundModel, loss_fn: modelling.LossFn, batch: Batch, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """What a step lowers: a batch's mean loss, plus the model's own regularisers.

  Args:
    bound: The model.
    loss_fn: Per-target losses.
    batch: `{'x', 'y'}`.
    seed: int32[2] for dropout and weight noise.

  Returns:
    `(objective, loss_sum, weight_sum)`, float32; the sums are those of the data term alone.
  """
  with seeds.keras_randomness(seed):
    prediction = bound.model(batch['x'], training=True)
    losses, weights = modelling.per_target_losses(loss_fn, batch['y'], prediction)
    if weights is None:
      loss_sum, weight_sum = tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32)
    else:
      loss_sum, weight_sum = tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
    value = tf.math.divide_no_nan(loss_sum, weight_sum)
    if bound.model.losses:
      value += tf.add_n([tf.cast(loss, tf.float32) for loss in bound.model.losses])
  return value, loss_sum, weight_sum


def evaluate_model(
  model: Callable[..., Any],
  metrics: list[tf.keras.metrics.Metric],
  loss_fn: modelling.LossFn,
  data: Batch,
) -> dict[str, tf.Tensor]:
  """`evaluate` of a Keras model in inference mode."""
  return evaluate(lambda x, _: model(x, training=False), metrics, loss_fn, data)


def evaluate(
  predict: Callable[[Any, tf.Tensor], Any],
  metrics: list[tf.keras.metrics.Metric],
  loss_fn: modelling.LossFn,
  data: Batch,
) -> dict[str, tf.Tensor]:
  """Loss and metrics of `predict` on all of a client's data, per target.

  Args:
    predict: Maps a batch's x and the batch's number to predictions; the number lets
      noise differ between batches.
    metrics: Keras metrics created in this graph; reset here.
    loss_fn: Per-target losses.
    data: `{'x', 'y'}`, whole-client tensors.

  Returns:
    `loss` and each metric by name (float32, NaN where there is no target),
    `num_examples` (int32) and `num_targets` (float32).
  """
  n = num_rows(data)
  for metric in metrics:
    metric.reset_state()

  def step(start, loss_sum, weight_sum):
    batch = tf.nest.map_structure(lambda t: t[start : start + EVALUATION_BATCH], data)
    prediction = predict(batch['x'], start // EVALUATION_BATCH)
    losses, weights = modelling.per_target_losses(loss_fn, batch['y'], prediction)
    weights = tf.ones_like(losses) if weights is None else weights
    for metric in metrics:
      metric.update_state(batch['y'], prediction, sample_weight=weights)
    return (
      start + EVALUATION_BATCH,
      loss_sum + tf.reduce_sum(losses * weights),
      weight_sum + tf.reduce_sum(weights),
    )

  _, loss_sum, weight_sum = tf.while_loop(
    lambda start, *_: start < n, step, (0, 0.0, 0.0), parallel_iterations=1
  )
  results = {'loss': loss_sum / weight_sum}
  for metric in metrics:
    value = tf.cast(metric.result(), tf.float32)
    results[metric.name] = tf.where(weight_sum > 0, value, float('nan'))
  return {**results, 'num_examples': n, 'num_targets': weight_sum}


def all_finite(values: Any) -> tf.Tensor:
  """Whether every float in a nested structure is finite, bool scalar."""
  floats = [t for t in tf.nest.flatten(values) if t.dtype.is_floating]
  return tf.reduce_all([tf.reduce_all(tf.math.is_finite(t)) for t in floats])


def choose(condition: tf.Tensor, if_true: Any, if_false: Any) -> Any:
  """One of two equal structures as a whole, by a scalar condition."""
  return tf.nest.map_structure(lambda a, b: tf.where(condition, a, b), if_true, if_false)


def num_bytes(values: Any) -> int:
  """Size of a nested structure of tensors with static shapes."""
  return sum(t.shape.num_elements() * t.dtype.size for t in tf.nest.flatten(values))
