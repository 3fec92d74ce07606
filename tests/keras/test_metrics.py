"""Calibration metrics against numbers worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tffpers.keras import metrics


def logits(*rows):
  return tf.math.log(tf.constant(rows, tf.float32))


def test_calibration_error_worked_by_hand():
  ece = metrics.ExpectedCalibrationError(num_bins=2)
  # Bin [½, 1]: confidences 0.6, 0.9, 0.8 (mean 0.7667), two of three right.
  ece.update_state([0, 1, 0], logits([0.6, 0.4], [0.1, 0.9], [0.2, 0.8]))
  np.testing.assert_allclose(ece.result(), abs(2 / 3 - 2.3 / 3), rtol=1e-5)


def test_calibration_error_does_not_depend_on_the_batches():
  random = np.random.default_rng(0)
  y, z = random.integers(0, 3, 50), random.normal(size=[50, 3]).astype(np.float32)
  whole, parts = (metrics.ExpectedCalibrationError() for _ in range(2))
  whole.update_state(y, z)
  for start in range(0, 50, 7):
    parts.update_state(y[start : start + 7], z[start : start + 7])
  np.testing.assert_allclose(whole.result(), parts.result(), rtol=1e-5)
  whole.reset_state()
  assert float(whole.result()) == 0.0


def test_padding_has_no_weight():
  masked, plain = (metrics.ExpectedCalibrationError() for _ in range(2))
  nll_masked, nll = (metrics.NegativeLogLikelihood() for _ in range(2))
  z = logits([[0.6, 0.4], [0.1, 0.9]])
  for a, b in ((masked, plain), (nll_masked, nll)):
    a.update_state([[0, 0]], z, sample_weight=[[1.0, 0.0]])
    b.update_state([[0]], z[:, :1])
    np.testing.assert_allclose(a.result(), b.result(), rtol=1e-6)
  np.testing.assert_allclose(nll.result(), -np.log(0.6), rtol=1e-5)


def test_certain_and_right_has_no_error_and_no_entropy():
  ece = metrics.ExpectedCalibrationError()
  certain = tf.constant([[100.0, 0.0], [0.0, 100.0]])
  ece.update_state([0, 1], certain)
  assert float(ece.result()) == 0.0
  np.testing.assert_allclose(metrics.predictive_entropy([0, 1], certain), [0, 0], atol=1e-6)


def test_entropy_of_ignorance_is_log_of_the_number_of_classes():
  entropy = metrics.predictive_entropy(None, tf.zeros([2, 3, 5]))
  assert entropy.shape == (2, 3)
  np.testing.assert_allclose(entropy, np.log(5), rtol=1e-6)


def test_impossible_class_leaves_the_entropy_finite():
  z = tf.constant([[0.0, 0.0, -np.inf]])
  np.testing.assert_allclose(metrics.predictive_entropy(None, z), [np.log(2)], rtol=1e-6)


def test_config_round_trip():
  config = metrics.ExpectedCalibrationError(num_bins=7).get_config()
  assert metrics.ExpectedCalibrationError.from_config(config).num_bins == 7
  with pytest.raises(ValueError, match='num_bins'):
    metrics.ExpectedCalibrationError(num_bins=0)
