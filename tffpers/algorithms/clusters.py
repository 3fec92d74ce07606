"""Clustered federated learning: J models at the server, of which each client trains one.

Ghosh et al., arXiv 2006.04088, Algorithm 1, and Isaksson et al., arXiv 2206.07832. Here are
the settings, the states and what travels between them; `cluster_rounds` has the rounds.

The active models travel as a sequence, so what has stopped is not sent at all.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, modelling
from tffpers.algorithms import cluster_start, cluster_stopping, fed_avg, template

ModelWeights = modelling.ModelWeights


@dataclasses.dataclass(frozen=True)
class Clusters:
  """What a clustered algorithm is given.

  Attributes:
    spec: The cluster models' architecture.
    training: How a client trains the model it picked.
    num_models: J ≥ 1.
    server_optimizer: Applied to the averaged change of each model as a pseudo-gradient.
    by_participants: Whether changes are summed without weights and divided by the number
      of all participants (IFCA's Option I), else averaged by examples (Option II).
    epsilon: Probability of picking by chance, in [0, 1].
    initial_models: `random` or `balanced`.
    stopping: When models stop; None never.
    when_stopped: `next_best` or `rest`.
    draw: Initial values from a seed.
  """

  spec: modelling.ModelSpec
  training: client_loop.LocalTraining
  num_models: int
  server_optimizer: tff.learning.optimizers.Optimizer
  by_participants: bool = False
  epsilon: float = 0.0
  initial_models: str = 'random'
  stopping: cluster_stopping.StoppingRule | None = None
  when_stopped: str = 'next_best'
  draw: cluster_start.Draw = dataclasses.field(init=False)

  def __post_init__(self):
    if not client_loop.is_integer(self.num_models, 1):
      raise ValueError(
        f'num_models must be an integer ≥ 1. Received: num_models={self.num_models!r}'
      )
    if not (math.isfinite(self.epsilon) and 0 <= self.epsilon <= 1):
      raise ValueError(f'epsilon must be in [0, 1]. Received: epsilon={self.epsilon!r}')
    for name, choices in (
      ('initial_models', ('random', 'balanced')),
      ('when_stopped', ('next_best', 'rest')),
    ):
      value = getattr(self, name)
      if value not in choices:
        raise ValueError(f'{name} must be one of {choices}. Received: {name}={value!r}')
    draw = cluster_start.initial_weights(self.spec)
    cluster_start.check_distinct(draw, self.num_models)
    object.__setattr__(self, 'draw', draw)

  @property
  def votes(self) -> bool:
    """Whether a round is spent on voting for a balanced start."""
    return self.initial_models == 'balanced' and self.num_models > 1


class Bound(NamedTuple):
  """Models in the current graph.

  Attributes:
    clusters: J copies of the cluster model; none where only initial values are drawn.
    seed: int32[2] for initial values; None if none are drawn.
  """

  clusters: list[modelling.BoundModel]
  seed: tf.Tensor | None


class ClusterServer(NamedTuple):
  """What the server learns.

  Attributes:
    models: `ModelWeights` [J, …].
    optimizers: State of each model's server optimizer.
    seed: int32[2], from which the initial models are drawn.
    voting: bool, whether the next round chooses the initial models.
    picked: bool[J], whether any client ever trained the model.
    stopping: `Stopping`, or () if models never stop.
  """

  models: ModelWeights
  optimizers: list[Any]
  seed: tf.Tensor
  voting: tf.Tensor
  picked: tf.Tensor
  stopping: Any


class ClusterClient(NamedTuple):
  """What a client keeps between rounds.

  Attributes:
    weights: `ModelWeights` after its last training; those of model 0 before its first.
    best: int32, the model that was its best one then; -1 before its first.
  """

  weights: ModelWeights
  best: tf.Tensor


class ClusterMessage(NamedTuple):
  """What a round's clients receive.

  Attributes:
    models: Sequence of the active models' weights, in order.
    active: bool[J].
    seed: int32[2] of the initial models.
    voting: bool, whether this round votes on initial models and trains nothing.
    check: bool, whether the picked model is scored on validation data.
  """

  models: tf.data.Dataset
  active: tf.Tensor
  seed: tf.Tensor
  voting: tf.Tensor
  check: tf.Tensor


class ClusterUpdate(NamedTuple):
  """What a client sends for the model that it picked.

  Attributes:
    delta: `ModelWeights`, its change times the weight.
    weight: float32, examples n_k (Option II) or 1 (Option I); 0 if it does not count.
    score: float32[2], sum of validation losses and their number; () without stopping.
    votes: float32[NUM_STARTS, J + 1], its ballot; () if there is no vote. A ballot is for no
      model: it travels at place 0, and the server adds up all places.
  """

  delta: ModelWeights
  weight: tf.Tensor
  score: Any
  votes: Any


def bind(settings: Clusters, seed: tf.Tensor | None) -> Bound:
  """J models in the current graph, or only a seed to draw initial values from."""
  count = settings.num_models if seed is None else 0
  return Bound([modelling.bind(settings.spec) for _ in range(count)], seed)


def initialize(settings: Clusters, bound: Bound) -> ClusterServer:
  """J different initial models, which may be put to the vote."""
  models = cluster_start.draw_models(settings.draw, bound.seed, settings.num_models)
  slots = tf.nest.map_structure(
    tf.convert_to_tensor, settings.server_optimizer.initialize(settings.spec.weights.trainable)
  )
  return ClusterServer(
    models,
    [slots] * settings.num_models,
    tf.convert_to_tensor(bound.seed),
    tf.constant(settings.votes),
    tf.zeros([settings.num_models], tf.bool),
    cluster_stopping.initialize(models, settings.num_models) if settings.stopping else (),
  )


def initialize_client(settings: Clusters, bound: Bound, info: template.ClientInfo) -> ClusterClient:
  """A client before its first round."""
  del info
  return ClusterClient(settings.draw(bound.seed), tf.constant(-1))


def message(settings: Clusters, server: ClusterServer, finished: tf.Tensor) -> ClusterMessage:
  """The active models and what is to be done with them."""
  active, check = tf.ones([settings.num_models], tf.bool), tf.constant(False)
  if settings.stopping:
    active = server.stopping.active
    check = tf.equal((finished + 1) % settings.stopping.check_every, 0)
  # Who votes draws the candidates from seeds and needs no model.
  active = tf.logical_and(active, ~server.voting)
  travelling = tf.nest.flatten(fed_avg.without_counters(server.models))
  sent = [tf.boolean_mask(t, active) for t in travelling]
  models = tf.data.Dataset.from_tensor_slices(tuple(sent))
  return ClusterMessage(models, active, server.seed, server.voting, check)


class Received(NamedTuple):
  """The active models on a client.

  Attributes:
    models: `ModelWeights` [active, …], without integer counters.
    places: int32[J], where model j is in them.
    active: bool[J].
  """

  models: ModelWeights
  places: tf.Tensor
  active: tf.Tensor

  def weights(self, index: tf.Tensor, own: ModelWeights) -> ModelWeights:
    """Model `index` with the client's own integer counters; `own` as it is for -1."""
    place = self.places[tf.maximum(index, 0)]
    return tf.cond(
      index >= 0,
      lambda: fed_avg.received(tf.nest.map_structure(lambda t: t[place], self.models), own),
      lambda: tf.nest.map_structure(tf.identity, own),
    )


def receive(settings: Clusters, sent: ClusterMessage) -> Received:
  """Unpacks the sequence of active models."""
  like = fed_avg.without_counters(settings.spec.weights)
  specs = tf.nest.flatten(like)
  flat = tf.cond(
    tf.reduce_any(sent.active),
    lambda: tuple(sent.models.batch(settings.num_models).get_single_element()),
    lambda: tuple(tf.zeros([0, *s.shape], s.dtype) for s in specs),
  )
  models = tf.nest.pack_sequence_as(like, list(flat))
  return Received(models, tf.cumsum(tf.cast(sent.active, tf.int32)) - 1, sent.active)


def one_model(models: ModelWeights, index: tf.Tensor, own: ModelWeights) -> ModelWeights:
  """Model `index` of a stack [J, …] that has travelled, with the integer counters of `own`."""
  return fed_avg.received(tf.nest.map_structure(lambda t: t[index], models), own)


def named_best(best: tf.Tensor, num_models: int) -> dict[str, tf.Tensor]:
  """Which model is a client's best one, as numbers whose means are shares of clients."""
  return {f'best_{j}': tf.cast(tf.equal(best, j), tf.float32) for j in range(num_models)}


def describe(settings: Clusters) -> dict[str, object]:
  """The settings, for `config.json`."""
  rule = settings.stopping
  return {
    **template.describe_training(settings.training, settings.spec.loss_fn),
    'server_optimizer': template.describe(settings.server_optimizer),
    'num_models': settings.num_models,
    'averaging': 'gradients' if settings.by_participants else 'models',
    'epsilon': settings.epsilon,
    'initial_models': settings.initial_models,
    'check_every': rule and rule.check_every,
    'patience': rule and rule.patience,
    'when_stopped': settings.when_stopped,
  }
