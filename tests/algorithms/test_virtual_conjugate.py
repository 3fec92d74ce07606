"""V4: linear-Gaussian clients, whose local optimum has a closed form.

y = Xθ + ε with known noise variance v. With A_i = X_iᵀX_i/v and b_i = X_iᵀy_i/v the
free energy's minimum over mean-field q given a cavity (γ̃, λ̃) is
λ = λ̃ + diag(A_i) and (diag(λ̃) + A_i) μ = γ̃ + b_i.
"""

import numpy as np
import pytest
import tensorflow as tf

from tffpers import factors as factors_lib
from tffpers import gaussians
from tffpers.gaussians import Natural

V = 0.25
PRIOR = gaussians.from_moments(tf.constant([0.3, -0.2]), tf.constant([1.0, 2.0]))


def clients(correlated: bool, k: int = 3):
  """`[(A_i, b_i)]` of k clients with two weights each."""
  random = np.random.default_rng(3)
  result = []
  for i in range(k):
    x = random.normal(size=[4 + i, 2])
    if not correlated:
      x = np.where(np.arange(4 + i)[:, None] % 2 == np.arange(2), x, 0.0)
    y = x @ [1.0, -0.5] + np.sqrt(V) * random.normal(size=4 + i)
    result.append((x.T @ x / V, x.T @ y / V))
  return result


def start(k):
  factors = [gaussians.power(PRIOR, 1 / k)] * k
  return PRIOR, factors


def local_optimum(posterior, factor, k, a, b):
  cavity, held = factors_lib.cavity(posterior, factor, PRIOR, 1 / k)
  assert held == 0
  lam = cavity.lam + np.diag(a)
  mean = np.linalg.solve(np.diag(cavity.lam) + a, cavity.gamma + b)
  return Natural(lam * mean, lam)


def update(posterior, factors, i, data, damping):
  """Client i's damped Δ_i against `posterior`."""
  best = local_optimum(posterior, factors[i], len(factors), *data[i])
  return gaussians.power(gaussians.ratio(best, posterior), damping)


def parallel_round(posterior, factors, data, damping=1.0):
  deltas = [update(posterior, factors, i, data, damping) for i in range(len(data))]
  for delta in deltas:
    posterior = gaussians.product(posterior, delta)
  return posterior, [gaussians.product(f, d) for f, d in zip(factors, deltas, strict=True)]


def sequential_pass(posterior, factors, data, order, damping=1.0):
  factors = list(factors)
  for i in order:
    delta = update(posterior, factors, i, data, damping)
    posterior = gaussians.product(posterior, delta)
    factors[i] = gaussians.product(factors[i], delta)
  return posterior, factors


def exact(data):
  """Exact posterior's mean and the diagonal of its precision."""
  precision = np.diag(PRIOR.lam) + sum(a for a, _ in data)
  mean = np.linalg.solve(precision, PRIOR.gamma + sum(b for _, b in data))
  return Natural(np.diag(precision) * mean, np.diag(precision))


def assert_is(natural, expected, tolerance=1e-10):
  np.testing.assert_allclose(natural.gamma, expected.gamma, rtol=tolerance, atol=tolerance)
  np.testing.assert_allclose(natural.lam, expected.lam, rtol=tolerance)


def test_v4a_one_parallel_round_is_the_exact_posterior_and_a_second_changes_nothing():
  data = clients(correlated=False)
  posterior, factors = parallel_round(*start(3), data)
  assert_is(posterior, exact(data))
  assert_is(parallel_round(posterior, factors, data)[0], exact(data))


@pytest.mark.parametrize('order', [(0, 1, 2), (2, 0, 1)])
def test_v4a_one_sequential_pass_is_exact_in_any_order(order):
  data = clients(correlated=False)
  posterior, factors = sequential_pass(*start(3), data, order)
  assert_is(posterior, exact(data))
  assert_is(sequential_pass(posterior, factors, data, order)[0], exact(data))


def test_v4a_posterior_does_not_depend_on_the_sharding():
  (a0, b0), (a1, b1), (a2, b2) = clients(correlated=False)
  merged = [(a0 + a1, b0 + b1), (a2, b2)]
  assert_is(
    parallel_round(*start(2), merged)[0],
    parallel_round(*start(3), [(a0, b0), (a1, b1), (a2, b2)])[0],
  )


def test_v4b_correlated_clients_converge_to_the_mean_field_optimum():
  data = clients(correlated=True)
  posterior, factors = start(3)
  for _ in range(200):
    posterior, factors = sequential_pass(posterior, factors, data, range(3))
  assert_is(posterior, exact(data), 1e-9)
  marginal = 1 / np.diag(np.linalg.inv(np.diag(PRIOR.lam) + sum(a for a, _ in data)))
  assert np.all(posterior.lam > marginal * 1.001)


@pytest.mark.parametrize('damping', [1 / 3, 0.7])
def test_v4c_damping_reaches_the_same_fixed_point(damping):
  data = clients(correlated=True)
  posterior, factors = start(3)
  for _ in range(600):
    posterior, factors = (
      parallel_round(posterior, factors, data, 1 / 3)
      if damping < 0.5
      else (sequential_pass(posterior, factors, data, range(3), damping))
    )
  assert_is(posterior, exact(data), 1e-9)
