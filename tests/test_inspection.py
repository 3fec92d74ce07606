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
    ({'model_fn': lambda: 3}, TypeError, 'must return a tf.keras.Model. Received: int'),
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
