"""From TFF's learning process of federated reconstruction to a `PersonalizedProcess`'s four.

The server's state is TFF's own and a client's is empty. TFF's process takes data sets without
seeds, gives nothing about single clients, and averages their losses at the server: here the
seeds travel inside the data sets (`fed_recon_client.whole_client`), the sizes are measured
beside it, and losses stay away from the server.
"""

import collections
import functools
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling, seeds
from tffpers.algorithms import fed_per, fed_recon_client, template

ModelWeights = modelling.ModelWeights
LearningProcess: TypeAlias = tff.learning.templates.LearningProcess
_CLIENT_STATE = tff.FederatedType((), tff.CLIENTS)


class Counted(tff.aggregators.WeightedAggregationFactory):
  """Another factory whose measurements are the weights' sum and how many are not 0.

  Args:
    factory: The other one; its own measurements are left out.
  """

  def __init__(self, factory: tff.aggregators.WeightedAggregationFactory):
    self._factory = factory

  def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
    """The aggregation process of these types."""
    process = self._factory.create(value_type, weight_type)

    @tff.tensorflow.computation(weight_type)
    def count(weight):
      return collections.OrderedDict(weight=weight, counted=tf.cast(weight > 0, tf.int32))

    @tff.federated_computation(*process.next.type_signature.parameter)
    def next_fn(state, value, weight):
      output = process.next(state, value, weight)
      counts = tff.federated_sum(tff.federated_map(count, weight))
      return tff.templates.MeasuredProcessOutput(output.state, output.result, counts)

    return tff.templates.AggregationProcess(process.initialize, next_fn)


def no_metrics(finalizers: Any, unfinalized: tff.Type) -> tff.Computation:
  """A metrics aggregator that sends nothing to the server."""
  del finalizers

  @tff.federated_computation(tff.FederatedType(unfinalized, tff.CLIENTS))
  def aggregate(values):
    del values
    return tff.federated_value((), tff.SERVER)

  return aggregate


def initialize(work: fed_recon_client.ClientWork, recon: LearningProcess) -> tff.Computation:
  """TFF's initial state with shared variables as the run's seed draws them."""

  @tff.tensorflow.computation(template.SEED)
  def draw(seed):
    base = fed_per.base_of(work.split, modelling.bind(work.spec, seed).initial)
    return tff.learning.models.ModelWeights(base.trainable, base.non_trainable)

  @tff.federated_computation(tff.FederatedType(template.SEED, tff.SERVER))
  def initialize(seed):
    weights = tff.federated_map(draw, seed)
    return tff.federated_map(recon.set_model_weights, (recon.initialize(), weights))

  return initialize


def initialize_client(recon: LearningProcess) -> tff.Computation:
  """Nothing, for each client."""

  @tff.tensorflow.computation(template.INFO)
  def nothing(info):
    del info
    return ()

  @tff.federated_computation(
    recon.initialize.type_signature.result, tff.FederatedType(template.INFO, tff.CLIENTS)
  )
  def initialize_client(server, info):
    del server
    return tff.federated_map(nothing, info)

  return initialize_client


def next_round(work: fed_recon_client.ClientWork, recon: LearningProcess) -> tff.Computation:
  """A round of TFF's process on the clients' tensors."""
  data_type = _data_type(work, 'train')
  as_dataset = tff.tensorflow.computation(
    functools.partial(fed_recon_client.whole_client, work.spec, work.split), data_type
  )
  measure = tff.tensorflow.computation(functools.partial(_sizes, work), data_type)

  @tff.tensorflow.computation(data_type)
  def has_steps(data):
    return tf.cast(client_loop.num_rows(data['train']) * work.training.epochs > 0, tf.int32)

  @tff.tensorflow.computation(tf.int32, tf.int32, tf.float32, tf.int32)
  def totals(num_clients, num_training, weight, counted):
    return template.RoundTotals(num_clients, weight, num_training - counted)._asdict()

  @tff.federated_computation(
    recon.initialize.type_signature.result, _CLIENT_STATE, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def next_round(server, clients, data):
    output = recon.next(server, tff.federated_map(as_dataset, data))
    counts = output.metrics['aggregator']
    num_clients = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
    num_training = tff.federated_sum(tff.federated_map(has_steps, data))
    metrics = tff.federated_map(
      totals, (num_clients, num_training, counts['weight'], counts['counted'])
    )
    return output.state, clients, metrics, tff.federated_map(measure, data)

  return next_round


def evaluate(work: fed_recon_client.ClientWork, recon: LearningProcess) -> tff.Computation:
  """Reconstruction on the clients' training data, then measurement on their test data."""
  data_type = _data_type(work, 'train', 'test')
  spec, split = work.spec, work.split

  @tff.tensorflow.computation(recon.get_model_weights.type_signature.result, (), data_type)
  def evaluate_one(weights, client, data):
    del client
    personal = fed_recon_client.personal_start(spec, split, data['seed'])
    start = ModelWeights(
      split.join(weights.trainable, personal.trainable),
      split.join_non_trainable(weights.non_trainable, personal.non_trainable),
    )
    metrics = modelling.as_keras_metrics(spec.metrics_fn())
    run = functools.partial(_evaluate, work, modelling.bind(spec), metrics)
    return tf.function(run, autograph=False)(start, data)

  @tff.federated_computation(
    recon.initialize.type_signature.result, _CLIENT_STATE, tff.FederatedType(data_type, tff.CLIENTS)
  )
  def evaluate(server, clients, data):
    weights = tff.federated_broadcast(tff.federated_map(recon.get_model_weights, server))
    return tff.federated_map(evaluate_one, (weights, clients, data))

  return evaluate


def _evaluate(
  work: fed_recon_client.ClientWork,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  start: ModelWeights,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  bound.assign(start)
  if any(work.split.trainable):
    fed_per.train_head(work.spec, work.split, work.reconstruction, bound, data)
  client = client_loop.evaluate_model(bound.model, metrics, work.spec.loss_fn, data['test'])
  return {'client': client}


def _data_type(work: fed_recon_client.ClientWork, *names: str) -> tff.Type:
  fields = dict.fromkeys(names, work.spec.data_spec)
  return tff.types.tensorflow_to_type({**fields, 'seed': seeds.SEED_SPEC})


def _sizes(work: fed_recon_client.ClientWork, data: dict[str, Any]) -> dict[str, tf.Tensor]:
  spec, base = work.spec, fed_per.base_of(work.split, work.spec.weights)
  # TFF broadcasts all shared variables, counters too, and aggregates those that are trained.
  up, down = client_loop.num_bytes(base.trainable), client_loop.num_bytes(base)
  return {
    'num_examples': client_loop.num_rows(data['train']),
    'num_targets': client_loop.num_targets(spec.loss_fn, data['train'], spec.targets_per_example),
    **template.traffic(
      models_up=int(up > 0), models_down=int(down > 0), bytes_up=up, bytes_down=down
    ),
  }
