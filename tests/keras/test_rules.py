"""Tests of the rules that choose personal variables."""

import numpy as np
import pytest
import tensorflow as tf

import tffpers.keras as bayes
from tffpers.keras.backend import keras
from tffpers.keras.models.resnet import resnet

L = keras.layers
EVERYTHING = bayes.named(lambda path: True)


def sequential(*layers, shape=(3,)):
  return keras.Sequential([keras.Input(shape), *layers])


def mlp(*, head=lambda layer: layer):
  """Three dense layers with batch, and layer, normalisation after the first two."""
  return sequential(
    L.Dense(4, name='a'),
    L.BatchNormalization(name='batch'),
    L.Dense(5, name='b'),
    L.LayerNormalization(name='layer'),
    head(L.Dense(2, name='c')),
  )


def nested():
  layers = [L.Dense(3, name=name) for name in 'ab']
  encoder = keras.Sequential([keras.Input((3,)), *layers], name='encoder')
  inputs = keras.Input((3,))
  return keras.Model(inputs, L.Dense(2, name='head')(encoder(inputs)))


class Direct(keras.Model):
  """A model with a weight of its own, a tied one, and layers in a dict."""

  def __init__(self, tie=False):
    super().__init__(name='direct')
    self.parts = {'a': L.Dense(3, use_bias=False, name='a'), 'b': L.Dense(3, name='b')}
    self.scale = self.add_weight(name='scale', shape=(3,), initializer='ones')
    self.tie = tie

  def call(self, inputs):
    hidden = self.parts['a'](inputs)
    if self.tie and not hasattr(self.parts['b'], 'tied'):
      self.parts['b'].tied = self.parts['a'].kernel
    return self.parts['b'](hidden) * self.scale


def direct(**kwargs):
  model = Direct(**kwargs)
  model(tf.ones([1, 3]))
  return model


def personal_of(rule, model):
  return set(rule(model).personal_names)


def of(layer, *variables):
  return {f'{layer}/{variable}' for variable in variables}


DENSE, BATCH, LAYER = ('kernel', 'bias'), ('gamma', 'beta'), ('gamma', 'beta')
STATISTICS = ('moving_mean', 'moving_variance')


def test_p10_k_counts_units_from_the_output():
  classifier = of('c', *DENSE)
  second = of('b', *DENSE) | of('layer', *LAYER)
  assert personal_of(bayes.last_blocks(0), mlp()) == set()
  assert personal_of(bayes.last_blocks(1), mlp()) == classifier
  assert personal_of(bayes.last_blocks(2), mlp()) == classifier | second


def test_p10_k_beyond_the_blocks_is_refused_and_the_stem_is_never_personal():
  with pytest.raises(ValueError, match=r"3 units, \['a', 'b', 'c'\].*at most 2. Received: k=3"):
    bayes.last_blocks(3)(mlp())
  with pytest.raises(ValueError, match='at most 0. Received: k=1'):
    bayes.last_blocks(1)(sequential(L.Dense(2)))


@pytest.fixture(scope='module')
def resnet_34():
  return resnet(input_shape=(8, 8, 1), filters=(2, 2, 2, 2), num_classes=3, normalization='batch')


@pytest.mark.parametrize('k, blocks', [(1, ()), (2, (16,)), (4, (14, 15, 16)), (17, range(1, 17))])
def test_p10_resnet_34(resnet_34, k, blocks):
  split = bayes.last_blocks(k)(resnet_34)
  prefixes = ('classifier', *(f'block{number:02d}_' for number in blocks))
  assert split.personal_names == [name for name in split.names if name.startswith(prefixes)]
  assert split.num_shared + split.num_personal == resnet_34.count_params()
  with pytest.raises(ValueError, match='at most 17'):
    bayes.last_blocks(18)(resnet_34)


def test_p1_everything_can_be_personal_by_a_predicate():
  for model in (mlp(), nested(), direct()):
    split = EVERYTHING(model)
    assert all(split.trainable + split.non_trainable) and split.num_shared == 0
    assert split.num_personal == model.count_params()


def test_a_predicate_sees_the_paths_of_layers_and_of_those_around_them():
  assert personal_of(bayes.named(lambda path: path == 'encoder'), nested()) == {
    f'encoder/{layer}/{variable}' for layer in 'ab' for variable in DENSE
  }
  chosen = bayes.named(lambda path: path == 'encoder/b')
  assert personal_of(chosen, nested()) == of('encoder/b', *DENSE)
  outside = bayes.named(lambda path: not path.startswith('encoder'))
  assert personal_of(outside, nested()) == of('head', *DENSE)


def test_variables_of_the_model_itself_are_at_its_root():
  assert personal_of(bayes.named(lambda path: path == ''), direct()) == {'scale'}
  assert personal_of(bayes.last_blocks(1), direct()) == of('b', *DENSE)
  assert personal_of(bayes.tagged(), bayes.personal(direct())) == {'scale', 'a/kernel'} | of(
    'b', *DENSE
  )


def test_m1_normalisation_layers_are_a_choice():
  rule = bayes.last_blocks
  classifier = of('c', *DENSE)
  assert personal_of(rule(1, normalization='personal'), mlp()) == (
    classifier | of('batch', *BATCH, *STATISTICS) | of('layer', *LAYER)
  )
  assert personal_of(rule(1, normalization='personal_statistics'), mlp()) == (
    classifier | of('batch', *STATISTICS)
  )
  model = mlp(head=bayes.personal)
  head = of('personal__c', *DENSE)
  statistics = of('batch', *STATISTICS)
  assert personal_of(bayes.tagged(normalization='personal_statistics'), model) == head | statistics
  chosen = bayes.named(lambda path: path == 'b', normalization='personal_statistics')
  assert personal_of(chosen, model) == of('b', *DENSE) | statistics


@pytest.mark.parametrize('options', [{}, {'scale': False, 'center': False}, {'trainable': False}])
def test_statistics_are_personal_whatever_the_batch_normalisation(options):
  model = sequential(L.Dense(3), L.BatchNormalization(name='batch', **options), L.Dense(2))
  chosen = bayes.last_blocks(0, normalization='personal_statistics')
  assert personal_of(chosen, model) == of('batch', *STATISTICS)


@pytest.mark.parametrize('kind', ['synchronized', 'version 1'])
def test_every_class_of_batch_normalisation_is_one(kind):
  if kind == 'version 1' and hasattr(keras, 'ops'):
    pytest.skip('Keras 3 has one class of batch normalisation')
  layers = {
    'synchronized': lambda: L.BatchNormalization(synchronized=True),
    'version 1': lambda: tf.compat.v1.keras.layers.BatchNormalization(),
  }
  split = bayes.last_blocks(0, normalization='personal')(sequential(L.Dense(3), layers[kind]()))
  assert split.non_trainable == (True, True) and split.trainable == (False, False, True, True)


def test_group_normalisation_is_personal_but_has_no_statistics():
  model = sequential(L.Dense(4), L.GroupNormalization(2, name='group'), L.Dense(2))
  assert personal_of(bayes.last_blocks(0, normalization='personal'), model) == of('group', *BATCH)
  with pytest.raises(ValueError, match="no normalisation layer.*'personal_statistics'"):
    bayes.last_blocks(0, normalization='personal_statistics')(model)


@pytest.mark.parametrize('choice', ['personal', 'personal_statistics'])
def test_m4_normalisation_cannot_be_personal_where_there_is_none(choice):
  plain = sequential(L.Dense(3), bayes.personal(L.Dense(2)))
  for rule in (bayes.tagged, lambda **kw: bayes.last_blocks(1, **kw)):
    with pytest.raises(ValueError, match=f"no normalisation layer.*normalization='{choice}'"):
      rule(normalization=choice)(plain)


def test_m4_a_rule_that_matches_nothing_says_what_there_is():
  model = mlp()
  with pytest.raises(ValueError, match=r"tagged personal.*\['a', 'batch', 'b', 'layer', 'c'\]"):
    bayes.tagged()(model)
  with pytest.raises(ValueError, match='tagged personal'):
    bayes.tagged(normalization='personal')(model)
  with pytest.raises(ValueError, match=r"matches the predicate.*\['encoder/a', 'encoder/b'"):
    bayes.named(lambda path: path == 'no such layer')(nested())
  with pytest.raises(ValueError, match='tagged personal'):
    bayes.tagged()(sequential(L.Dense(2), bayes.personal(L.Dropout(0.5, name='dropout'))))


def test_m2_a_model_without_variables_is_refused():
  for rule in (bayes.last_blocks(0), EVERYTHING):
    with pytest.raises(ValueError, match='direct has no variables yet'):
      rule(Direct())
    with pytest.raises(ValueError, match='nothing to learn'):
      rule(sequential(L.Flatten()))
  frozen = mlp()
  frozen.trainable = False
  with pytest.raises(ValueError, match='nothing to learn'):
    EVERYTHING(frozen)


def test_m6_values_go_by_the_variables_not_by_their_order():
  class Pair(L.Layer):
    def __init__(self):
      super().__init__(name='pair')
      self.first = L.Dense(3, use_bias=False, name='first')
      self.second = L.Dense(3, use_bias=False, name='second')

    def call(self, inputs):
      return self.second(self.first(inputs))

  model = sequential(Pair(), L.Dense(3, use_bias=False, name='third'))
  layers = [model.layers[0].first, model.layers[0].second, model.layers[1]]
  for number, layer in enumerate(layers):
    layer.set_weights([np.full((3, 3), number, np.float32)])
  rule = bayes.named(lambda path: path == 'pair/second')

  def values(variables):
    return [float(np.array(value)[0, 0]) for value in variables]

  split = rule(model)
  assert [values(side) for side in split.split(model.trainable_variables)] == [[0, 2], [1]]
  layers[0].trainable = False
  split = rule(model)
  assert [values(side) for side in split.split(model.trainable_variables)] == [[2], [1]]
  frozen = split.split_non_trainable(model.non_trainable_variables)
  assert [values(side) for side in frozen] == [[0], []]


def test_several_inputs_and_outputs():
  inputs = [keras.Input((3,), name='x'), keras.Input((4,), name='y')]
  both = L.Concatenate()([L.Dense(2, name='left')(inputs[0]), L.Dense(2, name='right')(inputs[1])])
  heads = [L.Dense(1, name=bayes.block_name(1, name))(both) for name in ('mean', 'scale')]
  model = keras.Model(inputs, heads)
  assert personal_of(bayes.last_blocks(1), model) == (
    of('block01_mean', *DENSE) | of('block01_scale', *DENSE)
  )


def test_m7_a_layer_used_twice_counts_once():
  encoder = L.Dense(3, name='encoder')
  inputs = [keras.Input((3,)), keras.Input((3,))]
  both = L.Concatenate()([encoder(x) for x in inputs])
  model = keras.Model(inputs, bayes.personal(L.Dense(2))(both))
  split = bayes.tagged()(model)
  assert (split.num_shared, split.num_personal) == (3 * 3 + 3, 6 * 2 + 2)


def towers(left, right, encoder=lambda layer: layer):
  """One encoder inside two models."""
  layer = encoder(L.Dense(3, name='encoder'))
  inputs = keras.Input((3,))
  tower = [
    tag(keras.Sequential([keras.Input((3,)), layer, L.Dense(2)], name=name))
    for tag, name in ((left, 'left'), (right, 'right'))
  ]
  return keras.Model(inputs, L.Add()([tower[0](inputs), tower[1](inputs)]))


def test_m7_a_variable_cannot_be_both_shared_and_personal():
  message = (
    'personal__left/encoder/kernel would be both personal, in personal__left/encoder, and shared, '
    'in {}right/encoder'
  )
  for tag, prefix in ((bayes.shared, 'shared__'), (lambda model: model, '')):
    with pytest.raises(ValueError, match=message.format(prefix)):
      bayes.tagged()(towers(bayes.personal, tag))
  with pytest.raises(ValueError, match='left/encoder/kernel would be both'):
    bayes.named(lambda path: path == 'left')(towers(*[lambda model: model] * 2))
  agreed = bayes.tagged()(towers(bayes.personal, bayes.shared, bayes.personal))
  assert agreed.personal_names[:2] == [
    'personal__left/personal__encoder/kernel', 'personal__left/personal__encoder/bias'
  ]  # fmt: skip


def test_m7_tied_weights_cannot_be_split():
  with pytest.raises(ValueError, match='kernel would be both'):
    bayes.last_blocks(1)(direct(tie=True))
  assert EVERYTHING(direct(tie=True)).num_shared == 0


def test_m5_a_partition_does_not_depend_on_automatic_names():
  def make():
    return sequential(L.Dense(3), L.Dense(3), L.Dense(2))

  first = bayes.last_blocks(1)(make())
  for _ in range(11):  # Passes dense_9 and dense_10, whose names sort the other way.
    again = bayes.last_blocks(1)(make())
    assert again == first


def test_wrong_settings_are_refused_at_once():
  for k in (-1, 1.0, True, '1'):
    with pytest.raises(ValueError, match='k must be an integer'):
      bayes.last_blocks(k)
  with pytest.raises(ValueError, match="as_layer.*normalization='none'"):
    bayes.tagged(normalization='none')
  with pytest.raises(TypeError, match="predicate='head'"):
    bayes.named('head')
