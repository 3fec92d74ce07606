"""Tests of the perceptron."""

import time

import numpy as np
import tensorflow as tf

import tffpers.keras as bayes


def test_bayesian_model_at_the_mean_equals_the_plain_one():
  sizes = {'input_shape': (4, 3), 'hidden': (6, 5), 'num_classes': 2}
  model, plain = bayes.models.mlp(**sizes, bayesian=True), bayes.models.mlp(**sizes)
  plain.set_weights([tf.convert_to_tensor(w.loc).numpy() for w in bayes.gaussian_weights(model)])
  inputs = tf.constant(np.random.default_rng(0).normal(size=(7, 4, 3)), tf.float32)
  np.testing.assert_allclose(model(inputs), plain(inputs), atol=1e-6)
  assert bayes.gaussian_weights(plain) == []


def seconds(model, steps=100):
  images = tf.ones([20, 784])
  variables = model.trainable_variables

  @tf.function
  def train(count):
    for step in tf.range(count):
      with bayes.noise.scope(tf.stack([1, step])), tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(images, training=True)))
      for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(1e-3 * gradient)

  train(tf.constant(10))
  durations = []
  for _ in range(5):
    start = time.perf_counter()
    train(tf.constant(steps))
    durations.append(time.perf_counter() - start)
  return min(durations)


def test_p6_a_bayesian_step_costs_less_than_ten_plain_ones():
  assert seconds(bayes.models.mlp(bayesian=True)) < 10 * seconds(bayes.models.mlp())
