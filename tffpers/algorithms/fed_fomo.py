"""First-order model optimization (FedFomo).

Zhang, Sapra, Fidler, Yeung, Alvarez, *Personalized Federated Learning with First Order
Model Optimization*, ICLR 2021, arXiv 2012.08565.

Client i minimises its validation loss L_i over mixtures of models, to first order. Its last
training started from θ_i and ended at w_i. It downloads M of the other clients' models and
weighs w_i and them by what they would gain it over θ_i:

  ω_ij = max(0, (L_i(θ_i) − L_i(w_j)) / ‖w_j − θ_i‖),   normalised to Σ_j ω_ij = 1
  θ_i ← θ_i + Σ_j ω_ij (w_j − θ_i) = Σ_j ω_ij w_j

then trains from there on its own data and sends the new w_i. For each of the M downloads it
asks for a model drawn evenly, with probability ε, else for that with the largest ω summed
over the rounds, of those it has not asked for yet. (The authors' code sums ω before max.)
Where no other model gains, this is local training; also where not even w_i does, then from
w_i on. (The authors' code goes back to θ_i then.)
"""

import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling, seeds
from tffpers import process as process_lib
from tffpers.algorithms import by_client, by_index, flat, placement, template

ModelWeights = modelling.ModelWeights

# Label of the request's draws; local training folds 0 and 1 into the same seed.
_REQUEST = 2


class FomoClient(NamedTuple):
  """What a client keeps between rounds; of this only its trained weights leave it.

  Attributes:
    index: int32, its place among the clients.
    weights: `ModelWeights` w_i after its last training; initial before its first.
    start: [d], θ_i, which that training started from.
    affinity: [N], Σ over rounds of its normalised ω_ij, j ≠ i.
  """

  index: tf.Tensor
  weights: ModelWeights
  start: tf.Tensor
  affinity: tf.Tensor


class Exploration(NamedTuple):
  """How a client chooses what to download.

  Attributes:
    num_clients: N.
    num_downloads: min(M, N − 1).
    epsilon: ε of the first round.
    epsilon_decay: What ε loses with each round finished, down to 0.
  """

  num_clients: int
  num_downloads: int
  epsilon: float
  epsilon_decay: float


def build_fed_fomo(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  num_clients: int,
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  max_downloads: int | None = None,
  epsilon: float = 0.3,
  epsilon_decay: float = 0.05,
) -> process_lib.PersonalizedProcess:
  """Builds FedFomo as a `PersonalizedProcess`.

  It needs validation data on the clients: `simulation.run` takes them as
  `validation_data`. A client that has none has no ω and trains alone. All models start as
  the run's initial one. A client without examples changes nothing; nor does one whose
  training is not finite, which is counted in `num_nonfinite`. Variables that are not
  trained stay on their client, and others' models are measured with the client's own.
  There is no `aggregator` to choose: clients need each model by itself.

  Args:
    model_fn: Returns a new Keras model at each call; all trainable weights of one dtype.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    num_clients: N ≥ 2.
    optimizer: The clients' optimizer, from `tff.learning.optimizers`.
    epochs: Local passes per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    max_downloads: M ≥ 1; a client downloads min(M, N − 1) models a round. None downloads
      all. **The requests show the server the coarse order of the summed ω_ij.**
    epsilon: ε in [0, 1], of each download by itself.
    epsilon_decay: What ε loses with each round finished, ≥ 0.

  Returns:
    The process. `evaluate` gives `client`, the model the client trained last. There is no
    `server` model.

  Raises:
    TypeError: The model or optimizer is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train or
      weights of several dtypes.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  flat.check(spec)
  training = client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm)
  by_client.check_num_clients(num_clients)
  _check(max_downloads, epsilon, epsilon_decay)
  others = num_clients - 1
  num_downloads = others if max_downloads is None else min(max_downloads, others)
  exploration = Exploration(num_clients, num_downloads, epsilon, epsilon_decay)
  algorithm = template.Algorithm(
    initialize=functools.partial(by_client.initial_server, num_clients),
    initialize_client=functools.partial(initial_client, num_clients),
    message=lambda server, finished: finished,
    tells_round=True,
    selection=template.Selection(
      num_clients, functools.partial(request, exploration), by_client.pick
    ),
    data_sets=('train', 'validation'),
    client_update=functools.partial(client_update, spec, training),
    server_update=by_client.server_update,
    finish_client=None,
    evaluate=functools.partial(by_client.evaluate, loss_fn),
  )
  return placement.build(
    algorithm,
    spec,
    aggregator=by_index.SumByIndex(num_clients),
    evaluation_point='after',
    hyper_parameters={
      'algorithm': 'fed_fomo',
      **template.describe_training(training, loss_fn),
      'num_clients': num_clients,
      'max_downloads': max_downloads,
      'epsilon': epsilon,
      'epsilon_decay': epsilon_decay,
    },
  )


def _check(max_downloads: int | None, epsilon: float, epsilon_decay: float) -> None:
  if max_downloads is not None and not client_loop.is_integer(max_downloads, 1):
    raise ValueError(
      'max_downloads must be an integer ≥ 1, or None for all. '
      f'Received: max_downloads={max_downloads!r}'
    )
  if not (isinstance(epsilon, numbers.Real) and 0 <= epsilon <= 1):
    raise ValueError(f'epsilon must be in [0, 1]. Received: epsilon={epsilon!r}')
  decay = epsilon_decay
  if not (isinstance(decay, numbers.Real) and math.isfinite(decay) and decay >= 0):
    raise ValueError(
      f'epsilon_decay must be a finite number ≥ 0. Received: epsilon_decay={decay!r}'
    )


def initial_client(
  num_clients: int, bound: modelling.BoundModel, info: template.ClientInfo
) -> FomoClient:
  """The run's initial model, no affinity."""
  model = flat.join(bound.initial.trainable)
  return FomoClient(info.index, bound.initial, model, tf.zeros([num_clients], model.dtype))


def request(
  exploration: Exploration, finished: tf.Tensor, client: FomoClient, seed: tf.Tensor
) -> tf.Tensor:
  """Whose models to download, int32[M]: distinct, never the own one; ties at random."""
  decayed = exploration.epsilon - exploration.epsilon_decay * tf.cast(finished, tf.float32)
  draws = tf.random.stateless_uniform(
    [exploration.num_downloads, 1 + exploration.num_clients],
    seeds.fold(seed, _REQUEST),
    alg='philox',
  )

  def choose(before, draw):
    chosen, _ = before
    known = tf.where(draw[0] < decayed, tf.zeros_like(client.affinity), client.affinity)
    key = by_client.others_first(client.index, [-chosen, known, draw[1:]], 1)[0]
    return chosen + tf.one_hot(key, exploration.num_clients), key

  _, keys = tf.scan(choose, draws, (tf.zeros([exploration.num_clients]), 0))
  return keys


def client_update(
  spec: modelling.ModelSpec,
  training: client_loop.LocalTraining,
  bound: modelling.BoundModel,
  received: template.Requested,
  num_training: tf.Tensor,
  client: FomoClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Mixes the models that gain, trains the mixture and sends it."""
  del num_training
  bound.assign(client.weights)
  own = flat.join(client.weights.trainable)
  candidates = tf.concat([own[tf.newaxis], received.slices], 0)
  gains = weights_of(spec, bound, client.start, candidates, data['validation'])
  start = tf.where(tf.reduce_any(gains > 0), flat.mixed(gains, candidates), own)
  flat.assign(bound.trainable, start)
  gradients_fn = functools.partial(client_loop.model_gradients, bound, spec.loss_fn)
  result = client_loop.train(data['train'], gradients_fn, bound.trainable, training, data['seed'])
  affinity = tf.tensor_scatter_nd_add(client.affinity, received.keys[:, tf.newaxis], gains[1:])
  after = FomoClient(client.index, bound.read(), start, affinity)
  return by_client.finish_training(
    spec,
    flat.join(after.weights.trainable),
    client,
    after,
    result,
    data,
    received=received,
    num_downloads=received.keys.shape[0],
    metrics={'num_gaining': tf.math.count_nonzero(gains[1:], dtype=tf.int32)},
  )


def weights_of(
  spec: modelling.ModelSpec,
  bound: modelling.BoundModel,
  start: tf.Tensor,
  candidates: tf.Tensor,
  validation: client_loop.Batch,
) -> tf.Tensor:
  """Normalised ω_ij of candidates [m, d], measured from θ_i, [d]; all 0 if none gains."""

  def loss(model):
    flat.assign(bound.trainable, model)
    result = client_loop.evaluate_model(bound.model, [], spec.loss_fn, validation)
    return tf.cast(result['loss'], start.dtype)

  losses = tf.map_fn(loss, candidates, parallel_iterations=1)
  slopes = tf.math.divide_no_nan(loss(start) - losses, tf.norm(candidates - start, axis=1))
  # A loss is NaN where there are no validation data.
  gains = tf.where(tf.math.is_finite(slopes), tf.nn.relu(slopes), tf.zeros_like(slopes))
  return tf.math.divide_no_nan(gains, tf.reduce_sum(gains))
