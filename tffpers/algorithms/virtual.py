"""VIRTUAL: variational federated multi-task learning.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv
1906.06268; here with the shared-only network, whose layers are all server parameters θ.

The server's posterior is a product of one factor per client, s(θ) = ∏_i s_i(θ), and the
prior lives inside the factors: s_i starts as (s⁰)^{1/K}. One round, for each of its
clients against the same s:

  cavity     s̃_i = p^{1/K} s / s_i
  minimise   F_i(q) = − Σ_n E_q log p(y_n | x_n, θ) + β KL(q ‖ s̃_i), from q = s
  damp       Δ_i = (q / s)^d, so s_i ← s_i Δ_i
  server     s ← s ∏_i Δ_i

Natural parameters add; nothing is averaged or weighted by data size. Stored natural
parameters are float64; local training runs on (μ, ln σ) in float32.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_probability as tfp

from tffpers import client_loop, factors, gaussians, modelling, seeds
from tffpers import keras as tffpers_keras
from tffpers import process as process_lib
from tffpers.algorithms import template
from tffpers.gaussians import Natural

QUANTILES = (5, 25, 50, 75, 95)


class VirtualServer(NamedTuple):
  """What the server learns.

  Attributes:
    posterior: s, one float64 `Natural` per Bayesian weight.
  """

  posterior: list[Natural]


class VirtualClient(NamedTuple):
  """What a client keeps between rounds; it never leaves the client.

  Attributes:
    factor: s_i, one float64 `Natural` per Bayesian weight.
    loc: Means of the posterior as it stood after this client's last training, before
      damping and scaling: the client's own model. s⁰ before its first round.
    log_scale: ln σ of the same.
  """

  factor: list[Natural]
  loc: list[tf.Tensor]
  log_scale: list[tf.Tensor]


class Pending(NamedTuple):
  """A client between its training and the server's answer."""

  client: VirtualClient
  delta: list[Natural]


@dataclasses.dataclass(frozen=True)
class Settings:
  """Validated hyper-parameters of `build_virtual`, named and explained there."""

  loss_fn: modelling.LossFn
  training: client_loop.LocalTraining
  num_clients: int
  beta: float
  damping: float | None
  scale_learning_rate_multiplier: float
  max_log_scale_step: float
  evaluation_samples: int
  start: str
  aggregator_reduction: str

  def __post_init__(self):
    checks = (
      ('beta', 'a finite number ≥ 0', math.isfinite(self.beta) and self.beta >= 0),
      ('damping', 'in (0, 1], or None for 1/C', self.damping is None or 0 < self.damping <= 1),
      (
        'scale_learning_rate_multiplier',
        'a finite number ≥ 0',
        0 <= self.scale_learning_rate_multiplier < math.inf,
      ),
      ('max_log_scale_step', 'positive', self.max_log_scale_step > 0),
      ('evaluation_samples', 'an integer ≥ 0', self.evaluation_samples >= 0),
      ('start', "'informed' or 'prior'", self.start in ('informed', 'prior')),
      ('aggregator_reduction', "'sum' or 'mean'", self.aggregator_reduction in ('sum', 'mean')),
      ('num_clients', 'at least 1', self.num_clients >= 1),
    )
    for name, expected, good in checks:
      if not good:
        raise ValueError(f'{name} must be {expected}. Received: {name}={getattr(self, name)!r}')


def build_virtual(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  client_num_examples: Mapping[str, int] | Sequence[int],
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  beta: float = 1e-4,
  damping: float | None = None,
  scale_learning_rate_multiplier: float = 300.0,
  max_log_scale_step: float = 0.1,
  start: str = 'informed',
  evaluation_samples: int = 0,
  aggregator: tff.aggregators.UnweightedAggregationFactory | None = None,
  aggregator_reduction: str = 'sum',
) -> process_lib.PersonalizedProcess:
  """Builds VIRTUAL as a `PersonalizedProcess`.

  A client without examples changes nothing; nor does one whose training is not
  finite, which is counted in `num_nonfinite`.

  Args:
    model_fn: Returns a new Keras model at each call whose trainable weights are all
      those of Bayesian layers, `kl_weight` left at None.
    loss_fn: Per-target negative log-likelihoods.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    client_num_examples: Training examples of every client there is; K is their number.
    optimizer: The clients' optimizer for (μ, ln σ), from `tff.learning.optimizers`.
    epochs: Local passes E per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of a local gradient; None does not clip.
    beta: β, weight of the divergence; 1 is the exact bound, 0 leaves it out.
    damping: d in (0, 1]; None is 1/C, C the round's clients that have data: parallel
      expectation propagation, which keeps every precision positive.
    scale_learning_rate_multiplier: Factor on every step of ln σ. Equal rates for μ and
      ln σ leave σ at its start; the natural gradient's ratio is 1/(2σ²).
    max_log_scale_step: Largest |change| of a ln σ in one step.
    start: `informed`: s⁰ has the layers' initial means and scales, s_i⁰ = (s⁰)^{1/K};
      `prior`: s⁰ = p.
    evaluation_samples: Weight samples whose class probabilities are averaged in
      evaluation (the model must return logits); 0 evaluates at the posterior mean.
    aggregator: An unweighted `tff.aggregators` factory; default `SumFactory`. If it is
      no exact sum (clipping, noise, quantising), s = ∏ s_i holds approximately only.
    aggregator_reduction: `mean` declares that the factory averages; its result is then
      multiplied by the number of clients.

  Returns:
    The process. `evaluate` gives `server` (S: the server's posterior) and `client` (MT:
    the client's posterior after its last training).

  Raises:
    TypeError: The model, optimizer or aggregator is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has deterministic
      trainable weights, or a layer adds its own KL.
  """
  settings = Settings(
    loss_fn,
    client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm),
    len(client_num_examples),
    beta,
    damping,
    scale_learning_rate_multiplier,
    max_log_scale_step,
    evaluation_samples,
    start,
    aggregator_reduction,
  )
  spec = modelling.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  _check_model(spec)
  aggregator = aggregator or tff.aggregators.SumFactory()
  if not isinstance(aggregator, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      'VIRTUAL adds natural parameters and needs an unweighted tff.aggregators factory. '
      f'Received: aggregator={aggregator!r}'
    )
  algorithm = template.Algorithm(
    initialize=lambda bound: VirtualServer(initial_posterior(settings, bound)),
    initialize_client=lambda bound, info: initial_client(settings, bound),
    message=lambda server: server.posterior,
    client_update=functools.partial(client_update, settings),
    server_update=functools.partial(server_update, settings),
    finish_client=finish_client,
    evaluate=functools.partial(evaluate, settings),
    report=functools.partial(report, settings),
  )
  plain = {
    field.name: getattr(settings, field.name)
    for field in dataclasses.fields(settings)
    if field.name not in ('loss_fn', 'training')
  }
  hyper_parameters = {
    'algorithm': 'virtual',
    **template.describe_training(settings.training, loss_fn),
    **plain,
    'aggregator': type(aggregator).__name__,
  }
  return template.build(
    algorithm,
    spec,
    aggregator=aggregator,
    evaluation_point='after',
    hyper_parameters=hyper_parameters,
  )


def initial_posterior(settings: Settings, bound: modelling.BoundModel) -> list[Natural]:
  """s⁰, the same at the server and at every client."""
  loc, log_scale = _initial_moments(settings, bound)
  return [
    gaussians.from_moments(m, tf.exp(tf.cast(ls, tf.float64)))
    for m, ls in zip(loc, log_scale, strict=True)
  ]


def initial_client(settings: Settings, bound: modelling.BoundModel) -> VirtualClient:
  """s_i⁰ = (s⁰)^{1/K}, and s⁰ itself as the client's model."""
  factor = [
    gaussians.power(s, 1.0 / settings.num_clients) for s in initial_posterior(settings, bound)
  ]
  return VirtualClient(factor, *_initial_moments(settings, bound))


def client_update(
  settings: Settings,
  bound: modelling.BoundModel,
  posterior: list[Natural],
  num_training: tf.Tensor,
  client: VirtualClient,
  data: dict[str, Any],
) -> template.ClientOutput:
  """Minimises F_i from q = s and forms the damped change Δ_i."""
  weights = tffpers_keras.gaussian_weights(bound.model)
  for weight, s in zip(weights, posterior, strict=True):
    weight.set_natural(s)
  before = [weight.natural() for weight in weights]
  cavities, held = zip(
    *(
      factors.cavity(s, s_i, _prior(weight), settings.num_clients)
      for weight, s, s_i in zip(weights, posterior, client.factor, strict=True)
    ),
    strict=True,
  )
  targets = client_loop.num_targets(settings.loss_fn, data['train'])
  kl_weight = tf.math.divide_no_nan(settings.beta, targets)
  # In float32 and once: a while loop computes what stands in its body at every step.
  kl_targets = [
    (tf.cast(c.gamma / c.lam, tf.float32), kl_weight * tf.cast(c.lam, tf.float32)) for c in cavities
  ]
  result = client_loop.train(
    data['train'],
    functools.partial(_gradients, settings, bound, weights, kl_targets, kl_weight),
    [w.loc for w in weights] + [w.log_scale for w in weights],
    settings.training,
    data['seed'],
    adjust=functools.partial(_scale_steps, settings, len(weights)),
  )
  after = [weight.natural() for weight in weights]
  damping = settings.damping or 1.0 / tf.cast(num_training, tf.float64)
  delta = [factors.damped_change(b, a, damping) for b, a in zip(after, before, strict=True)]
  finite = client_loop.all_finite([delta, after])
  delta = client_loop.choose(finite, delta, tf.nest.map_structure(tf.zeros_like, delta))
  trained = VirtualClient(
    client.factor,
    [w.loc.read_value() for w in weights],
    [w.log_scale.read_value() for w in weights],
  )
  kept = client_loop.choose(tf.logical_and(finite, result.num_steps > 0), trained, client)
  kl = tf.cast(
    tf.add_n([gaussians.kl_divergence(q, c) for q, c in zip(after, cavities, strict=True)]),
    tf.float32,
  )
  size = 8 * sum(math.prod(weight.shape) for weight in weights)
  metrics = {
    'loss': result.loss,
    'kl': kl,
    'objective': result.loss + kl_weight * kl,
    'num_examples': client_loop.num_rows(data['train']),
    'num_targets': targets,
    'num_steps': result.num_steps,
    'num_cavity_held': tf.add_n(held),
    'nonfinite': tf.cast(~finite, tf.int32),
    'bytes_up': size,
    'bytes_down': size,
  }
  update = template.Update(delta, 1.0, metrics['nonfinite'])
  return template.ClientOutput(update, Pending(kept, delta), metrics)


def server_update(
  settings: Settings,
  server: VirtualServer,
  delta: list[Natural],
  totals: template.RoundTotals,
) -> tuple[VirtualServer, tf.Tensor, dict[str, tf.Tensor]]:
  """s ← s (∏_i Δ_i)^ρ, where ρ < 1 only if a precision would not stay positive."""
  if settings.aggregator_reduction == 'mean':
    delta = [gaussians.power(d, tf.cast(totals.num_clients, tf.float64)) for d in delta]
  rho, num_negative = factors.back_scaling(
    [s.lam for s in server.posterior], [d.lam for d in delta]
  )
  posterior = [
    gaussians.product(s, gaussians.power(d, rho))
    for s, d in zip(server.posterior, delta, strict=True)
  ]
  return (
    VirtualServer(posterior),
    rho,
    {'back_scaling': rho, 'num_negative_precisions': num_negative},
  )


def finish_client(pending: Pending, rho: tf.Tensor) -> VirtualClient:
  """s_i ← s_i Δ_i^ρ, so that s = ∏_i s_i holds whatever the server scaled."""
  factor = [
    gaussians.product(s_i, gaussians.power(d, rho))
    for s_i, d in zip(pending.client.factor, pending.delta, strict=True)
  ]
  return pending.client._replace(factor=factor)


def evaluate(
  settings: Settings,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  posterior: list[Natural],
  client: VirtualClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """S and MT: the server's posterior and the client's last one on the client's test data."""
  weights = tffpers_keras.gaussian_weights(bound.model)
  predict = functools.partial(_predict, settings, bound.model, data['seed'])
  for weight, s in zip(weights, posterior, strict=True):
    weight.set_natural(s)
  server = client_loop.evaluate(predict, metrics, settings.loss_fn, data['test'])
  for weight, loc, log_scale in zip(weights, client.loc, client.log_scale, strict=True):
    weight.loc.assign(loc)
    weight.log_scale.assign(log_scale)
  return {
    'server': server,
    'client': client_loop.evaluate(predict, metrics, settings.loss_fn, data['test']),
  }


def report(
  settings: Settings, bound: modelling.BoundModel, server: VirtualServer
) -> dict[str, tf.Tensor]:
  """Quantiles of the server's σ and of σ/σ⁰ over all weights: has the scale learned?"""
  log_scale = [-0.5 * tf.math.log(s.lam) for s in server.posterior]
  _, initial = _initial_moments(settings, bound)
  values = tf.concat([tf.reshape(ls, [-1]) for ls in log_scale], 0)
  change = tf.concat(
    [
      tf.reshape(ls - tf.cast(ls0, tf.float64), [-1])
      for ls, ls0 in zip(log_scale, initial, strict=True)
    ],
    0,
  )
  result: dict[str, tf.Tensor] = {}
  for name, logs in (('sigma', values), ('sigma_ratio', change)):
    quantiles = tf.cast(tf.exp(tfp.stats.percentile(logs, QUANTILES)), tf.float32)
    result |= {f'{name}_p{q}': quantiles[i] for i, q in enumerate(QUANTILES)}
  return result


def _initial_moments(
  settings: Settings, bound: modelling.BoundModel
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
  weights = tffpers_keras.gaussian_weights(bound.model)
  if settings.start == 'informed':
    return (
      [bound.initial_value(w.loc) for w in weights],
      [bound.initial_value(w.log_scale) for w in weights],
    )
  return (
    [tf.broadcast_to(w.prior.loc, w.shape) for w in weights],
    [tf.broadcast_to(tf.math.log(w.prior.scale), w.shape) for w in weights],
  )


def _prior(weight) -> Natural:
  prior = weight.prior
  loc, scale = (tf.broadcast_to(t, weight.shape) for t in (prior.loc, prior.scale))
  return gaussians.from_moments(loc, scale)


def _gradients(settings, bound, weights, kl_targets, kl_weight, batch, seed):
  """Gradient of mean batch NLL + β KL(q ‖ s̃_i) / N_i for (μ, ln σ), one noise sample.

  The divergence's part is analytic, `gaussians.kl_gradient` times β/N_i: autodiff
  through it costs several times more.
  """
  locs, log_scales = [w.loc for w in weights], [w.log_scale for w in weights]
  gradients, loss_sum, weight_sum = client_loop.model_gradients(
    bound, settings.loss_fn, batch, seed, locs + log_scales
  )
  by_loc, by_log_scale = zip(
    *(
      gaussians.kl_gradient(weight.loc, weight.scale, loc, scaled_lam, kl_weight)
      for weight, (loc, scaled_lam) in zip(weights, kl_targets, strict=True)
    ),
    strict=True,
  )
  total = [a + b for a, b in zip(gradients, by_loc + by_log_scale, strict=True)]
  return total, loss_sum, weight_sum


def _scale_steps(settings, count, old, new):
  """Enlarges and limits the steps of the second half of the variables, ln σ."""
  limit, factor = settings.max_log_scale_step, settings.scale_learning_rate_multiplier
  steps = [
    tf.clip_by_value(factor * (b - a), -limit, limit)
    for a, b in zip(old[count:], new[count:], strict=True)
  ]
  return new[:count] + [a + step for a, step in zip(old[count:], steps, strict=True)]


def _predict(settings, model, seed, x, index):
  seed = seeds.fold(seed, index)
  if not settings.evaluation_samples:
    with seeds.keras_randomness(seed, sample=False):
      return model(x, training=False)
  log_probabilities = []
  for k in range(settings.evaluation_samples):
    with seeds.keras_randomness(seeds.fold(seed, k), sample=True):
      log_probabilities.append(tf.nn.log_softmax(model(x, training=False)))
  # Normalised log-probabilities are logits of the averaged predictive distribution.
  return tf.reduce_logsumexp(log_probabilities, 0) - math.log(settings.evaluation_samples)


def _check_model(spec: modelling.ModelSpec) -> None:
  with tf.Graph().as_default():
    model = modelling.build_model(spec.model_fn, spec.element_spec)
    extra = tffpers_keras.deterministic_weights(model)
    if extra:
      raise ValueError(
        'VIRTUAL shares a posterior over all weights, so every trainable weight must be '
        'Bayesian. Received: deterministic trainable weights '
        f'{[v.name for v in extra]}'
      )
    weighted = [
      layer.name
      for layer in model._flatten_layers()
      if getattr(layer, 'kl_weight', None) is not None
    ]
    if weighted:
      raise ValueError(
        'VIRTUAL adds the divergence from the cavity itself: leave kl_weight at None. '
        f'Received: layers with a kl_weight {weighted}'
      )
