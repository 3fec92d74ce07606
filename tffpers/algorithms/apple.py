"""APPLE: adaptive personalized cross-silo federated learning.

Luo, Wu, *Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning*,
IJCAI 2022, arXiv 2110.08394.

All N clients are known to the server. Client i has a core model w_i^c and directed
relationships p_i ∈ R^N; its personalised model is w_i^p = Σ_j p_ij w_j^c. It minimises

  F_i(w_i^p) + λ(r) μ/2 ‖p_i − p_0‖²,   p_0j = n_j / Σ_k n_k,

over w_i^c and p_i, the other cores frozen as downloaded. One mini-batch, g = ∇F_i(w_i^p):

  w_i^c ← w_i^c − η1 p_ii g
  v ← m v + (⟨g, w_j^c⟩)_j;   p_i ← (p_i − η2 v + κ p_0) / (1 + κ),   κ = η2 λ(r) μ / (1 − m)

The proximal term is taken implicitly: stable at every μ, with the objective's own fixed
point. λ(r) falls from 1 to 0 at L = ratio · R rounds. The client sends w_i^c; the server
puts the cores in their places when all have trained. p_i never leaves the client.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers import client_loop, inspection, modelling
from tffpers import process as process_lib
from tffpers.algorithms import (
  apple_client,
  by_client,
  by_index,
  flat,
  placement,
  shares,
  template,
)
from tffpers.algorithms.apple_settings import Settings


def build_apple(
  *,
  model_fn: Callable[[], tf.keras.Model],
  loss_fn: modelling.LossFn,
  metrics_fn: Callable[[], list[modelling.Metric]],
  element_spec: tuple[Any, Any],
  client_num_examples: Mapping[str, int] | Sequence[int],
  rounds: int,
  optimizer: tff.learning.optimizers.Optimizer,
  epochs: int,
  batch_size: int,
  clip_norm: float | None = None,
  dr_learning_rate: float = 1e-3,
  mu: float = 0.2,
  schedule: str = 'cosine',
  schedule_ratio: float = 0.1,
  schedule_epsilon: float = 1e-3,
  max_downloads: int | None = None,
  priority: str = 'abs',
  dr_momentum: float = 0.0,
  learning_rate_decay: float = 1.0,
) -> process_lib.PersonalizedProcess:
  """Builds APPLE as a `PersonalizedProcess`.

  Cores start independently, drawn from the run's seed, which every client knows. A client
  without examples changes nothing; nor does one whose training is not finite, which is
  counted in `num_nonfinite`; the core of a client that sent nothing stays bit for bit.
  Variables that are not trained (batch-norm statistics) stay on their client. There is no
  `aggregator` to choose: the server keeps every core as it is and adds nothing up.

  Args:
    model_fn: Returns a new Keras model at each call; all trainable weights of one dtype.
    loss_fn: Per-target losses: a Keras loss or a function `(y, prediction)`.
    metrics_fn: Returns Keras metrics or plain functions for evaluation.
    element_spec: `(x, y)` specs of one example.
    client_num_examples: Training examples n_j of every client there is, in the order of
      their index; N is their number.
    rounds: R, rounds the run will have; the schedule is in parts of it.
    optimizer: For the core, from `tff.learning.optimizers`, with rate η1; its slots are
      fresh each round.
    epochs: Local passes per round.
    batch_size: Examples per local step.
    clip_norm: Largest global norm of g, for both steps; None does not clip.
    dr_learning_rate: η2 ≥ 0.
    mu: μ ≥ 0, in an objective with the factor ½ (the authors' code takes μ/2); inf keeps
      p_i = p_0 whatever λ is, so that all clients share the FedAvg average of the cores.
    schedule: λ: `cosine` (cos(πr/L) + 1)/2 or `exponential` ε^{r/L}, r the rounds
      finished; 0 from r = L on.
    schedule_ratio: L/R ≥ 0; 0 is λ = 0.
    schedule_epsilon: ε in (0, 1].
    max_downloads: M ≥ 1; a client downloads min(M, N − 1) cores a round, which it chooses
      itself: never seen ones first, then at random ∝ b^{|p_ij|}, b = max(1.5, r M/N); the
      others keep their last downloaded value in its mixture. None downloads all. **The
      requests show the server the coarse order of |p_ij|.**
    priority: `abs` as above, which is the authors' code; `signed`: ∝ b^{p_ij}, which is
      the paper's text.
    dr_momentum: m in [0, 1) of the step of p_i, from 0 each round. (The authors' code has
      momentum 0.9 in both steps.)
    learning_rate_decay: Factor in (0, 1] on η1 and η2 per round finished.

  Returns:
    The process. `evaluate` gives `client`, the personalised model as its client's last
    training left it: with the others' cores of that round's start, as the authors measure
    it; and `before`, the same relations and own core with the others' current cores (or
    with limited downloads those that the client holds), from which its next training
    begins. A client that was never trained has the latter in both. There is no `server`
    model. Client states have p_i as `relations`.

  Raises:
    TypeError: The model or optimizer is of the wrong kind.
    ValueError: A hyper-parameter is out of range, the model has nothing to train or
      weights of several dtypes, or rates are to decay of an optimizer that has none.
  """
  spec = inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)
  flat.check(spec)
  settings = Settings(
    loss_fn=loss_fn,
    training=client_loop.LocalTraining(optimizer, epochs, batch_size, clip_norm),
    start=shares.by_size(client_num_examples),
    dr_learning_rate=dr_learning_rate,
    mu=mu,
    rounds=rounds,
    schedule=schedule,
    schedule_ratio=schedule_ratio,
    schedule_epsilon=schedule_epsilon,
    max_downloads=max_downloads,
    priority=priority,
    dr_momentum=dr_momentum,
    learning_rate_decay=learning_rate_decay,
  )
  if learning_rate_decay < 1 and 'learning_rate' not in template.describe(optimizer):
    raise ValueError(
      'learning_rate_decay needs an optimizer with a learning_rate. '
      f'Received: optimizer={optimizer!r}'
    )
  hyper_parameters = {
    'algorithm': 'apple',
    **template.describe_training(settings.training, loss_fn),
    **settings.plain(),
    'client_num_examples': shares.plain(client_num_examples),
  }
  return placement.build(
    _algorithm(settings, spec),
    spec,
    aggregator=by_index.SumByIndex(settings.num_clients),
    evaluation_point='after',
    hyper_parameters=hyper_parameters,
  )


def _algorithm(settings: Settings, spec: modelling.ModelSpec) -> template.Algorithm:
  selection = template.Selection(
    settings.num_clients,
    functools.partial(apple_client.request, settings),
    by_client.pick,
  )
  return template.Algorithm(
    initialize=functools.partial(initial_server, settings, spec),
    initialize_client=functools.partial(apple_client.initial_client, settings, spec),
    message=functools.partial(message, settings),
    tells_round=True,
    selection=selection if settings.limited else None,
    client_update=functools.partial(apple_client.client_update, settings, spec),
    server_update=by_client.server_update,
    finish_client=None,
    evaluate=functools.partial(apple_client.evaluate, settings),
  )


def initial_server(
  settings: Settings, spec: modelling.ModelSpec, bound: modelling.BoundModel
) -> by_client.Models:
  """N independent initial cores."""
  return by_client.Models(flat.initial_models(spec, bound.seed, settings.num_clients))


def message(
  settings: Settings, server: by_client.Models, finished: tf.Tensor
) -> apple_client.Message:
  """The round's number and, where downloads are not limited, all cores."""
  return apple_client.Message(finished, () if settings.limited else server.models)
