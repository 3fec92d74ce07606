"""Tests of how the Bayesian weights of a model are found."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense, BayesianLSTMCell


class Subclassed(keras.Model):
  def __init__(self):
    super().__init__()
    self.second = BayesianDense(2, use_bias=False)
    self.blocks = [BayesianDense(3), keras.layers.Dense(4)]

  def call(self, inputs, training=None):
    for block in self.blocks:
      inputs = block(inputs, training=training) if block is self.blocks[0] else block(inputs)
    return self.second(inputs, training=training)


def nested():
  inner = keras.Sequential([keras.Input((3,)), BayesianDense(4), keras.layers.Dense(5)])
  inputs = keras.Input((3,))
  return keras.Model(inputs, BayesianDense(2)(inner(inputs)))


def shapes(model):
  return [weight.shape for weight in bayes.gaussian_weights(model)]


def test_sequential_nested_wrapped_and_subclassed_models():
  assert shapes(bayes.models.mlp(input_shape=(3,), hidden=(4,), num_classes=2, bayesian=True)) == [
    (3, 4),
    (4,),
    (4, 2),
    (2,),
  ]
  assert sorted(shapes(nested())) == [(2,), (3, 4), (4,), (5, 2)]
  rnn = keras.Sequential([keras.Input((6, 3)), keras.layers.RNN(BayesianLSTMCell(2))])
  assert shapes(rnn) == [(3, 8), (2, 8), (8,)]
  subclassed = Subclassed()
  subclassed(tf.ones([1, 3]))
  assert sorted(shapes(subclassed)) == [(3,), (3, 3), (4, 2)]


def test_the_order_does_not_depend_on_automatic_names():
  reference = shapes(nested())
  for _ in range(12):  # Passes dense_9 and dense_10, whose names sort the other way.
    assert shapes(nested()) == reference


def test_a_shared_layer_counts_once():
  layer = BayesianDense(3, kl_weight=0.5)
  inputs = keras.Input((3,))
  model = keras.Model(inputs, layer(layer(inputs)))
  assert shapes(model) == [(3, 3), (3,)]
  np.testing.assert_allclose(bayes.kl_divergence(model), layer.kl_divergence())
  model(tf.ones([2, 3]), training=True)
  np.testing.assert_allclose(sum(model.losses), 0.5 * layer.kl_divergence(), rtol=1e-6)


def test_deterministic_weights_are_the_other_trainable_variables():
  model = nested()
  found = bayes.deterministic_weights(model)
  assert [tuple(variable.shape) for variable in found] == [(4, 5), (5,)]
  everything = len(found) + 2 * len(bayes.gaussian_weights(model))
  assert everything == len(model.trainable_variables)


def test_unbuilt_or_missing_bayesian_layers_are_reported():
  with pytest.raises(ValueError, match='build or call'):
    bayes.gaussian_weights(Subclassed())
  plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
  with pytest.raises(ValueError, match='no Bayesian weight'):
    bayes.kl_divergence(plain)


def test_i5_import_is_light_and_needs_no_tff():
  code = """
import sys, warnings
import numpy as np
state, filters = np.random.get_state()[1].tolist(), None
import tensorflow, tensorflow_probability
filters = list(warnings.filters)
import tffpers.keras
assert np.random.get_state()[1].tolist() == state
assert warnings.filters == filters
assert not any(name.startswith("tensorflow_federated") for name in sys.modules)
print("light")
"""
  root = str(pathlib.Path(__file__).parents[2])
  done = subprocess.run(
    [sys.executable, '-c', code],
    env=os.environ | {'PYTHONPATH': root},
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.stdout.strip() == 'light', done.stderr[-2000:]
