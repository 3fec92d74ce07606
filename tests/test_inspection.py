"""What cannot work is refused before anything is traced, in words that name the argument."""

import pytest
import tensorflow as tf

from tffpers import inspection

SPEC = (tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.int32))
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model(units=2, activation=None):
  return tf.keras.Sequential(
    [tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(units, activation)]
  )


def accuracy():
  return [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')]


def inspect(model_fn=model, loss_fn=LOSS, metrics_fn=accuracy, element_spec=SPEC):
  return inspection.inspect_model(model_fn, loss_fn, metrics_fn, element_spec)


@pytest.mark.parametrize(
  ('arguments', 'error', 'words'),
  [
    ({'loss_fn': 'mse'}, TypeError, "loss_fn must be .*Received: loss_fn='mse'"),
    ({'metrics_fn': [len]}, TypeError, 'metrics_fn must be a function'),
    ({'metrics_fn': lambda: [3]}, TypeError, 'Received: 3'),
    ({'metrics_fn': lambda: [*accuracy(), *accuracy()]}, TypeError, 'distinct'),
    ({'model_fn': lambda: [3]}, TypeError, 'must return a tf.keras.Model. Received: list'),
    (
      {'element_spec': (tf.TensorSpec([4], tf.float32), SPEC[1])},
      ValueError,
      'element_spec=.*does not fit the model',
    ),
    (
      {'loss_fn': lambda y, p: tf.reduce_mean(p)},
      ValueError,
      'does not fit loss_fn: .*one loss per target',
    ),
    (
      {'metrics_fn': lambda: [lambda_metric]},
      ValueError,
      "does not fit the metric 'lambda_metric'",
    ),
  ],
)
def test_wrong_argument_is_refused(arguments, error, words):
  with pytest.raises(error, match=words):
    inspect(**arguments)


def lambda_metric(y, prediction):
  return tf.ensure_shape(prediction, [None, 7])


class Subclassed(tf.keras.Model):
  """A model that is not built until it is called."""

  def __init__(self):
    super().__init__()
    self.dense = tf.keras.layers.Dense(2)

  def call(self, inputs):
    return self.dense(inputs)


def test_subclassed_model_is_built_on_the_spec():
  assert [w.shape.as_list() for w in inspect(Subclassed).weights.trainable] == [[3, 2], [2]]


def test_fingerprint_is_the_same_for_the_same_model_whatever_was_built_before():
  first = inspect().fingerprint
  model()
  assert inspect().fingerprint == first
  assert inspect(Subclassed).fingerprint == inspect(Subclassed).fingerprint


@pytest.mark.parametrize(
  'arguments',
  [
    {'model_fn': lambda: model(3)},
    {'model_fn': lambda: model(activation='relu')},
    {'metrics_fn': list},
  ],
)
def test_fingerprint_changes_with_architecture_and_metrics(arguments):
  assert inspect(**arguments).fingerprint != inspect().fingerprint


def test_dictionary_of_inputs_is_taken():
  def two_inputs():
    a, b = tf.keras.Input([2], name='a'), tf.keras.Input([1], name='b')
    joined = tf.keras.layers.Concatenate()([a, b])
    return tf.keras.Model({'a': a, 'b': b}, tf.keras.layers.Dense(2)(joined))

  x = {'a': tf.TensorSpec([2], tf.float32), 'b': tf.TensorSpec([1], tf.float32)}
  assert len(inspect(two_inputs, element_spec=(x, SPEC[1])).weights.trainable) == 2


def test_model_cut_out_of_another_one_is_taken():
  def cut():
    whole = tf.keras.Sequential([*model(units=3).layers, tf.keras.layers.Dense(2)])
    return tf.keras.Sequential([tf.keras.layers.InputLayer([3]), whole.layers[-1]])

  assert [w.shape.as_list() for w in inspect(cut).weights.trainable] == [[3, 2], [2]]


class Assigned(tf.keras.Sequential):
  """Sets its weights when it is made."""

  def __init__(self):
    super().__init__([tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(2)])
    self.layers[-1].kernel.assign(tf.ones([3, 2]))


def with_layer(layer):
  return lambda: tf.keras.Sequential(
    [tf.keras.layers.InputLayer([3]), layer(), tf.keras.layers.Dense(2)]
  )


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ({'model_fn': Assigned}, 'sets weights of a model that is built already'),
    (
      {
        'model_fn': lambda: model(1),
        'loss_fn': tf.keras.losses.mean_squared_error,
        'metrics_fn': list,
        'element_spec': (SPEC[0], tf.TensorSpec([], tf.float32)),
      },
      'would broadcast',
    ),
    (
      {'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(True, ignore_class=0)},
      'MaskedCrossEntropy',
    ),
    (
      {
        'model_fn': with_layer(
          lambda: tf.keras.layers.Dense(2, activity_regularizer=tf.keras.regularizers.L2(0.1))
        )
      },
      'activity_regularizer',
    ),
    ({'metrics_fn': lambda: [lambda y, p: tf.reduce_mean(p)]}, 'one value per target'),
  ],
)
def test_what_a_computation_cannot_repeat_is_refused(arguments, words):
  with pytest.raises(ValueError, match=words):
    inspect(**arguments)


def test_stateful_recurrent_layers_are_refused():
  def stateful():
    inputs = tf.keras.Input([4, 3], batch_size=7)
    return tf.keras.Model(inputs, tf.keras.layers.LSTM(2, stateful=True)(inputs))

  with pytest.raises(ValueError, match='stateful layer'):
    inspect(stateful, element_spec=(tf.TensorSpec([4, 3], tf.float32), SPEC[1]))


@pytest.mark.parametrize(
  'layer',
  [
    lambda: tf.keras.layers.Lambda(lambda x: tf.nn.dropout(x, 0.5)),
    lambda: tf.keras.layers.Dense(2, kernel_initializer=tf.random_normal_initializer()),
  ],
)
def test_noise_that_no_seed_reaches_is_warned_of(layer):
  with pytest.warns(UserWarning, match='will not repeat'):
    inspect(with_layer(layer))


def test_metric_objects_must_be_new_at_each_call():
  with tf.Graph().as_default():
    shared = accuracy()
  with pytest.raises(TypeError, match='new metrics at each call'):
    inspect(metrics_fn=lambda: shared)


def test_targets_of_a_sequence_are_counted():
  spec = inspect(
    lambda: tf.keras.Sequential([tf.keras.layers.InputLayer([6, 3]), tf.keras.layers.Dense(2)]),
    element_spec=(tf.TensorSpec([6, 3], tf.float32), tf.TensorSpec([6], tf.int32)),
  )
  assert spec.targets_per_example == 6
  assert spec.prediction_shape == (6, 2)
