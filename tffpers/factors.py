"""Factors of a posterior that is a product over clients: cavity, update, back-scaling.

VIRTUAL keeps s = ∏_i s_i, one factor for each of K clients, with the prior inside the
factors. These are the steps by which a client leaves the product, changes its factor
and joins it again, on natural parameters in float64.

Source: Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*, arXiv
1906.06268; damping and the cavity's floor as in expectation propagation.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tffpers import gaussians
from tffpers.gaussians import Natural


def cavity(
  posterior: Natural, factor: Natural, prior: Natural, share: float | tf.Tensor
) -> tuple[Natural, tf.Tensor]:
  """s̃_i = p^w s / s_i, kept proper.

  Where λ̃ < w λ_p only the fraction of s_i is divided out that gives λ̃ = w λ_p; the
  factor's own update does not use the cavity.

  Args:
    posterior: s.
    factor: s_i.
    prior: p.
    share: w, the client's share of the prior: 1/K for K clients that count the same.

  Returns:
    `(s̃_i, n)`: λ̃ ≥ w λ_p everywhere, and the number of elements held there (int32).
  """
  root = gaussians.power(prior, share)
  held = posterior.lam - factor.lam < 0
  fraction = tf.where(held, tf.math.divide_no_nan(posterior.lam, factor.lam), 1.0)
  removed = Natural(fraction * factor.gamma, fraction * factor.lam)
  result = gaussians.product(root, gaussians.ratio(posterior, removed))
  lam = tf.where(held, root.lam, result.lam)
  return Natural(result.gamma, lam), tf.reduce_sum(tf.cast(held, tf.int32))


def damped_change(after: Natural, before: Natural, damping: float | tf.Tensor) -> Natural:
  """Δ = (after / before)^d as it travels.

  Args:
    after: The client's posterior after its training.
    before: The same before it.
    damping: d in (0, 1].

  Returns:
    float64 tensors that hold float32 values: both sides add exactly what was sent.
  """
  change = gaussians.power(gaussians.ratio(after, before), damping)
  return Natural(*(tf.cast(tf.cast(t, tf.float32), tf.float64) for t in change))


def prune(
  deltas: list[Natural], new_lams: list[tf.Tensor], percentile: float
) -> tuple[list[Natural], tf.Tensor]:
  """Zeroes one layer's changes with a low signal-to-noise ratio, Table III.

  The ratio is |Δγ|/√λ_new; entries strictly below the layer's percentile go.

  Args:
    deltas: Δ of each of the layer's weights.
    new_lams: λ_new > 0 of each changed factor, the same shapes.
    percentile: In [0, 100).

  Returns:
    `(sparse deltas, n)`: n int32 entries are kept, each with both of its numbers.
  """
  ratios = [tf.abs(d.gamma) * tf.math.rsqrt(lam) for d, lam in zip(deltas, new_lams, strict=True)]
  flat = tf.concat([tf.reshape(r, [-1]) for r in ratios], 0)
  limit = tfp.stats.percentile(flat, percentile, interpolation='linear')
  masks = [r >= limit for r in ratios]
  sparse = [
    Natural(*(tf.where(mask, t, tf.zeros_like(t)) for t in d))
    for d, mask in zip(deltas, masks, strict=True)
  ]
  return sparse, tf.add_n([tf.reduce_sum(tf.cast(mask, tf.int32)) for mask in masks])


def back_scaling(lam: list[tf.Tensor], change: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
  """The common factor ρ that keeps λ + ρ Δλ positive.

  ρ = 1 where all of λ + Δλ > 0, else min over elements with Δλ < 0 of 0.9 λ/(−Δλ).

  Args:
    lam: Precisions λ > 0, float64 tensors.
    change: Their summed changes Δλ, the same shapes.

  Returns:
    `(ρ, n)`: float64 scalar in (0, 1]; int32, elements that would have failed.
  """
  failing = [tf.reduce_sum(tf.cast(a + b <= 0, tf.int32)) for a, b in zip(lam, change, strict=True)]
  limits = [
    tf.reduce_min(tf.where(b < 0, 0.9 * a / tf.where(b < 0, -b, 1.0), 1.0))
    for a, b in zip(lam, change, strict=True)
  ]
  num_failing = tf.add_n(failing)
  return tf.where(num_failing > 0, tf.reduce_min(limits), 1.0), num_failing
