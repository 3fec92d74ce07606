"""From an algorithm's plain functions of tensors to TFF computations.

This is the one place where values of most algorithms get placements.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling, seeds
from tffpers import process as process_lib
from tffpers.algorithms import template

Factory: TypeAlias = (
  tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory
)


def build(
  algorithm: template.Algorithm,
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
    finished=_finished(algorithm, server_type),
    evaluation_point=evaluation_point,
    hyper_parameters={**hyper_parameters, 'model': spec.fingerprint},
  )


@dataclasses.dataclass(frozen=True)
class _Local:
  """Computations of one party, without placements."""

  initialize: tff.Computation
  initialize_client: tff.Computation
  message: tff.Computation
  whole_message: tff.Computation
  request: tff.Computation | None
  pick: tff.Computation | None
  client_update: tff.Computation
  evaluate: tff.Computation

  @property
  def client_type(self) -> tff.FederatedType:
    return tff.FederatedType(self.initialize_client.type_signature.result, tff.CLIENTS)


def _bind(
  algorithm: template.Algorithm, spec: modelling.ModelSpec
) -> Callable[[tf.Tensor | None], Any]:
  return algorithm.bind or functools.partial(modelling.bind, spec)


def _local_computations(algorithm: template.Algorithm, spec: modelling.ModelSpec) -> _Local:
  bind = _bind(algorithm, spec)

  @tff.tensorflow.computation(template.SEED)
  def initialize(seed):
    return algorithm.initialize(bind(seed))

  @tff.tensorflow.computation(template.SEED, template.INFO)
  def initialize_client(seed, info):
    return algorithm.initialize_client(bind(seed), info)

  server, client = initialize.type_signature.result, initialize_client.type_signature.result

  @tff.tensorflow.computation(server, tf.int32)
  def message(model, finished):
    return algorithm.message(model, *([finished] if algorithm.tells_round else []))

  whole, message_type = _whole_message(algorithm, server) or message, message.type_signature.result
  data_type = _data_type(spec, *algorithm.data_sets)
  request, pick = _selection_computations(
    algorithm.selection, server, message_type, client, data_type
  )
  received_type = _received_type(message_type, request, pick)

  # Each body is one tf.function, whose automatic control dependencies order the reads and
  # writes of the model's variables.
  @tff.tensorflow.computation(received_type, tf.int32, client, data_type)
  def client_update(received, num_training, client, data):
    if algorithm.selection:
      received = received._replace(slices=_stacked(received.slices, received.keys.shape[0]))
    run = functools.partial(algorithm.client_update, bind(None))
    return tf.function(run, autograph=False)(received, num_training, client, data)

  @tff.tensorflow.computation(
    whole.type_signature.result, client, _data_type(spec, *algorithm.evaluate_data_sets)
  )
  def evaluate(message, client, data):
    metrics = modelling.as_keras_metrics(spec.metrics_fn())
    run = functools.partial(algorithm.evaluate, bind(None), metrics)
    return tf.function(run, autograph=False)(message, client, data)

  return _Local(
    initialize, initialize_client, message, whole, request, pick, client_update, evaluate
  )


def _whole_message(algorithm: template.Algorithm, server: tff.Type) -> tff.Computation | None:
  pack = algorithm.whole_message
  if pack is None:
    return None

  @tff.tensorflow.computation(server, tf.int32)
  def whole_message(model, finished):
    del finished
    return pack(model)

  return whole_message


def _selection_computations(
  selection: template.Selection | None,
  server: tff.Type,
  message: tff.Type,
  client: tff.Type,
  data: tff.Type,
) -> tuple[tff.Computation | None, tff.Computation | None]:
  if selection is None:
    return None, None
  ask, pick = selection.request, selection.pick

  @tff.tensorflow.computation(message, client, data)
  def request(message, client, data):
    return ask(message, client, data['seed'])

  return request, tff.tensorflow.computation(pick, (server, tf.int32))


def _received_type(
  message: tff.Type, request: tff.Computation | None, pick: tff.Computation | None
) -> tff.Type:
  if request is None or pick is None:
    return message
  keys, slices = request.type_signature.result, tff.SequenceType(pick.type_signature.result)
  fields = [('message', message), ('keys', keys), ('slices', slices)]
  return tff.StructWithPythonType(fields, template.Requested)


def _stacked(slices: tf.data.Dataset, count: int) -> Any:
  return slices.batch(count, drop_remainder=True).get_single_element()


def _data_type(spec: modelling.ModelSpec, *names: str) -> tff.Type:
  fields = dict.fromkeys(names, spec.data_spec)
  return tff.types.tensorflow_to_type({**fields, 'seed': seeds.SEED_SPEC})


def _initialize(local: _Local, aggregation: tff.templates.AggregationProcess) -> tff.Computation:
  @tff.tensorflow.computation(
    local.initialize.type_signature.result,
    aggregation.initialize.type_signature.result.member,
    template.SEED,
  )
  def pack(model, aggregator, seed):
    return template.ServerState(model, aggregator, seed, 0)

  @tff.federated_computation(tff.FederatedType(template.SEED, tff.SERVER))
  def initialize(seed):
    model = tff.federated_map(local.initialize, seed)
    return tff.federated_map(pack, (model, aggregation.initialize(), seed))

  return initialize


def _initialize_client(local: _Local, server_type: tff.FederatedType) -> tff.Computation:
  @tff.federated_computation(server_type, tff.FederatedType(template.INFO, tff.CLIENTS))
  def initialize_client(server, info):
    seed = tff.federated_broadcast(server.seed)
    return tff.federated_map(local.initialize_client, (seed, info))

  return initialize_client


def _next(
  algorithm: template.Algorithm,
  local: _Local,
  aggregation: tff.templates.AggregationProcess,
  server_type: tff.FederatedType,
  weighted: bool,
) -> tff.Computation:
  update_type, pending_type, _ = local.client_update.type_signature.result
  state_type, aggregate_type = server_type.member, aggregation.next.type_signature.result.result

  @tff.tensorflow.computation(
    state_type, aggregate_type.member, state_type.aggregator, template.TOTALS
  )
  def server_update(state, aggregate, aggregator, totals):
    model, reply, metrics = algorithm.server_update(state.model, aggregate, totals)
    new = template.ServerState(model, aggregator, state.seed, state.round + 1)
    return new, reply, {**metrics, **totals._asdict()}

  data_type = local.client_update.type_signature.parameter[3]
  count_training = _count_training(data_type) if algorithm.counts_training else None

  @tff.tensorflow.computation(update_type.weight, update_type.nonfinite)
  def own_totals(weight, nonfinite):
    return template.RoundTotals(1, weight, nonfinite)

  @tff.federated_computation(
    server_type, local.client_type, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def next_round(server, clients, data):
    if count_training:
      num_training = tff.federated_broadcast(count_training(data))
    else:
      num_training = tff.federated_value(0, tff.CLIENTS)
    received = _broadcast(local.message, server)
    if algorithm.selection:
      received = _requested(algorithm.selection, local, server, received, clients, data)
    output = tff.federated_map(local.client_update, (received, num_training, clients, data))
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


def _broadcast(message: tff.Computation, server: tff.Value) -> tff.Value:
  return tff.federated_broadcast(tff.federated_map(message, (server.model, server.round)))


def _requested(
  selection: template.Selection,
  local: _Local,
  server: tff.Value,
  message: tff.Value,
  clients: tff.Value,
  data: tff.Value,
) -> template.Requested:
  keys = tff.federated_map(local.request, (message, clients, data))
  num_keys = tff.federated_value(selection.num_keys, tff.SERVER)
  return template.Requested(
    message, keys, tff.federated_select(keys, num_keys, server.model, local.pick)
  )


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
    message = _broadcast(local.whole_message, server)
    return tff.federated_map(local.evaluate, (message, clients, data))

  return evaluate


def _personalize(
  algorithm: template.Algorithm,
  spec: modelling.ModelSpec,
  local: _Local,
  server_type: tff.FederatedType,
) -> tff.Computation | None:
  run_local = algorithm.personalize
  if run_local is None:
    return None
  message_type, client_type, data_type = (
    local.whole_message.type_signature.result,
    local.client_type.member,
    _data_type(spec, *algorithm.personalize_data_sets),
  )

  @tff.tensorflow.computation(message_type, client_type, data_type)
  def personalize_one(message, client, data):
    run = functools.partial(run_local, _bind(algorithm, spec)(None))
    return tf.function(run, autograph=False)(message, client, data)

  @tff.federated_computation(
    server_type, local.client_type, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def personalize(server, clients, data):
    message = _broadcast(local.whole_message, server)
    personalized = tff.federated_map(personalize_one, (message, clients, data))
    return personalized[0], personalized[1]

  return personalize


def _report(
  algorithm: template.Algorithm, spec: modelling.ModelSpec, server_type: tff.FederatedType
) -> tff.Computation | None:
  measure_model = algorithm.report
  if measure_model is None:
    return None

  @tff.tensorflow.computation(template.SEED, server_type.member.model)
  def measure(seed, model):
    return measure_model(modelling.bind(spec, seed), model)

  @tff.federated_computation(server_type)
  def report(server):
    return tff.federated_map(measure, (server.seed, server.model))

  return report


def _finished(
  algorithm: template.Algorithm, server_type: tff.FederatedType
) -> tff.Computation | None:
  if algorithm.finished is None:
    return None
  at_end = tff.tensorflow.computation(algorithm.finished, server_type.member.model)

  @tff.federated_computation(server_type)
  def finished(server):
    return tff.federated_map(at_end, server.model)

  return finished
