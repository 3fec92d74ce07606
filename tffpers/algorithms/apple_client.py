"""APPLE on one client: its state, its request, its local training.

Luo, Wu, *Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning*,
IJCAI 2022, arXiv 2110.08394; the round as a whole is in `apple`.
"""

import collections
from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import client_loop, modelling, seeds
from tffpers.algorithms import by_client, flat, template
from tffpers.algorithms.apple_settings import Settings

# Label of the request's draw; local training folds 0 and 1 into the same seed.
_REQUEST = 2
_MIN_BASE = 1.5
# κ must not overflow: ∞ p_0 / ∞ is not p_0.
_LARGEST_MU = 1e30


class Held(NamedTuple):
  """Cores that a client holds because it does not download all of them each round.

  Attributes:
    cores: [N, d], each as last downloaded; before that its initial value, which the
      run's seed gives. The own place is not used.
    seen: bool[N], whether it was ever downloaded.
  """

  cores: tf.Tensor
  seen: tf.Tensor


class AppleClient(NamedTuple):
  """What a client keeps between rounds; of this only `core` ever leaves it.

  Attributes:
    index: int32, its place among the clients.
    core: [d], its core model w_i^c.
    relations: [N], its directed relationships p_i.
    non_trainable: The model's other variables, never mixed.
    held: `Held` where downloads are limited, else nothing.
    trained: bool, whether it has ever been trained.
    last: [d], w_i^p as the last training left it: of the cores that were downloaded then.
  """

  index: tf.Tensor
  core: tf.Tensor
  relations: tf.Tensor
  non_trainable: list[tf.Tensor]
  held: Any
  trained: tf.Tensor
  last: tf.Tensor


class Message(NamedTuple):
  """What every client receives.

  Attributes:
    round: int32, rounds finished.
    cores: [N, d] where downloads are not limited, else nothing. The own core, which the
      client has, is not counted as a model that it receives; its bytes are.
  """

  round: tf.Tensor
  cores: Any


class Mixture(NamedTuple):
  """A personalised model in the making.

  Attributes:
    own: [N], 1 at the client's own place.
    others: [N, d], the frozen cores, zeros at the own place.
  """

  own: tf.Tensor
  others: tf.Tensor

  def weights(self, relations: tf.Tensor, core: tf.Tensor) -> tf.Tensor:
    """w_i^p = p_ii w_i^c + Σ_{j≠i} p_ij w_j^c, [d]."""
    return self.share(relations) * core + flat.mixed(relations, self.others)

  def share(self, relations: tf.Tensor) -> tf.Tensor:
    """p_ii."""
    return tf.tensordot(relations, self.own, 1)

  def products(self, gradient: tf.Tensor, core: tf.Tensor) -> tf.Tensor:
    """⟨g, w_j^c⟩ for every j, [N]."""
    return tf.linalg.matvec(self.others, gradient) + self.own * tf.tensordot(core, gradient, 1)


class Training(NamedTuple):
  """What local steps change: slots of the core's optimizer, w_i^c, p_i and its velocity v."""

  slots: Any
  core: tf.Tensor
  relations: tf.Tensor
  velocity: tf.Tensor


def initial_client(
  settings: Settings,
  spec: modelling.ModelSpec,
  bound: modelling.BoundModel,
  info: template.ClientInfo,
) -> AppleClient:
  """Its own initial core and p_0."""
  # A client that is not among the N (it has test data only) has no core in any mixture.
  core = flat.initial_model(spec, bound.seed, info.index)
  relations = tf.constant(settings.start, core.dtype)
  held: Any = ()
  if settings.limited:
    cores = flat.initial_models(spec, bound.seed, settings.num_clients)
    held = Held(cores, tf.zeros([settings.num_clients], tf.bool))
  return AppleClient(
    info.index,
    core,
    relations,
    bound.initial.non_trainable,
    held,
    trained=tf.constant(False),
    last=tf.zeros_like(core),
  )


def request(
  settings: Settings, message: Message, client: AppleClient, seed: tf.Tensor
) -> tf.Tensor:
  """Which cores to download, int32[M]: distinct, never the own one.

  Those never seen come first, in random order; of the others one after another is drawn
  with probability ∝ b^{|p_ij|}, b = max(1.5, r M/N). Adding Gumbel noise to the logarithms
  and sorting is that draw.
  """
  share = settings.num_downloads / settings.num_clients
  base = tf.maximum(_MIN_BASE, tf.cast(message.round, tf.float32) * share)
  score = tf.abs(client.relations) if settings.priority == 'abs' else client.relations
  uniform = tf.random.stateless_uniform(
    [settings.num_clients], seeds.fold(seed, _REQUEST), minval=1e-30, alg='philox'
  )
  seen = tf.cast(client.held.seen, tf.float32)
  noisy = seen * tf.cast(score, tf.float32) * tf.math.log(base) - tf.math.log(-tf.math.log(uniform))
  ranks = [-seen, noisy]
  return by_client.others_first(client.index, ranks, settings.num_downloads)


def downloaded(held: Held, keys: tf.Tensor, slices: tf.Tensor) -> Held:
  """Takes over downloaded cores; the others keep their last value."""
  places = keys[:, tf.newaxis]
  return Held(
    tf.tensor_scatter_nd_update(held.cores, places, slices),
    tf.tensor_scatter_nd_update(held.seen, places, tf.ones_like(keys, tf.bool)),
  )


def mixture(settings: Settings, client: AppleClient, message: Message) -> Mixture:
  """The cores that a client mixes: the server's, or those it holds."""
  cores = client.held.cores if settings.limited else message.cores
  own = tf.one_hot(client.index, settings.num_clients, dtype=cores.dtype)
  return Mixture(own, tf.where(own[:, tf.newaxis] > 0, tf.zeros_like(cores), cores))


def client_update(
  settings: Settings,
  spec: modelling.ModelSpec,
  bound: modelling.BoundModel,
  received: Any,
  num_training: tf.Tensor,
  client: AppleClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Trains core and relations, and forms the upload.

  What is received is a `Message`, or a `Requested` with one where downloads are limited.
  """
  del num_training
  before, message = client, received
  if settings.limited:
    message = received.message
    client = client._replace(held=downloaded(client.held, received.keys, received.slices))
  cores = mixture(settings, client, message)
  modelling.assign_all(bound.non_trainable, client.non_trainable)
  step = local_step(settings, bound, cores, message.round)
  start = Training(
    _slots(settings, client.core, message.round),
    client.core,
    client.relations,
    tf.zeros_like(client.relations),
  )
  trained, result = client_loop.run_steps(
    data['train'], step, start, settings.training, data['seed']
  )
  after = client._replace(
    core=trained.core,
    relations=trained.relations,
    non_trainable=[v.read_value() for v in bound.non_trainable],
    trained=tf.constant(True),
    last=cores.weights(trained.relations, trained.core),
  )
  return by_client.finish_training(
    spec,
    after.core,
    before,
    after,
    result,
    data,
    received=received,
    num_downloads=settings.num_downloads,
    metrics={
      'own_relation': cores.share(after.relations),
      'sum_of_relations': tf.reduce_sum(after.relations),
    },
  )


def local_step(
  settings: Settings, bound: modelling.BoundModel, cores: Mixture, finished: tf.Tensor
) -> client_loop.StepFn:
  """One mini-batch: g at w_i^p, then both steps with the same g."""
  optimizer, momentum = settings.training.optimizer, settings.dr_momentum
  start = tf.constant(settings.start, cores.own.dtype)
  rate = settings.dr_learning_rate * settings.rate_factor(finished)
  mu = min(settings.mu, _LARGEST_MU)
  pull = tf.cast(rate * settings.strength(finished) * mu / (1 - momentum), start.dtype)
  rate = tf.cast(rate, start.dtype)

  def step(batch, seed, state):
    flat.assign(bound.trainable, cores.weights(state.relations, state.core))
    gradients, loss_sum, weight_sum = client_loop.model_gradients(
      bound, settings.loss_fn, batch, seed
    )
    g = flat.join(client_loop.clipped(gradients, settings.training.clip_norm))
    slots, (core,) = optimizer.next(state.slots, [state.core], [cores.share(state.relations) * g])
    velocity = momentum * state.velocity + cores.products(g, state.core)
    relations = (state.relations - rate * velocity + pull * start) / (1 + pull)
    if settings.mu == float('inf'):
      relations = start
    return Training(slots, core, relations, velocity), loss_sum, weight_sum

  return step


def _slots(settings: Settings, core: tf.Tensor, finished: tf.Tensor) -> Any:
  """Fresh slots of the core's optimizer, its rate η1 decayed."""
  optimizer = settings.training.optimizer
  slots = client_loop.initial_slots(optimizer, [core])
  if settings.learning_rate_decay < 1:
    values = collections.OrderedDict(optimizer.get_hparams(slots))
    values['learning_rate'] *= settings.rate_factor(finished)
    slots = optimizer.set_hparams(slots, values)
  return slots


def evaluate(
  settings: Settings,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  message: Message,
  client: AppleClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """The personalised model on the client's test data, of the cores as they are and as trained."""
  latest = mixture(settings, client, message).weights(client.relations, client.core)
  modelling.assign_all(bound.non_trainable, client.non_trainable)
  results = {}
  for name, weights in (
    ('before', latest),
    ('client', tf.where(client.trained, client.last, latest)),
  ):
    flat.assign(bound.trainable, weights)
    results[name] = client_loop.evaluate_model(bound.model, metrics, settings.loss_fn, data['test'])
  return results
