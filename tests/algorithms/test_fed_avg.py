"""FedAvg against numbers worked by hand and against TFF's own."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers.algorithms import build_fed_avg
from tffpers.keras import metrics

LINEAR_SPEC = (tf.TensorSpec([1], tf.float32), tf.TensorSpec([1], tf.float32))


def half_squared_error(y, prediction):
  return 0.5 * tf.reduce_sum(tf.square(prediction - y), -1)


def one_weight():
  return tf.keras.Sequential(
    [tf.keras.layers.InputLayer([1]), tf.keras.layers.Dense(1, use_bias=False)]
  )


@functools.cache
def linear(**overrides):
  return build_fed_avg(
    model_fn=one_weight,
    **toy.settings(
      **{
        'loss_fn': half_squared_error,
        'metrics_fn': lambda: [],
        'element_spec': LINEAR_SPEC,
        'epochs': 1,
        'batch_size': 10,
        **overrides,
      }
    ),
  )


def client(x, y):
  column = lambda v: np.asarray(v, np.float32)[:, None]  # noqa: E731
  return {'train': {'x': column(x), 'y': column(y)}, 'seed': np.array([1, 2], np.int32)}


def start(process, weight):
  server, clients = toy.start(process, [1, 1])
  value = [np.array([[weight]], np.float32)]
  weights = server.model.weights._replace(trainable=value)
  return server._replace(model=server.model._replace(weights=weights)), clients


def test_one_round_averages_by_examples_not_by_clients_or_batches():
  process = linear(batch_size=1)
  server, clients = start(process, 1.0)
  # Client a: one example, x = 1, y = 0: w ← 1 − 0.1·1 = 0.9.
  # Client b: three examples x = 1, y = 3: w − 3 shrinks by 0.9³: w = 3 − 2·0.729 = 1.542.
  server, clients, metrics, _ = process.next(
    server, clients, [client([1], [0]), client([1, 1, 1], [3, 3, 3])]
  )
  np.testing.assert_allclose(server.model.weights.trainable[0], (0.9 + 3 * 1.542) / 4, rtol=1e-6)
  assert metrics == {'num_clients': 2, 'weight': 4.0, 'num_nonfinite': 0}
  np.testing.assert_allclose(clients[0].weights.trainable[0], 0.9, rtol=1e-6)
  np.testing.assert_allclose(clients[1].weights.trainable[0], 1.542, rtol=1e-6)


def test_training_uses_every_example_once_per_epoch_and_a_short_last_batch():
  process = linear(batch_size=2, epochs=3)
  server, clients = start(process, 0.0)
  _, _, _, (metrics,) = process.next(server, clients[:1], [client([1] * 5, [1] * 5)])
  assert metrics['num_steps'] == 9
  assert metrics['num_examples'] == 5


def test_loss_is_the_mean_per_example_whatever_the_batches():
  frozen = tff.learning.optimizers.build_sgdm(0.0)
  for batch_size in (1, 4, 5):
    process = linear(batch_size=batch_size, optimizer=frozen)
    server, clients = start(process, 0.0)
    _, _, _, (metrics,) = process.next(
      server, clients[:1], [client([1] * 5, [0, 0, 0, 0, np.sqrt(20)])]
    )
    np.testing.assert_allclose(metrics['loss'], 2.0, rtol=1e-6)


def test_gradients_are_clipped_by_their_global_norm():
  process = linear(clip_norm=0.5)
  server, clients = start(process, 0.0)
  server, _, _, _ = process.next(server, clients[:1], [client([1], [100])])
  np.testing.assert_allclose(server.model.weights.trainable[0], 0.1 * 0.5, rtol=1e-6)


def test_equals_tffs_own_fed_avg_on_full_batches():
  """One full batch per epoch leaves no room for the order of examples."""
  process = build_fed_avg(model_fn=toy.plain_model, **toy.settings(batch_size=100))
  sizes = [10, 7, 3]
  server, clients, _, _ = toy.run(process, sizes, [[0, 1, 2]] * 2)
  initial, _ = toy.start(process, sizes)
  spec = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), toy.ELEMENT_SPEC)
  stock = tff.learning.algorithms.build_weighted_fed_avg(
    lambda: tff.learning.models.from_keras_model(
      toy.plain_model(), loss=toy.settings()['loss_fn'], input_spec=spec
    ),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
  )
  state = stock.set_model_weights(
    stock.initialize(), tff.learning.models.ModelWeights(initial.model.weights.trainable, [])
  )
  data = [
    tf.data.Dataset.from_tensor_slices((e['x'], e['y'])).batch(100).repeat(2)
    for e in (toy.examples(i, n) for i, n in enumerate(sizes))
  ]
  for _ in range(2):
    state = stock.next(state, data).state
  toy.assert_close(
    server.model.weights.trainable,
    list(stock.get_model_weights(state).trainable),
    rtol=1e-5,
    atol=1e-6,
  )


def test_mt_is_the_clients_last_model_and_s_the_servers():
  process = linear(metrics_fn=lambda: [tf.keras.metrics.MeanSquaredError('mse')])
  server, clients = start(process, 0.0)
  server, clients, _, _ = process.next(server, clients, [client([1], [1]), client([1], [3])])
  data = [{'test': client([1], [0])['train'], 'seed': np.array([1, 2], np.int32)}] * 2
  a, b = process.evaluate(server, clients, data)
  np.testing.assert_allclose([a['client']['mse'], b['client']['mse']], [0.01, 0.09], rtol=1e-5)
  np.testing.assert_allclose([a['server']['mse'], b['server']['mse']], [0.04, 0.04], rtol=1e-5)
  np.testing.assert_allclose(a['client']['loss'], 0.005, rtol=1e-5)


def test_server_momentum_does_not_drift_in_a_round_where_nobody_counts():
  process = linear(server_optimizer=tff.learning.optimizers.build_sgdm(1.0, 0.9))
  server, clients = start(process, 0.0)
  server, clients, _, _ = process.next(server, clients[:1], [client([1], [1])])
  after, _, _, _ = process.next(server, clients, [client([], [])])
  toy.assert_equal(after.model, server.model)
  assert after.round == 2


def batch_norm_model():
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([1]),
      tf.keras.layers.BatchNormalization(momentum=0.5),
      tf.keras.layers.Dense(1),
    ]
  )


def test_batch_norm_statistics_are_averaged_by_examples():
  process = build_fed_avg(
    model_fn=batch_norm_model,
    **toy.settings(
      loss_fn=half_squared_error,
      metrics_fn=lambda: [],
      element_spec=LINEAR_SPEC,
      epochs=1,
      batch_size=10,
    ),
  )
  server, clients = toy.start(process, [2, 2])
  server, _, _, _ = process.next(
    server, clients, [client([0, 0], [0, 0]), client([10, 10], [0, 0])]
  )
  mean, variance = server.model.weights.non_trainable
  # Each client moves halfway from the start (0, 1) to its batch: means 0 and 5, variances ½.
  np.testing.assert_allclose(mean, [2.5], rtol=1e-6)
  np.testing.assert_allclose(variance, [0.5], rtol=1e-6)


class Counter(tf.keras.layers.Layer):
  """Counts its training calls in an integer."""

  def build(self, input_shape):
    self.calls = self.add_weight('calls', (), tf.int64, 'zeros', trainable=False)

  def call(self, inputs, training=None):
    if training:
      self.calls.assign_add(1)
    return inputs


def test_integer_counters_stay_on_their_client():
  def model():
    return tf.keras.Sequential(
      [tf.keras.layers.InputLayer([1]), Counter(), tf.keras.layers.Dense(1)]
    )

  process = build_fed_avg(
    model_fn=model,
    **toy.settings(
      loss_fn=half_squared_error,
      metrics_fn=lambda: [],
      element_spec=LINEAR_SPEC,
      epochs=3,
      batch_size=10,
    ),
  )
  server, clients = toy.start(process, [1, 1])
  for _ in range(2):
    data = [client([1], [1]), client([], [])]
    server, clients, _, (metrics, _) = process.next(server, clients, data)
  assert metrics['bytes_down'] == metrics['bytes_up'] == 2 * 4
  assert [c.weights.non_trainable[0] for c in clients] == [6, 0]
  assert server.model.weights.non_trainable[0] == 0
  assert server.model.weights.non_trainable[0].dtype == np.int64


def test_frozen_layers_do_not_drift():
  def model():
    frozen = tf.keras.layers.Dense(2, trainable=False)
    return tf.keras.Sequential([tf.keras.layers.InputLayer([1]), frozen, tf.keras.layers.Dense(1)])

  process = build_fed_avg(
    model_fn=model,
    **toy.settings(
      loss_fn=half_squared_error,
      metrics_fn=lambda: [],
      element_spec=LINEAR_SPEC,
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0, 0.9),
    ),
  )
  server, clients = toy.start(process, [2, 2])
  before = server.model.weights
  for _ in range(5):
    server, clients, _, _ = process.next(
      server, clients, [client([1, 2], [1, 0]), client([3, 1], [1, 5])]
    )
  toy.assert_equal(server.model.weights.non_trainable, before.non_trainable)
  assert np.any(server.model.weights.trainable[0] != before.trainable[0])


def test_unweighted_factory_is_refused():
  with pytest.raises(TypeError, match='weighted tff.aggregators factory'):
    linear(aggregator=tff.aggregators.SumFactory())


@pytest.mark.parametrize(
  'factory',
  [
    tff.learning.robust_aggregator(zeroing=False),
    tff.aggregators.as_weighted_aggregator(
      tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 2, 100.0)
    )
    if hasattr(tff.aggregators, 'as_weighted_aggregator')
    else None,
  ],
)
def test_tffs_own_aggregators_apply(factory):
  process = linear(aggregator=factory)
  server, clients = start(process, 0.0)
  server, _, _, _ = process.next(server, clients, [client([1], [1]), client([1], [1])])
  np.testing.assert_allclose(server.model.weights.trainable[0], [[0.1]], rtol=1e-4)


def test_calibration_error_inside_a_computation_is_that_outside():
  """TFF traces in plain graphs, where `==` on tensors compares objects."""
  process = build_fed_avg(
    model_fn=toy.plain_model,
    **toy.settings(metrics_fn=lambda: [metrics.ExpectedCalibrationError()]),
  )
  server, clients, _, _ = toy.run(process, [10], [[0]])
  data = toy.held_out(0, 200)
  (result,) = process.evaluate(server, clients, [data])
  model = toy.plain_model()
  model.set_weights(server.model.weights.trainable)
  outside = metrics.ExpectedCalibrationError()
  outside.update_state(data['test']['y'], model(data['test']['x']))
  np.testing.assert_allclose(result['server']['ece'], outside.result(), rtol=1e-4)


@pytest.fixture(params=['mixed_bfloat16', 'mixed_float16'])
def mixed_precision(request):
  tf.keras.mixed_precision.set_global_policy(request.param)
  yield
  tf.keras.mixed_precision.set_global_policy('float32')


def test_mixed_precision_trains_float32_variables(mixed_precision):
  del mixed_precision
  process = build_fed_avg(model_fn=toy.plain_model, **toy.settings())
  server, _, _, (metrics,) = toy.run(process, [10], [[0]])
  assert server.model.weights.trainable[0].dtype == np.float32
  assert np.isfinite(metrics['loss'])


def test_fine_tuning_trains_the_servers_model_and_changes_no_state():
  process = linear(batch_size=1, fine_tune_epochs=2)
  server, clients = start(process, 1.0)
  # One example x = 1, y = 0 in each of two passes: w ← 0.9 w.
  (tuned,), (metrics,) = process.personalize(server, clients[:1], [client([1], [0])])
  np.testing.assert_allclose(tuned.weights.trainable[0], 0.81, rtol=1e-6)
  assert metrics['num_steps'] == 2
  np.testing.assert_array_equal(server.model.weights.trainable[0], [[1.0]])


def test_without_fine_tuning_there_is_no_personalize():
  assert linear().personalize is None


def test_negative_fine_tune_epochs_are_refused_by_name():
  with pytest.raises(ValueError, match='fine_tune_epochs=-1'):
    linear(fine_tune_epochs=-1)


def test_fine_tuning_that_is_not_finite_is_not_kept():
  process = linear(batch_size=1, fine_tune_epochs=1)
  server, clients = start(process, 1.0)
  (tuned,), (metrics,) = process.personalize(server, clients[:1], [client([np.nan], [0])])
  np.testing.assert_array_equal(tuned.weights.trainable[0], [[1.0]])
  assert metrics['nonfinite'] == 1
