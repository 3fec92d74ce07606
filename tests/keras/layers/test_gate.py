"""Tests of Gate."""

import numpy as np
import tensorflow as tf

import tffpers.keras as bayes
from tests.keras.layers.harness import policy
from tffpers.keras.backend import keras
from tffpers.keras.layers import Gate


def test_starts_uniform_between_0_and_a_tenth():
  gate = Gate()
  gate.build((None, 20_000))
  values = tf.convert_to_tensor(gate.gate).numpy()
  assert values.min() >= 0 and values.max() <= 0.1
  np.testing.assert_allclose([values.mean(), values.std()], [0.05, 0.1 / 12**0.5], rtol=0.03)


def test_has_one_number_per_unit_of_the_last_axis():
  gate = Gate()
  inputs = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
  gate(inputs)
  gate.gate.assign([0.0, 1.0, 2.0])
  np.testing.assert_array_equal(gate(inputs), inputs * np.array([0, 1, 2], np.float32))


def test_projection_and_keras_optimizers_keep_it_non_negative():
  model = keras.Sequential([keras.Input((2,)), Gate()])
  (gate,) = bayes.gates(model)
  gate.assign([0.01, 0.01])
  model.compile(keras.optimizers.SGD(1.0), 'mse')
  model.fit(np.ones((4, 2)), np.tile([[-9.0, 9.0]], (4, 1)), verbose=0)
  values = tf.convert_to_tensor(gate).numpy()
  assert values[0] == 0 and values[1] > 1
  gate.assign([-0.5, 0.25])
  tf.function(lambda: bayes.project_gates(model))()
  np.testing.assert_array_equal(gate, [0.0, 0.25])


def test_variable_stays_in_float32_under_a_mixed_policy():
  for name, wanted in (('mixed_bfloat16', 'float32'), ('float64', 'float64')):
    with policy(name):
      gate = Gate()
      outputs = gate(tf.ones([2, 3], gate.compute_dtype))
      assert outputs.dtype == gate.compute_dtype
      assert tf.as_dtype(gate.gate.dtype).name == wanted
