"""Numerical tests of BayesianLSTMCell inside keras.layers.RNN."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tests.keras.layers.harness import policy
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianLSTMCell

STEPS = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)


def test_equals_keras_lstm_at_the_mean():
  layer, plain = keras.layers.RNN(BayesianLSTMCell(5)), keras.layers.LSTM(5)
  layer(STEPS), plain(STEPS)
  weights = bayes.gaussian_weights(layer)
  plain.set_weights([tf.convert_to_tensor(weight.loc).numpy() for weight in weights])
  np.testing.assert_allclose(layer(STEPS), plain(STEPS), atol=1e-6)


@pytest.mark.parametrize('name', ['float32', 'mixed_bfloat16', 'mixed_float16'])
@pytest.mark.parametrize('unroll', [False, True])
def test_one_weight_sample_per_sequence(name, unroll):
  """With no recurrence and no memory, equal inputs give equal outputs at every step."""
  with policy(name):
    layer = keras.layers.RNN(
      BayesianLSTMCell(5, initial_scale=0.5), return_sequences=True, unroll=unroll
    )
    steps = tf.ones([3, 6, 4], layer.cell.compute_dtype)
    layer(steps)
    cell = layer.cell
    zeros = tf.zeros([5, 5])
    closed = tf.concat([zeros, zeros - 1e4, zeros, zeros], axis=1)
    cell.recurrent_kernel.loc.assign(tf.zeros_like(closed))
    cell.recurrent_kernel.log_scale.assign(tf.fill(closed.shape, -100.0))
    cell.bias.loc.assign(closed[0])  # Forget gate shut.
    first, second = (layer(steps, training=True).numpy().astype(np.float32) for _ in range(2))
  np.testing.assert_allclose(first, np.broadcast_to(first[:, :1], first.shape), atol=1e-5)
  np.testing.assert_allclose(first, np.broadcast_to(first[:1], first.shape), atol=1e-5)
  assert np.abs(first - second).max() > 1e-2


def test_the_seed_in_the_state_decides_the_sample():
  cell = BayesianLSTMCell(5, initial_scale=0.5)
  inputs = tf.constant(STEPS[:, 0])
  cell.build(inputs.shape)
  state, other = cell.get_initial_state(batch_size=3), cell.get_initial_state(batch_size=3)
  outputs = [cell(inputs, s, training=True)[0].numpy() for s in (state, state, other)]
  np.testing.assert_array_equal(outputs[0], outputs[1])
  assert np.any(outputs[0] != outputs[2])
