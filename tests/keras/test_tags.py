"""Tests of the tags that say which layers are personal."""

import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras

IS_KERAS_2 = not hasattr(keras, 'ops')


@keras.utils.register_keras_serializable(package='tffpers_test_tags')
class Composite(keras.layers.Layer):
  """Two dense layers of equal shape, the second personal."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.first = keras.layers.Dense(3)
    self.second = bayes.personal(keras.layers.Dense(3))

  def build(self, input_shape):
    for layer in (self.first, self.second):
      with tf.name_scope(layer.name):
        layer.build(input_shape)
    super().build(input_shape)

  def call(self, inputs):
    return self.second(self.first(inputs))


@keras.utils.register_keras_serializable(package='tffpers_test_tags')
class Subclassed(keras.Model):
  """Layers as attributes, in a list and in a dict."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.head = bayes.personal(keras.layers.Dense(2))
    self.trunk = [keras.layers.Dense(3), keras.layers.BatchNormalization()]
    self.more = {'a': Composite(), 'b': bayes.personal(keras.layers.Dense(3))}

  def call(self, inputs):
    for layer in (*self.trunk, *self.more.values()):
      inputs = layer(inputs)
    return self.head(inputs)

  def get_config(self):
    return {'name': self.name}


def sequential():
  hidden = [keras.layers.Dense(3, 'relu'), keras.layers.BatchNormalization()]
  return keras.Sequential([keras.Input((3,)), *hidden, bayes.personal(keras.layers.Dense(2))])


def functional():
  """Two inputs, two outputs, of which one is personal, and a layer used twice."""
  inputs = [keras.Input((3,)), keras.Input((3,))]
  encoder = keras.layers.Dense(3)
  both = keras.layers.Concatenate()([encoder(x) for x in inputs])
  return keras.Model(
    inputs, [keras.layers.Dense(2)(both), bayes.personal(keras.layers.Dense(2))(both)]
  )


def nested():
  """A personal model with a shared layer inside."""
  layers = [keras.layers.Dense(3), bayes.shared(keras.layers.Dense(3))]
  inner = bayes.personal(keras.Sequential([keras.Input((3,)), *layers]))
  inputs = keras.Input((3,))
  return keras.Model(inputs, keras.layers.Dense(3)(inner(inputs)))


def wrapped():
  """Personal layers inside the wrappers of Keras, of which one renames them."""
  return keras.Sequential(
    [
      keras.Input((4, 3)),
      keras.layers.TimeDistributed(bayes.personal(keras.layers.Dense(3))),
      keras.layers.Dense(3),
      keras.layers.Bidirectional(bayes.personal(keras.layers.SimpleRNN(2))),
    ]
  )


def composite():
  return keras.Sequential([keras.Input((3,)), Composite(), keras.layers.Dense(2)])


def subclassed():
  model = Subclassed()
  model(tf.ones([1, 3]))
  return model


EXPECTED = {
  sequential: [False] * 4 + [True] * 2,
  functional: [False] * 4 + [True] * 2,
  nested: [True] * 2 + [False] * 4,
  wrapped: [True] * 2 + [False] * 2 + [True] * 6,
  composite: [False] * 2 + [True] * 2 + [False] * 2,
  subclassed: [True] * 2 + [False] * 4 + [False] * 2 + [True] * 4,
}
KINDS = list(EXPECTED)


def cloned(model, folder):
  if isinstance(model, Subclassed):
    return Subclassed.from_config(model.get_config())
  return keras.models.clone_model(model)


def from_config(model, folder):
  return type(model).from_config(model.get_config())


def saved(name):
  def load(model, folder):
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # Keras calls .h5 a legacy format.
      model.save(folder / name)
    return keras.models.load_model(folder / name)

  return load


COPIES = {'clone': cloned, 'config': from_config, 'keras': saved('m.keras'), 'h5': saved('m.h5')}
if IS_KERAS_2:
  COPIES['SavedModel'] = saved('m')


def zeros_for(model):
  inputs = getattr(model, 'inputs', None)
  if not inputs:
    return tf.ones([1, 3])
  given = [tf.ones([1, *x.shape[1:]]) for x in inputs]
  return given if len(given) > 1 else given[0]


@pytest.mark.parametrize('make', KINDS)
def test_the_innermost_tag_decides(make):
  partition = bayes.tagged()(make())
  assert list(partition.trainable) == EXPECTED[make]
  assert not any('moving' in name for name in partition.personal_names)


@pytest.mark.parametrize(
  'make, copy',
  [
    (make, copy)
    for make in KINDS
    for copy in COPIES
    # Keras saves no subclassed model as .h5; a SavedModel of recurrent layers takes long.
    if (make, copy) not in [(subclassed, 'h5'), (wrapped, 'SavedModel')]
  ],
)
def test_m5_tags_survive_cloning_and_saving(make, copy, tmp_path):
  model = make()
  again = COPIES[copy](model, tmp_path)
  if not again.built:
    again(zeros_for(model))
  assert bayes.tagged()(again) == bayes.tagged()(model)
  if copy not in ('clone', 'config'):
    for a, b in zip(model.trainable_variables, again.trainable_variables, strict=True):
      np.testing.assert_array_equal(a, b)


def test_m5_tags_are_read_in_a_new_process(tmp_path):
  model = sequential()
  model.save(tmp_path / 'm.keras')
  code = f"""
import tffpers.keras as bayes
from tffpers.keras.backend import keras
print(bayes.tagged()(keras.models.load_model({str(tmp_path / 'm.keras')!r})).trainable)
"""
  root = str(pathlib.Path(__file__).parents[2])
  done = subprocess.run(
    [sys.executable, '-c', code],
    env=os.environ | {'PYTHONPATH': root},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.stdout.strip() == str(bayes.tagged()(model).trainable), done.stderr[-2000:]


@pytest.mark.parametrize('make', [sequential, nested, subclassed])
def test_m5_automatic_names_do_not_matter(make):
  first = bayes.tagged()(make())
  for _ in range(11):  # Passes dense_9 and dense_10, whose names sort the other way.
    again = make()
  assert bayes.tagged()(again) == first


def test_m5_two_layers_of_one_name_are_refused_by_keras():
  layers = [bayes.personal(keras.layers.Dense(2, name='head')) for _ in range(2)]
  with pytest.raises(ValueError, match='unique'):
    keras.Sequential([keras.Input((3,)), *layers])


@pytest.mark.parametrize('built', [False, True])
def test_tagging_renames_the_same_layer_once(built):
  layer = keras.layers.Dense(2, name='dense')
  if built:
    layer.build((None, 3))
  assert bayes.personal(layer) is layer
  assert bayes.personal(bayes.personal(layer)).name == 'personal__dense'
  assert bayes.shared(keras.layers.Dense(2, name='dense')).name == 'shared__dense'
  model = keras.Sequential([keras.Input((3,)), layer])
  assert model.get_layer('personal__dense') is layer


def test_m7_a_layer_cannot_have_both_tags():
  with pytest.raises(ValueError, match='shared__dense is tagged shared and cannot be personal'):
    bayes.personal(bayes.shared(keras.layers.Dense(2, name='dense')))
  with pytest.raises(ValueError, match='personal__dense is tagged personal and cannot be shared'):
    bayes.shared(bayes.personal(keras.layers.Dense(2, name='dense')))


def test_only_layers_can_be_tagged():
  with pytest.raises(TypeError, match='Keras layer or model'):
    bayes.personal(keras.Input((3,)))
  with pytest.raises(TypeError, match='Keras layer or model'):
    bayes.shared([keras.layers.Dense(2)])


@pytest.mark.parametrize('position', [0, 1])
def test_a_layer_of_a_finished_model_is_tagged_soundly_or_not_at_all(position):
  inputs = keras.Input((3,))
  layers = [keras.layers.Dense(3, name='a'), keras.layers.Dense(2, name='b')]
  model = keras.Model(inputs, layers[1](layers[0](inputs)))
  expected = [False] * 4
  if IS_KERAS_2:
    with pytest.raises(ValueError, match='Tag the layer before it is called'):
      bayes.personal(layers[position])
    assert [layer.name for layer in layers] == ['a', 'b']
  else:
    bayes.personal(layers[position])
    expected[2 * position : 2 * position + 2] = [True, True]
  copy = keras.models.clone_model(model)
  decide = bayes.last_blocks(0) if IS_KERAS_2 else bayes.tagged()
  assert list(decide(copy).trainable) == expected


def test_a_finished_model_is_tagged_as_a_whole():
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
  outer = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), bayes.personal(model)])
  assert bayes.tagged()(outer).trainable == (False, False, True, True)
  assert bayes.tagged()(model).trainable == (True, True)
