"""Numerical tests of BayesianLSTM."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense, BayesianLSTM

STEPS = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)
MASK = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [0] * 7], bool)


def twins(**kwargs):
  """A Bayesian LSTM and Keras' LSTM with its mean weights."""
  unroll = kwargs.pop('unroll', None)
  layer, plain = BayesianLSTM(5, unroll=unroll, **kwargs), keras.layers.LSTM(5, **kwargs)
  layer(STEPS), plain(STEPS)
  plain.set_weights([tf.convert_to_tensor(weight.loc).numpy() for weight in layer.gaussian_weights])
  return layer, plain


@pytest.mark.parametrize('unroll', [None, True, False])
@pytest.mark.parametrize('mask', [None, MASK])
@pytest.mark.parametrize(
  'arguments',
  [
    {},
    {'return_sequences': True},
    {'return_state': True, 'go_backwards': True},
    {'use_bias': False, 'recurrent_activation': 'hard_sigmoid', 'activation': 'relu'},
  ],
)
def test_equals_keras_lstm_at_the_mean(unroll, mask, arguments):
  layer, plain = twins(unroll=unroll, **arguments)
  mask = None if mask is None else tf.constant(mask)
  ours, theirs = layer(STEPS, mask=mask), plain(STEPS, mask=mask)
  for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_initial_state_and_forget_bias_are_as_in_keras():
  layer, plain = twins()
  np.testing.assert_array_equal(
    tf.convert_to_tensor(layer.bias.loc), np.repeat([0.0, 1.0, 0.0, 0.0], 5)
  )
  state = [tf.ones([4, 5]), -tf.ones([4, 5])]
  np.testing.assert_allclose(
    layer(STEPS, initial_state=state), plain(STEPS, initial_state=state), atol=1e-6
  )


@pytest.mark.parametrize('unroll', [True, False])
def test_gradients_equal_keras_lstms(unroll):
  layer, plain = twins(unroll=unroll, return_sequences=True)
  with tf.GradientTape(persistent=True) as tape:
    ours = tf.reduce_sum(tf.sin(layer(STEPS, mask=tf.constant(MASK))))
    theirs = tf.reduce_sum(tf.sin(plain(STEPS, mask=tf.constant(MASK))))
  means = [weight.loc for weight in layer.gaussian_weights]
  for a, b in zip(
    tape.gradient(ours, means), tape.gradient(theirs, plain.trainable_variables), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=2e-5)


def test_v17_lstm_kl_once_per_step_whatever_the_length():
  layer = BayesianLSTM(5, kl_weight=0.5)
  layer(STEPS)
  for length in (1, 7, 20):
    layer(tf.ones([2, length, 3]), training=True)
    np.testing.assert_allclose(sum(layer.losses), 0.5 * layer.kl_divergence(), rtol=1e-6)
  shared = keras.Sequential([keras.Input((None, 3)), layer, BayesianDense(1)])
  shared.compile(keras.optimizers.SGD(0.0), 'mse')
  reported = []
  for length in (1, 20):
    x = np.zeros((2, length, 3), np.float32)
    y = shared.predict(x, verbose=0)
    reported.append(shared.evaluate(x, y, verbose=0))
  np.testing.assert_allclose(reported, [0.5 * float(layer.kl_divergence())] * 2, rtol=1e-5)


@pytest.mark.parametrize('unroll', [None, False])
def test_one_weight_sample_serves_all_steps_and_the_next_call_has_another(unroll):
  """With an identity-like cell the first two steps see equal inputs and equal weights."""
  layer = BayesianLSTM(2, return_sequences=True, unroll=unroll, initial_scale=0.5)
  steps = tf.ones([1, 6, 3])
  layer(steps)
  with bayes.noise.scope(tf.constant([1, 2])):
    whole = layer(steps, training=True).numpy()
  with bayes.noise.scope(tf.constant([1, 2])):
    prefix = layer(steps[:, :2], training=True).numpy()
  np.testing.assert_allclose(whole[:, :2], prefix, atol=1e-6)
  with bayes.noise.scope(tf.constant([1, 2])):
    seeds = layer.draw_seeds(3)
  plain = keras.layers.LSTM(2, return_sequences=True)
  plain(steps)
  plain.set_weights([weight.numpy() for weight in layer.draw_weights(seeds)])
  np.testing.assert_allclose(whole, plain(steps), atol=1e-6)
  call = tf.function(lambda: layer(steps, training=True))
  assert np.any(call().numpy() != call().numpy())


def test_unknown_lengths_loop_and_unroll_true_refuses_them():
  inputs = keras.Input((None, 3))
  model = keras.Model(inputs, BayesianLSTM(2)(inputs))
  for length in (1, 9):
    assert model(tf.ones([2, length, 3]), training=True).shape == (2, 2)

  @tf.function(input_signature=[tf.TensorSpec([None, None, 3])])
  def unrolled(steps):
    return BayesianLSTM(2, unroll=True)(steps)

  with pytest.raises(ValueError, match='unroll=True'):
    unrolled.get_concrete_function()


def test_b11_stateful_is_refused():
  with pytest.raises(ValueError, match='stateful'):
    BayesianLSTM(2, stateful=True)
