"""FedProx: FedAvg with a proximal term in the local objective.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, *Federated Optimization in Heterogeneous
Networks*, MLSys 2020, arXiv 1812.06127, Algorithm 2: client k minimises
F_k(w) + μ/2 ‖w − w^t‖², w^t the server's weights. Everything else is FedAvg.
"""

import dataclasses
import functools
import math
from typing import Any

from tffpers import client_loop, modelling
from tffpers import process as process_lib
from tffpers.algorithms import fed_avg


def build_fed_prox(*, mu: float, **fed_avg_arguments: Any) -> process_lib.PersonalizedProcess:
  """Builds FedProx as a `PersonalizedProcess`.

  Args:
    mu: μ ≥ 0, strength of the proximal term; 0 is FedAvg bit for bit. (An l2 penalty
      without the factor ½ is μ/2.)
    **fed_avg_arguments: As for `build_fed_avg`.

  Returns:
    The process, as `build_fed_avg` returns it.

  Raises:
    ValueError: μ is negative or not finite.
  """
  if not (math.isfinite(mu) and mu >= 0):
    raise ValueError(f'mu must be a finite number ≥ 0. Received: mu={mu!r}')
  process = fed_avg.build_fed_avg(
    local_gradients=functools.partial(proximal_gradients, mu), **fed_avg_arguments
  )
  return dataclasses.replace(
    process, hyper_parameters={**process.hyper_parameters, 'algorithm': 'fed_prox', 'mu': mu}
  )


def proximal_gradients(
  mu: float,
  bound: modelling.BoundModel,
  loss_fn: modelling.LossFn,
  start: modelling.ModelWeights,
) -> client_loop.GradientsFn:
  """The gradient of a batch's mean loss plus μ (w − w^t)."""

  def gradients_fn(batch, seed):
    gradients, loss_sum, weight_sum = client_loop.model_gradients(bound, loss_fn, batch, seed)
    total = [
      g + mu * (w - w0)
      for g, w, w0 in zip(gradients, bound.trainable, start.trainable, strict=True)
    ]
    return total, loss_sum, weight_sum

  return gradients_fn
