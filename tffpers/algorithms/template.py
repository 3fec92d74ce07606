"""From an algorithm's plain functions of tensors to TFF computations.

An `Algorithm` is what its paper says, written as TensorFlow functions; `build` is the
one place where their values get placements. All an algorithm sends up is an
`Update`: its `value` goes through the aggregator, its `weight` and `nonfinite` are
summed, and so are the clients and those with data. No other path leads from CLIENTS
to SERVER.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling, seeds
from tffpers import process as process_lib

SEED = tff.types.tensorflow_to_type(seeds.SEED_SPEC)
Factory: TypeAlias = (
  tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory
)


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
    metrics: Mapping of scalars for this client.
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
      receives.
    client_update: `(bound, message, num_training, client, data) -> ClientOutput`.
    server_update: `(server, aggregate, totals) -> (server, reply, metrics)`.
    finish_client: `(pending, reply) -> client`: the last word of a round, after the
      server's; None if what is pending is the client's state already.
    counts_training: Whether num_training counts the round's clients that have data,
      which costs a sum before the training; else it is 0.
    evaluate: `(bound, metrics, message, client, data) -> {'server': …, 'client': …}`.
    personalize: Optional `(bound, message, client, data) -> (client, metrics)`: what a
      client does for itself before it is evaluated as a personal model.
    report: Optional `(bound, server) -> metrics` for evaluated rounds.
  """

  initialize: Callable[..., Any]
  initialize_client: Callable[..., Any]
  message: Callable[[Any], Any]
  client_update: Callable[..., ClientOutput]
  server_update: Callable[..., tuple[Any, Any, dict[str, tf.Tensor]]]
  finish_client: Callable[[Any, Any], Any] | None
  evaluate: Callable[..., dict[str, dict[str, tf.Tensor]]]
  personalize: Callable[..., tuple[Any, dict[str, tf.Tensor]]] | None = None
  report: Callable[..., dict[str, tf.Tensor]] | None = None
  counts_training: bool = False


def build(
  algorithm: Algorithm,
  spec: modelling.ModelSpec,
  *,
  aggregator: Factory,
  evaluation_point: str,
  hyper_parameters: dict[str, object],
) -> process_lib.PersonalizedProcess:
  """Gives an algorithm's functions their placements.

  Args:
    algorithm: The functions.
    spec: The user's model.
    aggregator: What sums or averages the updates' values; a weighted factory gets the
      updates' weights too.
    evaluation_point: See `PersonalizedProcess`.
    hyper_parameters: See `PersonalizedProcess`.

  Returns:
    The process.
  """
  local = _local_computations(algorithm, spec)
  value_type, weight_type, _ = local.client_update.type_signature.result[0]
  weighted = isinstance(aggregator, tff.aggregators.WeightedAggregationFactory)
  aggregation = aggregator.create(*([value_type, weight_type] if weighted else [value_type]))
  initialize = _initialize(local, aggregation)
  server_type = initialize.type_signature.result
  return process_lib.PersonalizedProcess(
    initialize=initialize,
    initialize_client=_initialize_client(local, server_type),
    next=_next(algorithm, local, aggregation, server_type, weighted),
    evaluate=_evaluate(local, server_type),
    personalize=_personalize(algorithm, spec, local, server_type),
    report=_report(algorithm, spec, server_type),
    evaluation_point=evaluation_point,
    hyper_parameters={**hyper_parameters, 'model': spec.fingerprint},
  )


@dataclasses.dataclass(frozen=True)
class _Local:
  """Computations of one party, without placements."""

  initialize: tff.Computation
  initialize_client: tff.Computation
  message: tff.Computation
  client_update: tff.Computation
  evaluate: tff.Computation

  @property
  def client_type(self) -> tff.FederatedType:
    return tff.FederatedType(self.initialize_client.type_signature.result, tff.CLIENTS)


def _local_computations(algorithm: Algorithm, spec: modelling.ModelSpec) -> _Local:
  @tff.tensorflow.computation(SEED)
  def initialize(seed):
    return algorithm.initialize(modelling.bind(spec, seed))

  @tff.tensorflow.computation(SEED, INFO)
  def initialize_client(seed, info):
    return algorithm.initialize_client(modelling.bind(spec, seed), info)

  server, client = initialize.type_signature.result, initialize_client.type_signature.result
  message = tff.tensorflow.computation(algorithm.message, server)
  message_type = message.type_signature.result

  # Each body is one tf.function, whose automatic control dependencies order the reads and
  # writes of the model's variables.
  @tff.tensorflow.computation(message_type, tf.int32, client, _data_type(spec, 'train'))
  def client_update(message, num_training, client, data):
    run = functools.partial(algorithm.client_update, modelling.bind(spec))
    return tf.function(run, autograph=False)(message, num_training, client, data)

  @tff.tensorflow.computation(message_type, client, _data_type(spec, 'test'))
  def evaluate(message, client, data):
    metrics = modelling.as_keras_metrics(spec.metrics_fn())
    run = functools.partial(algorithm.evaluate, modelling.bind(spec), metrics)
    return tf.function(run, autograph=False)(message, client, data)

  return _Local(initialize, initialize_client, message, client_update, evaluate)


def _data_type(spec: modelling.ModelSpec, name: str) -> tff.Type:
  return tff.types.tensorflow_to_type({name: spec.data_spec, 'seed': seeds.SEED_SPEC})


def _initialize(local: _Local, aggregation: tff.templates.AggregationProcess) -> tff.Computation:
  @tff.tensorflow.computation(
    local.initialize.type_signature.result,
    aggregation.initialize.type_signature.result.member,
    SEED,
  )
  def pack(model, aggregator, seed):
    return ServerState(model, aggregator, seed, 0)

  @tff.federated_computation(tff.FederatedType(SEED, tff.SERVER))
  def initialize(seed):
    model = tff.federated_map(local.initialize, seed)
    return tff.federated_map(pack, (model, aggregation.initialize(), seed))

  return initialize


def _initialize_client(local: _Local, server_type: tff.FederatedType) -> tff.Computation:
  @tff.federated_computation(server_type, tff.FederatedType(INFO, tff.CLIENTS))
  def initialize_client(server, info):
    seed = tff.federated_broadcast(server.seed)
    return tff.federated_map(local.initialize_client, (seed, info))

  return initialize_client


def _next(
  algorithm: Algorithm,
  local: _Local,
  aggregation: tff.templates.AggregationProcess,
  server_type: tff.FederatedType,
  weighted: bool,
) -> tff.Computation:
  update_type, pending_type, _ = local.client_update.type_signature.result
  state_type, aggregate_type = server_type.member, aggregation.next.type_signature.result.result

  @tff.tensorflow.computation(state_type, aggregate_type.member, state_type.aggregator, TOTALS)
  def server_update(state, aggregate, aggregator, totals):
    model, reply, metrics = algorithm.server_update(state.model, aggregate, totals)
    new = ServerState(model, aggregator, state.seed, state.round + 1)
    return new, reply, {**metrics, **totals._asdict()}

  data_type = local.client_update.type_signature.parameter[3]
  count_training = _count_training(data_type) if algorithm.counts_training else None

  @tff.tensorflow.computation(update_type.weight, update_type.nonfinite)
  def own_totals(weight, nonfinite):
    return RoundTotals(1, weight, nonfinite)

  @tff.federated_computation(
    server_type, local.client_type, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def next_round(server, clients, data):
    if count_training:
      num_training = tff.federated_broadcast(count_training(data))
    else:
      num_training = tff.federated_value(0, tff.CLIENTS)
    message = tff.federated_broadcast(tff.federated_map(local.message, server.model))
    output = tff.federated_map(local.client_update, (message, num_training, clients, data))
    update = output.update
    aggregated = aggregation.next(
      server.aggregator, update.value, *([update.weight] if weighted else [])
    )
    # One sum of three numbers: each sum costs a call per client.
    totals = tff.federated_sum(tff.federated_map(own_totals, (update.weight, update.nonfinite)))
    new_server, reply, metrics = tff.federated_map(
      server_update, (server, aggregated.result, aggregated.state, totals)
    )
    if algorithm.finish_client is None:
      return new_server, output.pending, metrics, output.metrics
    finish_client = tff.tensorflow.computation(
      algorithm.finish_client, (pending_type, reply.type_signature.member)
    )
    new_clients = tff.federated_map(finish_client, (output.pending, tff.federated_broadcast(reply)))
    return new_server, new_clients, metrics, output.metrics

  return next_round


def _count_training(data_type: tff.Type) -> tff.Computation:
  @tff.tensorflow.computation(data_type)
  def has_data(data):
    return tf.cast(client_loop.num_rows(data['train']) > 0, tf.int32)

  @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
  def count(data):
    return tff.federated_sum(tff.federated_map(has_data, data))

  return count


def _evaluate(local: _Local, server_type: tff.FederatedType) -> tff.Computation:
  data_type = local.evaluate.type_signature.parameter[2]

  @tff.federated_computation(
    server_type, local.client_type, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def evaluate(server, clients, data):
    message = tff.federated_broadcast(tff.federated_map(local.message, server.model))
    return tff.federated_map(local.evaluate, (message, clients, data))

  return evaluate


def _personalize(
  algorithm: Algorithm, spec: modelling.ModelSpec, local: _Local, server_type: tff.FederatedType
) -> tff.Computation | None:
  run_local = algorithm.personalize
  if run_local is None:
    return None
  message_type, client_type, data_type = (
    local.message.type_signature.result,
    local.client_type.member,
    _data_type(spec, 'train'),
  )

  @tff.tensorflow.computation(message_type, client_type, data_type)
  def personalize_one(message, client, data):
    run = functools.partial(run_local, modelling.bind(spec))
    return tf.function(run, autograph=False)(message, client, data)

  @tff.federated_computation(
    server_type, local.client_type, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def personalize(server, clients, data):
    message = tff.federated_broadcast(tff.federated_map(local.message, server.model))
    personalized = tff.federated_map(personalize_one, (message, clients, data))
    return personalized[0], personalized[1]

  return personalize


def _report(
  algorithm: Algorithm, spec: modelling.ModelSpec, server_type: tff.FederatedType
) -> tff.Computation | None:
  measure_model = algorithm.report
  if measure_model is None:
    return None

  @tff.tensorflow.computation(SEED, server_type.member.model)
  def measure(seed, model):
    return measure_model(modelling.bind(spec, seed), model)

  @tff.federated_computation(server_type)
  def report(server):
    return tff.federated_map(measure, (server.seed, server.model))

  return report


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
