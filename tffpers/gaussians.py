"""Natural-parameter algebra of mean-field Gaussians.

A factor over one weight tensor is stored as γ = μ/σ² and λ = 1/σ², element by
element. Multiplying densities adds natural parameters, dividing subtracts them
and raising to a power scales them. Factors and ratios may have a negative λ;
only a proper density (posterior, prior, cavity) must have λ > 0.

Source: Corinzia, Beuret, Buhmann, *Variational Federated Multi-Task Learning*,
arXiv 1906.06268; the algebra is that of any exponential family.
"""

from typing import NamedTuple

import tensorflow as tf


class Natural(NamedTuple):
  """Natural parameters of independent Gaussians over one weight tensor.

  Attributes:
    gamma: γ = μ/σ², a float tensor of the weight's shape.
    lam: λ = 1/σ², same shape and dtype; may be negative in a factor or ratio.
  """

  gamma: tf.Tensor
  lam: tf.Tensor


def from_moments(loc: tf.Tensor, scale: tf.Tensor, dtype: tf.DType = tf.float64) -> Natural:
  """Natural parameters of N(loc, scale²).

  Args:
    loc: Means μ, any shape, floating.
    scale: Standard deviations σ > 0, same shape.
    dtype: Type to compute in and to return. float32 loses ∏ s_i to about 1e-3
      at λ ≈ 1e4 and 100 factors, so the default is float64.

  Returns:
    `Natural` of `dtype`.

  >>> n = from_moments(tf.constant([2.0]), tf.constant([0.5]))
  >>> n.gamma.numpy(), n.lam.numpy()
  (array([8.]), array([4.]))
  """
  lam = tf.square(1.0 / tf.cast(scale, dtype))
  return Natural(tf.cast(loc, dtype) * lam, lam)


def to_moments(natural: Natural, dtype: tf.DType = tf.float32) -> tuple[tf.Tensor, tf.Tensor]:
  """Mean γ/λ and standard deviation λ^(-1/2) of a proper Gaussian (λ > 0).

  Args:
    natural: Natural parameters with λ > 0 everywhere.
    dtype: Type of the result; the division happens in the input's type.

  Returns:
    `(loc, scale)`, each of the weight's shape and of `dtype`.
  """
  loc = natural.gamma / natural.lam
  return tf.cast(loc, dtype), tf.cast(tf.math.rsqrt(natural.lam), dtype)


def product(a: Natural, b: Natural) -> Natural:
  """a · b: natural parameters add."""
  return Natural(a.gamma + b.gamma, a.lam + b.lam)


def ratio(a: Natural, b: Natural) -> Natural:
  """a / b: natural parameters subtract."""
  return Natural(a.gamma - b.gamma, a.lam - b.lam)


def power(a: Natural, exponent: float | tf.Tensor) -> Natural:
  """a^exponent: natural parameters scale."""
  if not tf.is_tensor(exponent):
    # tf.cast would take a Python float through float32: 1/3 would be off by 3e-8.
    exponent = tf.constant(exponent, a.lam.dtype)
  exponent = tf.cast(exponent, a.lam.dtype)
  return Natural(exponent * a.gamma, exponent * a.lam)


def kl_divergence(a: Natural, b: Natural) -> tf.Tensor:
  """KL(a ‖ b), summed over all elements.

  ½ Σ [ λ_b (μ_a − μ_b)² + λ_b/λ_a − 1 + ln(λ_a/λ_b) ] with μ = γ/λ on *both*
  sides. Its gradient is that of TensorFlow's autodiff; `kl_gradient` gives the
  analytic one for mean and log scale.

  Args:
    a: Proper Gaussians (λ > 0).
    b: Proper Gaussians of the same shape and dtype.

  Returns:
    A scalar of the inputs' dtype, in nats.
  """
  difference = a.gamma / a.lam - b.gamma / b.lam
  ratio_ = b.lam / a.lam
  # log of each λ rather than of their ratio: the ratio can over- or underflow.
  logs = tf.math.log(a.lam) - tf.math.log(b.lam)
  return 0.5 * tf.reduce_sum(b.lam * tf.square(difference) + ratio_ - 1.0 + logs)


def kl_gradient(
  loc: tf.Tensor,
  scale: tf.Tensor,
  target_loc: tf.Tensor,
  scaled_target_lam: tf.Tensor,
  factor: float | tf.Tensor = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Gradient of factor · KL(N(loc, scale²) ‖ target) for `loc` and for ln `scale`.

  ∂KL/∂μ = λ_b (μ − μ_b) and ∂KL/∂ln σ = λ_b σ² − 1. Autodiff through the divergence
  costs several times more than these two lines in a training step.

  Args:
    loc: Means μ, any shape, floating.
    scale: Standard deviations σ > 0, same shape.
    target_loc: Means μ_b of the target, same shape.
    scaled_target_lam: factor · λ_b, same shape, λ_b > 0 the target's precisions.
    factor: What the divergence is multiplied with, a scalar.

  Returns:
    The two gradients, each of the weight's shape.
  """
  return (scaled_target_lam * (loc - target_loc), scaled_target_lam * tf.square(scale) - factor)


def signal_to_noise(natural: Natural) -> tf.Tensor:
  """|μ|/σ = |γ|/√λ element by element (λ > 0)."""
  return tf.abs(natural.gamma) * tf.math.rsqrt(natural.lam)
