"""What TFF's federated reconstruction runs on a client: a model, its batches, their seeds.

TFF's client work gets a data set and nothing else, and draws the personal variables by
Keras' own initialisers, which no seed of a run reaches. So a client's data set has one element
here, `whole_client`: all its examples, a seed, and the initial values of its personal
variables as drawn from that seed. `ClientWork` turns it into the batches that the
client would train on in any other algorithm of tffpers.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling, seeds
from tffpers import keras as tffpers_keras
from tffpers.algorithms import fed_per


def personal_start(
  spec: modelling.ModelSpec, split: tffpers_keras.Partition, seed: tf.Tensor
) -> modelling.ModelWeights:
  """Initial values of the personal variables, drawn from a client's seed for a round."""
  drawn = modelling.bind(spec, seed).initial
  return modelling.ModelWeights(
    split.split(drawn.trainable)[1], split.split_non_trainable(drawn.non_trainable)[1]
  )


def whole_client(
  spec: modelling.ModelSpec, split: tffpers_keras.Partition, data: dict[str, Any]
) -> tf.data.Dataset:
  """The data set of one element that stands for a client in a round.

  Args:
    spec: The user's model.
    split: Its partition.
    data: `{'train': {'x', 'y'}, 'seed'}`.
  """
  start = personal_start(spec, split, data['seed'])
  # `tf.data` would stack lists.
  return tf.data.Dataset.from_tensors(
    {'seed': data['seed'], 'start': tuple(tf.nest.flatten(start)), **data['train']}
  )


class _BatchOutput(NamedTuple):
  """What TFF reads of a forward pass; its own class of that form is not public."""

  predictions: tf.Tensor
  labels: tf.Tensor
  num_examples: tf.Tensor


class SeededModel(tff.learning.models.ReconstructionModel):
  """The user's model for TFF's client work.

  A forward pass gives the objective of a step, regularisers included, in the place of
  predictions, for the loss `Given`: TFF's loop knows neither weights of targets nor
  regularisers, and its loss metric turns integer targets into floats.

  Args:
    spec: The user's model.
    split: Its partition.
  """

  def __init__(self, spec: modelling.ModelSpec, split: tffpers_keras.Partition):
    self._spec = spec
    self._bound = modelling.bind(spec)
    self._trainable = split.split(self._bound.trainable)
    self._non_trainable = split.split_non_trainable(self._bound.non_trainable)

  @property
  def global_trainable_variables(self) -> list[tf.Variable]:
    return self._trainable[0]

  @property
  def global_non_trainable_variables(self) -> list[tf.Variable]:
    return self._non_trainable[0]

  @property
  def local_trainable_variables(self) -> list[tf.Variable]:
    return self._trainable[1]

  @property
  def local_non_trainable_variables(self) -> list[tf.Variable]:
    return self._non_trainable[1]

  @property
  def input_spec(self) -> dict[str, Any]:
    """Of `whole_client`; batches have the same without `start`."""
    start = [*self.local_trainable_variables, *self.local_non_trainable_variables]
    return {
      'seed': seeds.SEED_SPEC,
      'start': tuple(tf.TensorSpec(v.shape, v.dtype) for v in start),
      **self._spec.data_spec,
    }

  def forward_pass(self, batch_input: dict[str, Any], training: bool = True) -> _BatchOutput:
    """The objective of a batch, [1]."""
    del training  # TFF's client work only trains.
    batch = {'x': batch_input['x'], 'y': batch_input['y']}
    objective, _, _ = client_loop.objective(
      self._bound, self._spec.loss_fn, batch, batch_input['seed']
    )
    return _BatchOutput(objective[tf.newaxis], tf.zeros([1]), client_loop.num_rows(batch))

  def start(self, values: tuple[tf.Tensor, ...]) -> None:
    """Sets the personal variables."""
    personal = [*self.local_trainable_variables, *self.local_non_trainable_variables]
    for variable, value in zip(personal, values, strict=True):
      variable.assign(value)


class Given(tf.keras.losses.Loss):
  """The mean of the losses that come as predictions."""

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """`y_pred`; there is nothing to compare it with."""
    del y_true
    return y_pred


@dataclasses.dataclass
class ClientWork:
  """The two functions that TFF's client work calls in a trace: first for its model, then
  for its data, which is the moment to give that model its seed's initial values.

  Attributes:
    spec: The user's model.
    split: Its partition.
    training: How the shared variables are trained.
    reconstruction: How the personal ones are, before that.
  """

  spec: modelling.ModelSpec
  split: tffpers_keras.Partition
  training: client_loop.LocalTraining
  reconstruction: client_loop.LocalTraining
  _latest: SeededModel | None = None

  def model_fn(self) -> SeededModel:
    """A new model."""
    self._latest = SeededModel(self.spec, self.split)
    return self._latest

  def dataset_split_fn(self, dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Batches for the reconstruction and for the training after it."""
    model, self._latest = self._latest, None
    assert model is not None, 'TFF asks for a model before each trace of the data'
    client = dataset.get_single_element()
    model.start(client['start'])
    return (
      batches(client, self.reconstruction, seeds.fold(client['seed'], fed_per.HEAD)),
      batches(client, self.training, client['seed']),
    )


def batches(
  client: dict[str, Any], settings: client_loop.LocalTraining, seed: tf.Tensor
) -> tf.data.Dataset:
  """The batches that `client_loop.train` would take, each with the seed of its step."""
  data = {'x': client['x'], 'y': client['y']}
  shuffle_seed, noise_seed = seeds.fold(seed, 0), seeds.fold(seed, 1)

  def epoch(index):
    order = tf.random.experimental.stateless_shuffle(
      tf.range(client_loop.num_rows(data)), seeds.fold(shuffle_seed, index), alg='philox'
    )
    return tf.data.Dataset.from_tensor_slices(order).batch(settings.batch_size)

  def batch(count, rows):
    gathered = tf.nest.map_structure(lambda t: tf.gather(t, rows), data)
    return {**gathered, 'seed': seeds.fold(noise_seed, tf.cast(count, tf.int32))}

  passes = tf.data.Dataset.range(settings.epochs, output_type=tf.int32)
  return passes.flat_map(epoch).enumerate().map(batch)


class ClippedOptimizer(tff.learning.optimizers.Optimizer):
  """An optimizer that scales gradients of a larger global norm than `clip_norm` to it."""

  def __init__(self, optimizer: tff.learning.optimizers.Optimizer, clip_norm: float):
    self._optimizer = optimizer
    self._clip_norm = clip_norm

  def initialize(self, specs: Any) -> Any:
    """The optimizer's own state."""
    return self._optimizer.initialize(specs)

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    """A step with clipped gradients; None, for a variable that was not reached, stays None."""
    clipped, _ = tf.clip_by_global_norm(list(gradients), self._clip_norm)
    return self._optimizer.next(state, weights, type(gradients)(clipped))


def optimizer_of(settings: client_loop.LocalTraining) -> tff.learning.optimizers.Optimizer:
  """The optimizer of a training, clipping included."""
  if settings.clip_norm is None:
    return settings.optimizer
  return ClippedOptimizer(settings.optimizer, settings.clip_norm)
