"""VIRTUAL: variational federated multi-task learning.

Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv 1906.06268.

θ is shared, φ_i private to client i. The server's posterior is a product of one factor per
client, s(θ) = ∏_i s_i(θ), and the prior lives inside the factors: s_i starts as (s⁰)^{1/K}.
One round, for each of its clients against the same s:

  cavity     s̃_i = p^{1/K} s / s_i
  minimise   F_i(q, c_i) = − Σ_n E log p(y_n | x_n, θ, φ_i) + β KL(q ‖ s̃_i) + β KL(c_i ‖ p(φ))
             from q = s
  damp       Δ_i = (q / s)^d, so s_i ← s_i Δ_i
  server     s ← s ∏_i Δ_i

Natural parameters add; nothing is averaged or weighted by data size. Stored natural
parameters are float64; local training runs on (μ, ln σ) in float32.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_probability as tfp

from tffpers import client_loop, factors, gaussians, inspection, modelling
from tffpers import process as process_lib
from tffpers.algorithms import placement, shares, sums, template, virtual_client
from tffpers.algorithms import virtual_network as networks
from tffpers.algorithms.virtual_settings import Settings, prior_shares
from tffpers.gaussians import Natural

QUANTILES = (5, 25, 50, 75, 95)


class VirtualServer(NamedTuple):
  """What the server learns.

  Attributes:
    posterior: s, one float64 `Natural` per shared weight.
  """

  posterior: list[Natural]


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
  scale_learning_rate_multiplier: float = 3000.0,
  max_log_scale_step: float = 0.1,
  start: str = 'informed',
  factor_weighting: str = 'equal',
  client_start: str = 'server',
  fed_avg_init: bool = False,
  prune_percentile: float = 0.0,
  evaluation_samples: int = 0,
  aggregator: tff.aggregators.UnweightedAggregationFactory | None = None,
  aggregator_reduction: str = 'sum',
) -> process_lib.PersonalizedProcess:
  """Builds VIRTUAL as a `PersonalizedProcess`.

  A client without examples changes nothing; nor does one whose training is not
  finite, which is counted in `num_nonfinite`.

  Args:
    model_fn: Returns a new Keras model at each call whose trainable weights are all
      those of Bayesian layers, `kl_weight` left at None; or one with private paths and
      gates, see `tffpers.keras.hierarchical`.
    loss_fn: Per-target negative log-likelihoods.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    client_num_examples: Training examples N_i of every client there is, in the order of
      their index; K is their number.
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
    factor_weighting: `equal`: every factor has the share 1/K of the prior and of s⁰;
      `by_size`: the share N_i/N.
    client_start: `server`: training starts at s; `own`: at the client's own posterior
      after its last training, against the same cavity.
    fed_avg_init: Whether s_i ← s^{1/K} before each training, so that s̃_i is the same
      for all clients. s = ∏_i s_i no longer holds.
    prune_percentile: Percentile below which a layer's changes with a low signal-to-noise
      ratio are not sent, output layer excluded; 0 sends all.
    evaluation_samples: Weight samples whose class probabilities are averaged in
      evaluation (the model must return logits); 0 evaluates at the posterior mean.
    aggregator: An unweighted `tff.aggregators` factory of float32 values; default
      `SumFactory`, in whose place they are added in float64. If it is no exact sum
      (clipping, noise, quantising), s = ∏ s_i holds approximately only.
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
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  networks.check_model(spec)
  networks.check_logits(spec, evaluation_samples)
  settings = Settings(
    targets_per_example=spec.targets_per_example,
    loss_fn=loss_fn,
    training=client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm),
    shares=prior_shares(client_num_examples, factor_weighting),
    beta=beta,
    damping=damping,
    scale_learning_rate_multiplier=scale_learning_rate_multiplier,
    max_log_scale_step=max_log_scale_step,
    start=start,
    client_start=client_start,
    fed_avg_init=fed_avg_init,
    prune_percentile=prune_percentile,
    evaluation_samples=evaluation_samples,
    aggregator_reduction=aggregator_reduction,
  )
  aggregator = aggregator or tff.aggregators.SumFactory()
  if not isinstance(aggregator, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      'VIRTUAL adds natural parameters and needs an unweighted tff.aggregators factory. '
      f'Received: aggregator={aggregator!r}'
    )
  if (
    isinstance(aggregator, tff.aggregators.UnweightedMeanFactory) and aggregator_reduction != 'mean'
  ):
    raise ValueError(
      "This factory averages and VIRTUAL sums: declare aggregator_reduction='mean'. "
      f'Received: aggregator={aggregator!r}'
    )
  hyper_parameters = {
    'algorithm': 'virtual',
    **template.describe_training(settings.training, loss_fn),
    **settings.plain(),
    'factor_weighting': factor_weighting,
    'client_num_examples': shares.plain(client_num_examples),
    'aggregator': type(aggregator).__name__,
  }
  if isinstance(aggregator, tff.aggregators.SumFactory):
    aggregator = sums.ExactSum()
  return placement.build(
    _algorithm(settings),
    spec,
    aggregator=aggregator,
    evaluation_point='after',
    hyper_parameters=hyper_parameters,
  )


def _algorithm(settings: Settings) -> template.Algorithm:
  return template.Algorithm(
    initialize=functools.partial(initial_server, settings),
    initialize_client=functools.partial(virtual_client.initial_client, settings),
    message=lambda server: server.posterior,
    client_update=functools.partial(virtual_client.client_update, settings),
    server_update=functools.partial(server_update, settings),
    finish_client=virtual_client.finish_client,
    evaluate=functools.partial(evaluate, settings),
    report=functools.partial(report, settings),
    counts_training=True,
  )


def initial_server(settings: Settings, bound: modelling.BoundModel) -> VirtualServer:
  """s⁰."""
  return VirtualServer(networks.network(bound).initial_posterior(settings.start))


def server_update(
  settings: Settings,
  server: VirtualServer,
  delta: list[Natural],
  totals: template.RoundTotals,
) -> tuple[VirtualServer, tf.Tensor, dict[str, tf.Tensor]]:
  """s ← s (∏_i Δ_i)^ρ, where ρ < 1 only if a precision would not stay positive."""
  delta = tf.nest.map_structure(lambda t: tf.cast(t, tf.float64), delta)
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


def evaluate(
  settings: Settings,
  bound: modelling.BoundModel,
  metrics: list[tf.keras.metrics.Metric],
  posterior: list[Natural],
  client: virtual_client.VirtualClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """S and MT on the client's test data.

  S: the server's posterior through the pure shared network; MT: the client's own one
  after its last training, with its private path and gates.
  """
  network = networks.network(bound)
  predict = networks.predictor(bound.model, data['seed'], settings.evaluation_samples)
  network.assign_posterior(posterior)
  network.close_gates()
  server = client_loop.evaluate(predict, metrics, settings.loss_fn, data['test'])
  network.assign_moments(client.loc, client.log_scale)
  network.assign_client_only(client.client_only)
  own = client_loop.evaluate(predict, metrics, settings.loss_fn, data['test'])
  return {'server': server, 'client': own}


def report(
  settings: Settings, bound: modelling.BoundModel, server: VirtualServer
) -> dict[str, tf.Tensor]:
  """Quantiles of the server's σ and of σ/σ⁰ over all weights: has the scale learned?"""
  log_scale = [-0.5 * tf.math.log(s.lam) for s in server.posterior]
  _, initial = networks.network(bound).initial_moments(settings.start)
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
