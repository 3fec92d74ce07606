"""Local training that stops early and ends with the best weights."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tffpers import client_loop, seeds


@dataclasses.dataclass(frozen=True)
class PersonalTraining:
  """How a client trains a model of its own.

  Attributes:
    training: Optimizer, largest number of epochs, batch size, clipping.
    patience: Epochs without a lower validation loss after which training stops, ≥ 1; None
      takes all epochs and then the best one.
  """

  training: client_loop.LocalTraining
  patience: int | None

  def __post_init__(self):
    value = self.patience
    if value is not None and not client_loop.is_integer(value, 1):
      raise ValueError(
        f'personal_patience must be an integer ≥ 1 or None. Received: personal_patience={value!r}'
      )


class Trained(NamedTuple):
  """What the training came to.

  Attributes:
    validation_loss: float32, of the weights that were kept; NaN without validation data.
    best_epoch: int32, passes after which they were reached; 0 are those at the start.
    num_epochs: int32, passes made.
    num_steps: int32, gradient steps taken.
  """

  validation_loss: tf.Tensor
  best_epoch: tf.Tensor
  num_epochs: tf.Tensor
  num_steps: tf.Tensor


class _Best(NamedTuple):
  values: list[tf.Tensor]
  loss: tf.Tensor
  epoch: tf.Tensor


def train(
  settings: PersonalTraining,
  data: client_loop.Batch,
  gradients_fn: client_loop.GradientsFn,
  trained: list[tf.Variable],
  others: list[tf.Variable],
  validation_loss: Callable[[], tf.Tensor],
  has_validation: tf.Tensor,
  seed: tf.Tensor,
) -> Trained:
  """Trains epoch by epoch; the variables end with a copy of their best values.

  The values at the start count, so the result is no worse than they are. Without validation
  data, and where the loss at the start is no number, all epochs are made and the last finite
  values kept.

  Args:
    settings: How to train.
    data: The client's training data.
    gradients_fn: As for `client_loop.train`.
    trained: Variables in the gradients' order.
    others: Variables that change beside them, such as batch-norm statistics.
    validation_loss: Mean loss of the current values, float32.
    has_validation: bool, whether there is anything to measure it on.
    seed: int32[2].
  """
  one_epoch = dataclasses.replace(settings.training, epochs=1)
  step = client_loop.optimizer_step(gradients_fn, trained, one_epoch)
  variables = [*trained, *others]
  read = lambda: [v.read_value() for v in variables]  # noqa: E731
  loss = validation_loss()
  has_validation = tf.logical_and(has_validation, tf.math.is_finite(loss))
  best = _Best(read(), tf.where(has_validation, loss, float('inf')), tf.constant(0))

  def going(epoch, slots, best, steps):
    del slots, steps
    patient = True if settings.patience is None else epoch - best.epoch < settings.patience
    return tf.logical_and(epoch < settings.training.epochs, patient)

  def run_epoch(epoch, slots, best, steps):
    slots, result = client_loop.run_steps(data, step, slots, one_epoch, seeds.fold(seed, epoch))
    values, loss = read(), validation_loss()
    improved = tf.where(has_validation, loss < best.loss, client_loop.all_finite(values))
    new = client_loop.choose(improved, _Best(values, loss, epoch + 1), best)
    return epoch + 1, slots, new, steps + result.num_steps

  epochs, _, best, steps = tf.while_loop(
    going,
    run_epoch,
    (0, client_loop.initial_slots(one_epoch.optimizer, trained), best, 0),
    parallel_iterations=1,
  )
  for variable, value in zip(variables, best.values, strict=True):
    variable.assign(value)
  return Trained(tf.where(has_validation, best.loss, float('nan')), best.epoch, epochs, steps)
