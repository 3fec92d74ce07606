"""Tests of the linear base."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras import last_blocks
from tffpers.keras.backend import keras
from tffpers.keras.models import linear_base

layers = keras.layers


def cnn():
  return bayes.models.cnn(input_shape=(17, 18, 2), filters=(3, 4), hidden=(6, 5), dropout=0.3)


def mlp():
  return bayes.models.mlp(input_shape=(4, 3), hidden=(6, 5), num_classes=2)


def resnet(normalization='group'):
  return bayes.models.resnet(
    input_shape=(8, 8, 3), blocks_per_stage=(1, 1), filters=(4, 6), normalization=normalization
  )


def mobilenet():
  return bayes.models.mobilenet(input_shape=(8, 8, 3), width_multiplier=1 / 32, num_blocks=8)


def nested():
  """A head that is a model of its own."""
  features = keras.Sequential([keras.Input((6,)), layers.Dense(5, 'tanh'), layers.Dense(4)])
  head = keras.Sequential([keras.Input((4,)), layers.Dense(3, 'tanh'), layers.Dense(2)])
  return keras.Sequential([keras.Input((6,)), features, head])


def random(shape):
  return tf.constant(np.random.default_rng(3).normal(size=shape), tf.float32)


# The layer whose output the map takes the place of.
CASES = {
  'cnn, 1': (cnn, 1, -2),
  'cnn, 2: dropout goes': (cnn, 2, 5 + 1),
  'cnn, 3: pooling and flattening go': (cnn, 3, 4),
  'cnn, 4: pooling goes': (cnn, 4, 1),
  'mlp, 1': (mlp, 1, -2),
  'mlp, 2': (mlp, 2, -3),
  'resnet, 1: the mean over pixels goes': (resnet, 1, 'pool'),
  'resnet, 2: padding and projection stay': (resnet, 2, 'block01_relu2'),
  'resnet, 3: a block without projection stays': (resnet, 3, 'stem_relu'),
  'mobilenet, 3': (mobilenet, 3, 'block06_pointwise_relu'),
}


@pytest.fixture(params=CASES)
def case(request):
  build, k_p, last = CASES[request.param]
  model = build()
  base = model.get_layer(last) if isinstance(last, str) else model.layers[last]
  return model, k_p, base


def test_output_is_that_of_the_head_on_the_linear_map(case):
  model, k_p, base = case
  result = linear_base(model, k_p)
  kernel, bias = result.get_layer('linear_base').weights
  bias.assign(random(bias.shape))
  x = random((2, *model.input_shape[1:]))
  flat = np.reshape(x, [2, -1])
  mapped = np.reshape(flat @ kernel.numpy() + bias.numpy(), (2, *base.output.shape[1:]))
  head = keras.Model(base.output, model.outputs[0])
  np.testing.assert_allclose(result(x), head(mapped), rtol=1e-5, atol=1e-5)


def test_map_is_shared_and_the_same_units_are_personal(case):
  model, k_p, base = case
  result = linear_base(model, k_p)
  before, after = (bayes.last_blocks(k_p)(m) for m in (model, result))
  assert after.personal_names == before.personal_names
  # In Keras 3 the seed of a dropout layer is a variable too.
  shared = [name for name in after.shared_names if not name.endswith('seed_generator_state')]
  assert shared == ['linear_base/kernel', 'linear_base/bias']
  inputs, outputs = (math.prod(shape[1:]) for shape in (model.input_shape, base.output.shape))
  assert result.get_layer('linear_base').count_params() == (inputs + 1) * outputs
  # The first unit is never personal: with the map it would be.
  with pytest.raises(ValueError, match=f'at most {k_p}'):
    bayes.last_blocks(k_p + 1)(result)


def test_head_that_is_a_model_stays_whole():
  model = nested()
  result = linear_base(model, 2)
  kernel = result.get_layer('linear_base').weights[0]
  x = random((2, 6))
  np.testing.assert_allclose(result(x), model.layers[1](x @ kernel), rtol=1e-5, atol=1e-6)
  before, after = (bayes.last_blocks(2)(m) for m in (model, result))
  assert after.personal_names == before.personal_names
  assert after.num_shared == (6 + 1) * 4


def test_head_is_the_models_own_and_the_model_stays_as_it_is():
  model = cnn()
  x = random((2, 17, 18, 2))
  expected, names = model(x).numpy(), [layer.name for layer in model.layers]
  result = linear_base(model, 2)
  assert result.layers[-1] is model.layers[-1]
  np.testing.assert_array_equal(model(x), expected)
  assert [layer.name for layer in model.layers] == names


def test_base_without_activation_is_linear_in_its_input():
  model = bayes.models.resnet(input_shape=(8, 8, 3), blocks_per_stage=(1, 1), filters=(4, 6))
  result = linear_base(model, 1)
  x = random((2, 8, 8, 3))
  np.testing.assert_allclose(
    result(2 * x) - result(x), result(x) - result(0 * x), rtol=1e-4, atol=1e-4
  )


def test_result_is_cloned_saved_and_trained(tmp_path):
  result = linear_base(resnet('batch'), 2)
  x = random((4, 8, 8, 3))
  result.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))
  before = [weight.numpy() for weight in result.weights]
  result.fit(x, np.arange(4), verbose=0)
  # The classifier's bias and everything before it.
  assert all(np.any(a != w.numpy()) for a, w in zip(before, result.weights, strict=True))
  result.save(tmp_path / 'model.keras')
  loaded = keras.models.load_model(tmp_path / 'model.keras')
  np.testing.assert_allclose(loaded(x), result(x), rtol=1e-5, atol=1e-6)
  clone = keras.models.clone_model(result)
  assert bayes.last_blocks(2)(clone) == bayes.last_blocks(2)(result)


def test_tags_of_the_head_survive():
  head = bayes.personal(layers.Dense(2, name='head'))
  model = keras.Sequential([keras.Input((3,)), layers.Dense(4), head])
  assert bayes.tagged()(linear_base(model, 1)).num_personal == 10


def test_unlabelled_activation_goes_and_a_blocks_own_activation_stays():
  def model(name):
    inputs = keras.Input((3,))
    x = layers.Dense(4, name='block01_dense')(inputs)
    x = layers.ReLU(name=name)(x)
    return keras.Model(inputs, layers.Dense(2, name='block02_dense')(x))

  for name, stays in (('relu', False), ('block01_relu', False), ('block02_relu', True)):
    names = [layer.name for layer in linear_base(model(name), 1).layers]
    assert (name in names) == stays


@pytest.mark.parametrize('k_p', [0, -1, 5, True, 1.0])
def test_number_of_units_out_of_range_is_refused(k_p):
  with pytest.raises(ValueError, match=rf'from 1 to 4.*Received: k_p={k_p!r}'):
    linear_base(cnn(), k_p)


def test_residual_link_over_the_cut_is_refused():
  inputs = keras.Input((4,))
  first = layers.Dense(4, name='first')(inputs)
  second = layers.Dense(4, name='second')(first)
  third = layers.Dense(4, name='third')(layers.Add()([first, second]))
  linked = keras.Model(inputs, layers.Add()([third, first]))
  with pytest.raises(ValueError, match=r"residual link.*Received.*\['third'\]"):
    linear_base(linked, 1)
  # Two units that begin where both branches do.
  assert linear_base(linked, 2).count_params() == (4 * 4 + 4) * 3


def test_units_that_see_the_input_itself_are_refused():
  inputs = keras.Input((4,))
  x = layers.Concatenate()([layers.Dense(4)(inputs), inputs])
  # The concatenation has no weights and goes with the base.
  assert linear_base(keras.Model(inputs, layers.Dense(2)(x)), 1).layers[2].units == 8
  output = layers.Add()([layers.Dense(4)(layers.Dense(4)(inputs)), inputs])
  with pytest.raises(ValueError, match='single tensor'):
    linear_base(keras.Model(inputs, output), 1)


def test_layer_that_base_and_head_share_is_refused():
  inputs, twice = keras.Input((4,)), layers.Dense(4)
  model = keras.Model(inputs, layers.Dense(2)(twice(layers.Dense(4)(twice(inputs)))))
  assert linear_base(model, 1).count_params() == 4 * 4 + 4 + 4 * 2 + 2
  labels = [label for label, _ in bayes.blocks(model)]
  k_p = len(labels) - labels.index(twice.name) - 1
  with pytest.raises(ValueError, match='single tensor'):
    linear_base(model, k_p if k_p > 1 else 2)


def test_cut_inside_a_model_inside_is_refused():
  model = nested()
  with pytest.raises(ValueError, match=f'inside {model.layers[0].name}'):
    linear_base(model, 3)
  with pytest.raises(ValueError, match=f'inside {model.layers[1].name}'):
    linear_base(model, 1)


def test_several_inputs_or_outputs_are_refused():
  a, b = keras.Input((3,)), keras.Input((3,))
  x = layers.Dense(3)(layers.Add()([a, b]))
  with pytest.raises(ValueError, match='Received: 2 inputs and 1 outputs'):
    linear_base(keras.Model([a, b], layers.Dense(2)(x)), 1)
  y = layers.Dense(3)(a)
  with pytest.raises(ValueError, match='Received: 1 inputs and 2 outputs'):
    linear_base(keras.Model(a, [layers.Dense(2)(y), layers.Dense(2)(y)]), 1)


def test_subclassed_and_unbuilt_models_are_refused():
  class Subclassed(keras.Model):
    def __init__(self):
      super().__init__(name='mine')
      self.one, self.two = layers.Dense(3), layers.Dense(2)

    def call(self, x):
      return self.two(self.one(x))

  model = Subclassed()
  model(tf.zeros([1, 4]))
  with pytest.raises(TypeError, match='Received: model=mine of type Subclassed'):
    linear_base(model, 1)
  with pytest.raises(ValueError, match='no variables yet'):
    linear_base(keras.Sequential([layers.Dense(3), layers.Dense(2)]), 1)


def test_open_dimension_is_refused():
  model = keras.Sequential([keras.Input((None, 3)), layers.Dense(4), layers.Dense(2)])
  with pytest.raises(ValueError, match=r'Received: shapes \(None, 3\) and \(None, 4\)'):
    linear_base(model, 1)


def test_map_too_large_for_a_client_is_refused_before_it_is_made():
  model = keras.Sequential(
    [keras.Input((20_000,)), layers.Dense(1), layers.RepeatVector(20_000), layers.Dense(2)]
  )
  with pytest.raises(ValueError, match='20000 · 20000 = 400,000,000 weights'):
    linear_base(model, 1)


def test_it_is_made_inside_a_graph_too():
  """Where a federated computation builds its model, Keras 2 has no tensors of its own."""
  with tf.Graph().as_default():
    result = linear_base(bayes.models.cnn(), 2)
    assert last_blocks(2)(result).num_shared == 784 * 100 + 100
