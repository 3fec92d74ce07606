"""Tests of how a network's stem, blocks and classifier are found."""

import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.models.resnet import resnet
from tffpers.keras.units import STEM

L = keras.layers


def sequential(*layers, shape=(3,)):
  return keras.Sequential([keras.Input(shape), *layers])


def units(model):
  """Labels with the names of the layers of each unit."""
  return [(label, [layer.name for layer in layers]) for label, layers in bayes.blocks(model)]


def labels(model):
  return [label for label, _ in bayes.blocks(model)]


def labelled():
  """Stem and two blocks, with a shortcut in the second."""
  inputs = keras.Input((4,))
  x = L.Dense(4, name=STEM + 'dense')(inputs)
  x = L.BatchNormalization(name=STEM + 'norm')(x)
  x = L.Dense(4, name=bayes.block_name(1, 'dense'))(x)
  y = L.Dense(4, name=bayes.block_name(2, 'dense1'))(x)
  y = L.Dense(4, name=bayes.block_name(2, 'dense2'))(y)
  shortcut = L.Dense(4, name=bayes.block_name(2, 'shortcut'))(x)
  return keras.Model(inputs, L.Add(name=bayes.block_name(2, 'add'))([y, shortcut]), name='base')


def test_every_weighted_layer_of_a_plain_network_is_a_unit_with_its_normalisation():
  model = sequential(
    L.Conv2D(2, 3, name='conv1'),
    L.BatchNormalization(name='norm1'),
    L.ReLU(),
    L.Conv2D(2, 3, name='conv2'),
    L.GroupNormalization(1, name='norm2'),
    L.PReLU(name='prelu'),
    L.Flatten(),
    L.Dropout(0.5),
    L.Dense(4, name='hidden'),
    L.LayerNormalization(name='norm3'),
    L.Dense(2, name='logits'),
    shape=(6, 6, 1),
  )
  assert units(model) == [
    ('conv1', ['conv1', 'norm1']),
    ('conv2', ['conv2', 'norm2', 'prelu']),
    ('hidden', ['hidden', 'norm3']),
    ('logits', ['logits']),
  ]


def test_a_normalisation_of_the_inputs_belongs_to_the_first_unit():
  norms = [L.Normalization(name='scale'), L.BatchNormalization(name='norm')]
  model = sequential(*norms, L.Dense(2, name='a'), L.Dense(2, name='b'))
  assert units(model) == [('a', ['scale', 'norm', 'a']), ('b', ['b'])]


def test_labelled_layers_of_one_block_are_one_unit():
  model = keras.Sequential([labelled(), L.BatchNormalization(name='norm'), L.Dense(2, name='head')])
  assert [(label, set(names)) for label, names in units(model)] == [
    ('base/stem', {'stem_dense', 'stem_norm'}),
    ('base/block01', {'block01_dense'}),
    ('base/block02', {'block02_dense1', 'block02_dense2', 'block02_shortcut', 'norm'}),
    ('head', {'head'}),
  ]
  assert labels(labelled()) == ['stem', 'block01', 'block02']


def test_p10_resnet_34_has_a_stem_16_blocks_and_a_classifier():
  model = resnet(input_shape=(8, 8, 1), filters=(2, 2, 2, 2), num_classes=3, normalization='batch')
  found = bayes.blocks(model)
  blocks = [f'block{number:02d}' for number in range(1, 17)]
  assert [label for label, _ in found] == ['stem', *blocks, 'classifier']
  weights = [weight for _, layers in found for layer in layers for weight in layer.weights]
  assert len({id(weight) for weight in weights}) == len(weights) == len(model.weights)


def test_labels_hold_for_whole_models_and_composite_layers():
  name = bayes.block_name(1, 'mlp')
  block = keras.Sequential([keras.Input((4, 3)), L.Dense(3), L.Dense(3)], name=name)
  attention = L.MultiHeadAttention(1, 2, name=bayes.block_name(2, 'attention'))
  inputs = keras.Input((4, 3))
  x = block(inputs)
  model = keras.Model(inputs, L.Dense(2, name='head')(attention(x, x)))
  assert labels(model) == ['block01', 'block02', 'head']


def test_layers_inside_layers_are_one_unit_unless_they_are_labelled():
  class Composite(L.Layer):
    def __init__(self, names):
      super().__init__(name='composite')
      self.parts = [L.Dense(3, name=name) for name in names]

    def call(self, inputs):
      for part in self.parts:
        inputs = part(inputs)
      return inputs

  plain = sequential(L.Bidirectional(L.LSTM(2), name='lstm'), Composite('ab'), shape=(4, 3))
  assert units(plain) == [('lstm', ['lstm']), ('composite', ['composite'])]
  names = [bayes.block_name(number, 'dense') for number in (1, 2)]
  assert labels(sequential(Composite(names))) == ['composite/block01', 'composite/block02']


def test_subclassed_models_hold_their_layers_in_lists_and_dicts():
  class Subclassed(keras.Model):
    def __init__(self):
      super().__init__()
      self.stem = L.Dense(3, name='first')
      self.trunk = [L.Dense(3, name='second'), L.BatchNormalization(name='norm')]
      self.heads = {'a': L.Dense(3, name='third')}

    def call(self, inputs):
      for layer in (self.stem, *self.trunk, *self.heads.values()):
        inputs = layer(inputs)
      return inputs

  model = Subclassed()
  with pytest.raises(ValueError, match='build or call'):
    bayes.blocks(model)
  model(tf.ones([2, 3]))
  assert units(model) == [
    ('first', ['first']),
    ('second', ['second', 'norm']),
    ('third', ['third']),
  ]


def test_m7_a_layer_used_twice_is_one_unit():
  encoder = L.Dense(3, name='encoder')
  tower = sequential(encoder, L.Dense(3, name='tower'))
  inputs = [keras.Input((3,)), keras.Input((3,))]
  both = L.Concatenate()([encoder(inputs[0]), tower(inputs[1])])
  model = keras.Model(inputs, L.Dense(2, name='head')(both))
  assert sorted(name for _, names in units(model) for name in names) == ['encoder', 'head', 'tower']


def test_tags_and_freezing_change_no_unit():
  def make():
    head = bayes.personal(L.Dense(2, name='head'))
    tagged = bayes.shared(L.Dense(3, name=bayes.block_name(1, 'dense')))
    return sequential(L.Dense(3, name='first'), tagged, L.BatchNormalization(), head)

  expected = ['first', 'block01', 'personal__head']
  model = make()
  assert labels(model) == expected
  before = units(model)
  model.layers[0].trainable = False
  assert units(model) == before
  model.trainable = False
  assert units(model) == before


def test_block_numbers_must_ascend():
  second, first = (L.Dense(3, name=bayes.block_name(number, 'dense')) for number in (2, 1))
  with pytest.raises(ValueError, match='block01_dense after block 2'):
    bayes.blocks(sequential(second, first))
  with pytest.raises(ValueError, match='number=0'):
    bayes.block_name(0, 'conv')
  assert bayes.block_name(120, 'conv') == 'block120_conv'
