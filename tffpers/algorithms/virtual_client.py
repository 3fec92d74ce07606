"""VIRTUAL on one client: its state, its local training, and what it sends.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268;
the round as a whole is in `virtual`.
"""

import functools
from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import client_loop, factors, gaussians, modelling
from tffpers import keras as tffpers_keras
from tffpers.algorithms import template
from tffpers.algorithms import virtual_network as networks
from tffpers.algorithms.virtual_settings import Settings
from tffpers.gaussians import Natural

BYTES_PER_WEIGHT = 8  # Δγ and Δλ as float32.
BYTES_PER_INDEX = 4


class VirtualClient(NamedTuple):
  """What a client keeps between rounds; it never leaves the client.

  Attributes:
    factor: s_i, one float64 `Natural` per shared weight.
    loc: Means of the posterior as it stood after this client's last training, before
      damping, pruning and scaling: the client's own model. s⁰ before its first round.
    log_scale: ln σ of the same.
    client_only: φ and gates, as `Network.client_only` lists them.
    share: float64, the client's share of the prior in its factor.
    rounds: int32, rounds in which it trained.
  """

  factor: list[Natural]
  loc: list[tf.Tensor]
  log_scale: list[tf.Tensor]
  client_only: list[tf.Tensor]
  share: tf.Tensor
  rounds: tf.Tensor


class Pending(NamedTuple):
  """A client between its training and the server's answer."""

  client: VirtualClient
  delta: list[Natural]


def initial_client(
  settings: Settings, bound: modelling.BoundModel, info: template.ClientInfo
) -> VirtualClient:
  """s_i⁰ = (s⁰)^w with w = 1/K or N_i/N, and s⁰ itself as the client's own model."""
  network = networks.network(bound)
  shares = tf.constant(settings.shares, tf.float64)
  # A client that is not among the K (it has test data only) never trains.
  share = tf.gather(shares, tf.minimum(info.index, len(settings.shares) - 1))
  factor = [gaussians.power(s, share) for s in network.initial_posterior(settings.start)]
  return VirtualClient(
    factor,
    *network.initial_moments(settings.start),
    [bound.initial_value(v) for v in network.client_only],
    share,
    tf.constant(0),
  )


def client_update(
  settings: Settings,
  bound: modelling.BoundModel,
  posterior: list[Natural],
  num_training: tf.Tensor,
  client: VirtualClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Minimises F_i and forms the damped change Δ_i."""
  network = networks.network(bound)
  before = _start(settings, network, posterior, client)
  factor = client.factor
  if settings.fed_avg_init:
    factor = [gaussians.power(s, client.share) for s in posterior]
  targets, held = kl_targets(network, posterior, factor, client.share)
  num_targets = client_loop.num_targets(
    settings.loss_fn, data['train'], settings.targets_per_example
  )
  kl_weight = tf.math.divide_no_nan(settings.beta, num_targets)
  result = client_loop.train(
    data['train'],
    _gradients(settings, network, targets, kl_weight),
    network.trained,
    settings.training,
    data['seed'],
    adjust=functools.partial(_adjust, settings, network),
  )
  damping = settings.damping or 1.0 / tf.cast(num_training, tf.float64)
  delta = [
    factors.damped_change(b, a, damping) for b, a in zip(network.posterior(), before, strict=True)
  ]
  delta, bytes_up = _pruned(settings, network, factor, delta, client.share)
  end = _end(network, client, factor)
  finite = client_loop.all_finite([delta, end])
  counts = tf.logical_and(finite, result.num_steps > 0)
  delta = client_loop.choose(counts, delta, tf.nest.map_structure(tf.zeros_like, delta))
  kl = _divergence(network, targets)
  metrics = {
    'loss': result.loss,
    'kl': kl,
    'objective': result.loss + kl_weight * kl,
    'num_examples': client_loop.num_rows(data['train']),
    'num_targets': num_targets,
    'num_steps': result.num_steps,
    'num_cavity_held': held,
    'nonfinite': tf.cast(~finite, tf.int32),
    **template.traffic(
      models_up=1,
      models_down=1,
      bytes_up=bytes_up,
      # The server's answer is ρ.
      bytes_down=client_loop.num_bytes([posterior, num_training]) + tf.float64.size,
    ),
  }
  # Float32 holds the values exactly.
  sent = tf.nest.map_structure(lambda t: tf.cast(t, tf.float32), delta)
  update = template.Update(sent, 1.0, metrics['nonfinite'])
  return template.ClientOutput(
    update, Pending(client_loop.choose(counts, end, client), delta), metrics
  )


def _start(
  settings: Settings,
  network: networks.Network,
  posterior: list[Natural],
  client: VirtualClient,
) -> list[Natural]:
  """Sets the variables for training; returns s as float32 variables hold it."""
  network.assign_posterior(posterior)
  network.assign_client_only(client.client_only)
  before = network.posterior()
  if settings.client_start == 'own':
    own = client.loc, client.log_scale
    network.assign_moments(*client_loop.choose(client.rounds > 0, own, network.read_moments()))
  return before


def _end(network: networks.Network, client: VirtualClient, factor: list[Natural]) -> VirtualClient:
  """The client as its training left it, its factor not yet changed."""
  loc, log_scale = network.read_moments()
  own = [v.read_value() for v in network.client_only]
  return VirtualClient(factor, loc, log_scale, own, client.share, client.rounds + 1)


def kl_targets(
  network: networks.Network,
  posterior: list[Natural],
  factor: list[Natural],
  share: tf.Tensor,
) -> tuple[list[Natural], tf.Tensor]:
  """What each Gaussian weight's divergence is from: cavities for θ, the prior for φ.

  Returns:
    One float64 `Natural` per weight of `network.gaussian`, and the number of elements
    in which a cavity was held (int32).
  """
  cavities, held = zip(
    *(
      factors.cavity(s, s_i, networks.prior(weight), share)
      for weight, s, s_i in zip(network.shared, posterior, factor, strict=True)
    ),
    strict=True,
  )
  return [*cavities, *map(networks.prior, network.private)], tf.add_n(held)


def finish_client(pending: Pending, rho: tf.Tensor) -> VirtualClient:
  """s_i ← s_i Δ_i^ρ, so that s = ∏_i s_i holds whatever the server scaled."""
  factor = [
    gaussians.product(s_i, gaussians.power(d, rho))
    for s_i, d in zip(pending.client.factor, pending.delta, strict=True)
  ]
  return pending.client._replace(factor=factor)


def _gradients(
  settings: Settings, network: networks.Network, targets: list[Natural], kl_weight: tf.Tensor
) -> client_loop.GradientsFn:
  """Gradient of mean batch NLL + β/N_i (KL_1 + KL_2) for `network.trained`, one noise sample.

  The divergence's part is analytic, `gaussians.kl_gradient` times β/N_i: autodiff
  through it costs several times more. Its targets are brought to float32 here, once: a
  while loop computes what stands in its body at every step.
  """
  scaled = []
  for weight, target in zip(network.gaussian, targets, strict=True):
    factor = tf.cast(kl_weight, weight.loc.dtype)
    loc, lam = (tf.cast(t, weight.loc.dtype) for t in (target.gamma / target.lam, target.lam))
    scaled.append((loc, factor * lam, factor))

  def gradients_fn(batch, seed):
    with tffpers_keras.scales_remembered():
      gradients, loss_sum, weight_sum = client_loop.model_gradients(
        network.bound, settings.loss_fn, batch, seed, network.trained
      )
      by_loc, by_log_scale = zip(
        *(
          gaussians.kl_gradient(weight.loc, weight.last_scale, loc, lam, factor)
          for weight, (loc, lam, factor) in zip(network.gaussian, scaled, strict=True)
        ),
        strict=True,
      )
    kl = [*by_loc, *by_log_scale]
    total = [a + b for a, b in zip(gradients, kl, strict=False)] + gradients[len(kl) :]
    return total, loss_sum, weight_sum

  return gradients_fn


def _adjust(
  settings: Settings, network: networks.Network, old: list[tf.Tensor], new: list[tf.Tensor]
) -> list[tf.Tensor]:
  """Enlarges and limits the steps of ln σ; keeps gates at 0 or above."""
  count = len(network.gaussian)
  limit, factor = settings.max_log_scale_step, settings.scale_learning_rate_multiplier
  scales = [
    a + tf.clip_by_value(factor * (b - a), -limit, limit)
    for a, b in zip(old[count : 2 * count], new[count : 2 * count], strict=True)
  ]
  return [*new[:count], *scales, *map(tf.nn.relu, new[2 * count :])]


def _pruned(
  settings: Settings,
  network: networks.Network,
  factor: list[Natural],
  delta: list[Natural],
  share: tf.Tensor,
) -> tuple[list[Natural], tf.Tensor]:
  """Δ_i as it is sent, and its bytes: of a pruned layer two numbers and an index per entry not 0."""
  if not settings.prune_percentile:
    return delta, tf.constant(BYTES_PER_WEIGHT * _num_weights(network.shared), tf.int64)
  *hidden, output = network.layer_groups()
  sent = list(delta)
  size = tf.constant(BYTES_PER_WEIGHT * _num_weights([network.shared[i] for i in output]), tf.int64)
  for group in hidden:
    floors = [share * networks.prior(network.shared[i]).lam for i in group]
    lams = [
      tf.maximum(factor[i].lam + delta[i].lam, floor)
      for i, floor in zip(group, floors, strict=True)
    ]
    sparse, _ = factors.prune([delta[i] for i in group], lams, settings.prune_percentile)
    for i, d in zip(group, sparse, strict=True):
      sent[i] = d
      # Nothing of a client without data is below the percentile: all is zero.
      kept = tf.math.count_nonzero(tf.abs(d.gamma) + tf.abs(d.lam))
      size += (BYTES_PER_WEIGHT + BYTES_PER_INDEX) * kept
  return sent, size


def _divergence(network: networks.Network, targets: list[Natural]) -> tf.Tensor:
  """KL_1 + KL_2 where the variables stand, float32 nats."""
  divergences = [
    gaussians.kl_divergence(weight.natural(), target)
    for weight, target in zip(network.gaussian, targets, strict=True)
  ]
  return tf.cast(tf.add_n(divergences), tf.float32)


def _num_weights(weights: list[Any]) -> int:
  return sum(tf.TensorShape(weight.shape).num_elements() for weight in weights)
