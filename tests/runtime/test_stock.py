"""TFF's own processes on both runtimes."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import runtime

SPEC = (tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None], tf.int32))


def model_fn():
  initializer = tf.keras.initializers.GlorotUniform
  layers = [
    tf.keras.layers.Dense(5, 'relu', kernel_initializer=initializer(seed=1)),
    tf.keras.layers.Dense(3, kernel_initializer=initializer(seed=2)),
  ]
  model = tf.keras.Sequential([tf.keras.Input([4]), *layers])
  return tff.learning.models.from_keras_model(
    model,
    input_spec=SPEC,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def client_data(sizes=(7, 1, 12)):
  rng = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      (rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n).astype(np.int32))
    ).batch(5)
    for n in sizes
  ]


def fed_avg(**settings):
  return tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1, 0.9),
    server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
    **settings,
  )


def train(process, rounds=3):
  state, metrics = process.initialize(), []
  for _ in range(rounds):
    output = process.next(state, client_data())
    state, metrics = output.state, [*metrics, output.metrics['client_work']]
  return process.get_model_weights(state), metrics


def reconstruct():
  def split_model_fn():
    model = tf.keras.Sequential(
      [
        tf.keras.Input([4]),
        tf.keras.layers.Dense(5, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)),
        tf.keras.layers.Dense(3, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)),
      ]
    )
    return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
      keras_model=model,
      global_layers=model.layers[:1],
      local_layers=model.layers[1:],
      input_spec=SPEC,
    )

  sgd = tff.learning.optimizers.build_sgdm
  process = tff.learning.algorithms.build_fed_recon(
    split_model_fn,
    loss_fn=lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics_fn=lambda: [tf.keras.metrics.SparseCategoricalAccuracy()],
    server_optimizer_fn=sgd(1.0),
    client_optimizer_fn=sgd(0.1),
    reconstruction_optimizer_fn=sgd(0.1),
    dataset_split_fn=tff.learning.models.ReconstructionModel.build_dataset_split_fn(
      split_dataset=True
    ),
  )
  return train(process, rounds=2)


def evaluate():
  weights = fed_avg().initialize().global_model_weights
  process = tff.learning.algorithms.build_fed_eval(model_fn)
  state = process.set_model_weights(process.initialize(), weights)
  output = process.next(state, client_data())
  return weights, output.metrics


@pytest.mark.parametrize('work', [lambda: train(fed_avg()), reconstruct, evaluate])
def test_stock_process_gives_the_same_on_both_runtimes(work):
  results = {}
  for name in ('in_process', 'native'):
    with runtime.running(name):
      results[name] = work()
  ours, theirs = results['in_process'], results['native']
  tf.nest.assert_same_structure(ours, theirs)
  for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
    assert type(a) is type(b)
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


AGGREGATORS = {
  'mean': tff.aggregators.MeanFactory,
  'secure quantized': tff.learning.secure_aggregator,
  'robust': tff.learning.robust_aggregator,
  'compression': tff.learning.compression_aggregator,
  'differential privacy': lambda: tff.learning.dp_aggregator(0.1, 3),
  'unweighted sum': tff.aggregators.SumFactory,
  'secure': lambda: tff.aggregators.SecureSumFactory(10.0),
}


@pytest.mark.parametrize('name', AGGREGATORS)
def test_stock_aggregator_runs(in_process, name):
  factory = AGGREGATORS[name]()
  fields = collections.OrderedDict(a=tff.TensorType(np.float32, [3]), b=np.float32)
  value_type = tff.to_type(fields)
  weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  args = (value_type, tff.TensorType(np.float32)) if weighted else (value_type,)
  process = factory.create(*args)
  values = [{'a': np.full(3, i, np.float32), 'b': np.float32(-i)} for i in (1, 2, 3)]
  weights = [[1.0, 1.0, 1.0]] if weighted else []
  output = process.next(process.initialize(), values, *weights)
  scale = 6.0 if 'sum' in name or name == 'secure' else 2.0
  if name != 'differential privacy':
    # Each aggregator's own clipping and quantising bounds how close it comes.
    tolerance = {'mean': 1e-6, 'unweighted sum': 1e-6, 'secure': 1e-4}.get(name, 2.0)
    np.testing.assert_allclose(output.result['a'], [scale] * 3, atol=tolerance)
  assert np.isfinite(output.result['a']).all()
