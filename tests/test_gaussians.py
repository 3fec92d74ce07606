"""Natural-parameter algebra against independent formulas and TFP."""

import hypothesis
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tffpers import gaussians

SHAPE = (3,)
LOCS = hnp.arrays(np.float64, SHAPE, elements=st.floats(-5, 5))
SCALES = hnp.arrays(np.float64, SHAPE, elements=st.floats(1e-3, 1e2))


def normals():
  return st.builds(
    lambda loc, scale: gaussians.from_moments(tf.constant(loc), tf.constant(scale)), LOCS, SCALES
  )


def assert_close(a, b, tolerance=1e-12):
  for x, y, size in zip(a, b, (a.gamma, a.lam), strict=True):
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * (1 + np.max(np.abs(size))))


def test_moments_of_a_hand_worked_gaussian():
  natural = gaussians.from_moments(tf.constant([2.0]), tf.constant([0.5]))
  assert natural.gamma.numpy() == [8.0]
  assert natural.lam.numpy() == [4.0]


@hypothesis.given(LOCS, SCALES)
def test_moments_survive_the_round_trip(loc, scale):
  natural = gaussians.from_moments(tf.constant(loc), tf.constant(scale))
  back = gaussians.to_moments(natural, tf.float64)
  np.testing.assert_allclose(back[0], loc, rtol=1e-12, atol=1e-12)
  np.testing.assert_allclose(back[1], scale, rtol=1e-12)


@hypothesis.given(normals(), normals())
def test_v7_ratio_undoes_product(a, b):
  # Relative to the larger of the two: the sum keeps 16 digits of that one.
  result = gaussians.ratio(gaussians.product(a, b), b)
  for x, y, z in zip(result, a, b, strict=True):
    np.testing.assert_allclose(x, y, atol=4e-16 * np.max(np.abs(y) + np.abs(z)), rtol=0)


@hypothesis.given(normals(), st.integers(1, 200))
def test_v7_kth_root_to_the_kth_power_is_the_density(a, k):
  assert_close(gaussians.power(gaussians.power(a, 1.0 / k), float(k)), a)


@hypothesis.given(normals(), st.integers(1, 7))
def test_v7_power_is_repeated_product(a, k):
  repeated = a
  for _ in range(k - 1):
    repeated = gaussians.product(repeated, a)
  assert_close(repeated, gaussians.power(a, float(k)))


@hypothesis.given(normals())
def test_v7_divergence_from_itself_is_zero(a):
  assert abs(float(gaussians.kl_divergence(a, a))) < 1e-9


@hypothesis.given(LOCS, SCALES, LOCS, SCALES)
def test_v7_divergence_equals_tfp_with_two_non_zero_means(loc_a, scale_a, loc_b, scale_b):
  tfd = tfp.distributions
  expected = tf.reduce_sum(
    tfd.kl_divergence(tfd.Normal(loc_a, scale_a), tfd.Normal(loc_b, scale_b))
  )
  got = gaussians.kl_divergence(
    *(
      gaussians.from_moments(tf.constant(m), tf.constant(s))
      for m, s in ((loc_a, scale_a), (loc_b, scale_b))
    )
  )
  np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_divergence_of_a_hand_worked_pair():
  a = gaussians.from_moments(tf.constant([1.0]), tf.constant([1.0]))
  b = gaussians.from_moments(tf.constant([3.0]), tf.constant([2.0]))
  # ½ [ ¼·4 + ¼ − 1 + ln 4 ]
  np.testing.assert_allclose(gaussians.kl_divergence(a, b), 0.5 * (0.25 + np.log(4.0)))


@hypothesis.given(LOCS, SCALES, LOCS, SCALES)
def test_analytic_gradient_equals_autodiff(loc, scale, target_loc, target_scale):
  loc, log_scale = tf.constant(loc), tf.math.log(tf.constant(scale))
  target = gaussians.from_moments(tf.constant(target_loc), tf.constant(target_scale))
  with tf.GradientTape() as tape:
    tape.watch([loc, log_scale])
    kl = gaussians.kl_divergence(gaussians.from_moments(loc, tf.exp(log_scale)), target)
    scaled = 0.3 * kl
  expected = tape.gradient(scaled, [loc, log_scale])
  got = gaussians.kl_gradient(
    loc, tf.exp(log_scale), target.gamma / target.lam, 0.3 * target.lam, 0.3
  )
  for x, y in zip(got, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7 * (1 + np.max(np.abs(y))))


def test_signal_to_noise_ignores_the_sign_of_the_mean():
  natural = gaussians.from_moments(tf.constant([-3.0, 0.0]), tf.constant([0.5, 1.0]))
  np.testing.assert_allclose(gaussians.signal_to_noise(natural), [6.0, 0.0])
