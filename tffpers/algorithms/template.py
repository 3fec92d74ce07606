"""What an algorithm is: plain functions of tensors, and the values they exchange.

An `Algorithm` is what its paper says, written as TensorFlow functions; `placement.build`
gives their values placements. All an algorithm sends up is an `Update`: its `value` goes
through the aggregator, its `weight` and `nonfinite` are summed, and so are the clients and
those with data. No other path leads from CLIENTS to SERVER.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling, seeds

SEED = tff.types.tensorflow_to_type(seeds.SEED_SPEC)


class ClientInfo(NamedTuple):
  """What a client knows before its first round.

  Attributes:
    index: int32, its place among the run's clients.
    num_examples: int32, its training examples.
    seed: int32[2] of its own.
  """

  index: tf.Tensor
  num_examples: tf.Tensor
  seed: tf.Tensor


class ServerState(NamedTuple):
  """State of the server.

  Attributes:
    model: What the algorithm learns at the server.
    aggregator: State of the aggregation process.
    seed: int32[2], the run's: what was drawn at the start can be drawn again.
    round: int32, rounds finished.
  """

  model: Any
  aggregator: Any
  seed: tf.Tensor
  round: tf.Tensor


class Update(NamedTuple):
  """All that leaves a client in a round.

  Attributes:
    value: Nested float tensors for the aggregator.
    weight: float32; 0 withdraws the client.
    nonfinite: int32, 1 if the client's result was not finite and is withheld.
  """

  value: Any
  weight: tf.Tensor
  nonfinite: tf.Tensor


class ClientOutput(NamedTuple):
  """What a client's local training gives.

  Attributes:
    update: `Update`.
    pending: What `finish_client` turns into the client's next state.
    metrics: Mapping of scalars for this client, among them those of `traffic`.
  """

  update: Update
  pending: Any
  metrics: dict[str, tf.Tensor]


class RoundTotals(NamedTuple):
  """What the server learns in a round besides the aggregated value.

  Attributes:
    num_clients: int32, clients of the round.
    weight: float32, sum of the updates' weights.
    num_nonfinite: int32, clients that withheld a non-finite result.
  """

  num_clients: tf.Tensor
  weight: tf.Tensor
  num_nonfinite: tf.Tensor


class Requested(NamedTuple):
  """What a client receives in a round where it may ask for parts of the server's model.

  Attributes:
    message: What every client receives.
    keys: int32[M], the client's request.
    slices: One slice per key, in that order, stacked along a leading axis [M].
  """

  message: Any
  keys: tf.Tensor
  slices: Any


@dataclasses.dataclass(frozen=True)
class Selection:
  """How each client of a round receives those parts of the server's model it asks for.

  The choice is made on the client, `tff.federated_select` answers it. The keys do travel:
  whoever answers them sees which parts a client wants.

  Attributes:
    num_keys: Number of parts there are.
    request: `(message, client, seed) -> int32[M]`, keys in [0, num_keys); M is fixed.
      The seed is that of the client's data.
    pick: `(server, key) -> slice`, nested tensors of fixed shapes.
  """

  num_keys: int
  request: Callable[..., tf.Tensor]
  pick: Callable[[Any, tf.Tensor], Any]


_INT, _FLOAT = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
INFO = tff.types.tensorflow_to_type(ClientInfo(_INT, _INT, seeds.SEED_SPEC))
TOTALS = tff.types.tensorflow_to_type(RoundTotals(_INT, _FLOAT, _INT))


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """An algorithm as functions of tensors.

  `bound` is the `BoundModel` of the computation's graph; for the two initialising
  functions it carries the initial values that belong to the run's seed.

  Attributes:
    initialize: `(bound) -> server`.
    initialize_client: `(bound, info) -> client`.
    message: `(server) -> message`, what every client of a round and of an evaluation
      receives; `(server, round) -> message` where it tells the rounds finished.
    client_update: `(bound, message, num_training, client, data) -> ClientOutput`.
    server_update: `(server, aggregate, totals) -> (server, reply, metrics)`.
    finish_client: `(pending, reply) -> client`: the last word of a round, after the
      server's; None if what is pending is the client's state already.
    counts_training: Whether num_training counts the round's clients that have data,
      which costs a sum before the training; else it is 0.
    tells_round: Whether `message` is given the number of rounds finished, int32.
    selection: Optional `Selection`; `client_update` then receives a `Requested` in the
      message's place, `evaluate` and `personalize` the message alone.
    data_sets: Fields of the data of `client_update`, besides its seed.
    evaluate_data_sets: Those of `evaluate`; `test` stands for whatever is evaluated.
    personalize_data_sets: Those of `personalize`.
    whole_message: Optional `(server) -> message` for `evaluate` and `personalize`, where
      these need more than a round does.
    bind: `(seed or None) -> bound`, where an algorithm has several models in a graph; the
      default binds the user's model.
    evaluate: `(bound, metrics, message, client, data) -> {'server': …, 'client': …}`.
    personalize: Optional `(bound, message, client, data) -> (client, metrics)`: what a
      client does for itself before it is evaluated as a personal model.
    report: Optional `(bound, server) -> metrics` for evaluated rounds.
    finished: Optional `(server) -> bool`: further rounds would change nothing.
  """

  initialize: Callable[..., Any]
  initialize_client: Callable[..., Any]
  message: Callable[..., Any]
  client_update: Callable[..., ClientOutput]
  server_update: Callable[..., tuple[Any, Any, dict[str, tf.Tensor]]]
  finish_client: Callable[[Any, Any], Any] | None
  evaluate: Callable[..., dict[str, dict[str, tf.Tensor]]]
  personalize: Callable[..., tuple[Any, dict[str, tf.Tensor]]] | None = None
  report: Callable[..., dict[str, tf.Tensor]] | None = None
  finished: Callable[[Any], tf.Tensor] | None = None
  counts_training: bool = False
  tells_round: bool = False
  selection: Selection | None = None
  data_sets: tuple[str, ...] = ('train',)
  evaluate_data_sets: tuple[str, ...] = ('test',)
  personalize_data_sets: tuple[str, ...] = ('train',)
  whole_message: Callable[[Any], Any] | None = None
  bind: Callable[[tf.Tensor | None], Any] | None = None


def traffic(
  *,
  models_up: int | tf.Tensor,
  models_down: int | tf.Tensor,
  bytes_up: int | tf.Tensor,
  bytes_down: int | tf.Tensor,
) -> dict[str, tf.Tensor]:
  """What one client sends and receives in a round, as metrics.

  A client of a round has the same numbers whether it has data or not and whether its result
  counts or not: it receives what all receive, and what it withholds goes up as zeros.

  Args:
    models_up: Models that it sends, each whole or as the part of it that is shared.
    models_down: Models that it receives.
    bytes_up: Of the update's value, before what an aggregator makes of it, and of what the
      client asks for. The numbers by which the server counts clients (weight, clients,
      clients with data, non-finite ones) are not counted: they belong to no algorithm.
    bytes_down: Of all that is broadcast or selected for it; int64 if a tensor.

  Returns:
    int32 models and int64 bytes.
  """
  return {
    'models_up': tf.convert_to_tensor(models_up, tf.int32),
    'models_down': tf.convert_to_tensor(models_down, tf.int32),
    'bytes_up': tf.convert_to_tensor(bytes_up, tf.int64),
    'bytes_down': tf.convert_to_tensor(bytes_down, tf.int64),
  }


def describe(optimizer: tff.learning.optimizers.Optimizer) -> dict[str, object]:
  """An optimizer's kind and numbers, for `config.json`."""
  state = optimizer.initialize([tf.TensorSpec([], tf.float32)])
  values = {k: float(v) for k, v in optimizer.get_hparams(state).items()}
  return {'kind': type(optimizer).__name__.strip('_'), **values}


def describe_training(
  training: client_loop.LocalTraining, loss_fn: modelling.LossFn
) -> dict[str, object]:
  """How clients train, for `config.json`."""
  loss: object = getattr(loss_fn, '__name__', type(loss_fn).__name__)
  if isinstance(loss_fn, tf.keras.losses.Loss):
    loss = {k: v for k, v in loss_fn.get_config().items() if isinstance(v, str | int | float)}
  return {
    'loss_fn': loss,
    'optimizer': describe(training.optimizer),
    'epochs': training.epochs,
    'batch_size': training.batch_size,
    'clip_norm': training.clip_norm,
  }
