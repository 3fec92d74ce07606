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


# Clients send 1, 2 and 3 times (1, 1, 1, −1), of norm 2. The clipping aggregators start by
# clipping to norm 1 (0.1 for differential privacy, whose noise has σ = 0.1·0.1/3).
AGGREGATORS = {
  'mean': (tff.aggregators.MeanFactory, 2.0, 1e-6),
  'unweighted sum': (tff.aggregators.SumFactory, 6.0, 1e-6),
  'secure sum': (lambda: tff.aggregators.SecureSumFactory(10.0), 6.0, 1e-4),
  'secure quantized': (tff.learning.secure_aggregator, 0.5, 1e-4),
  'robust': (tff.learning.robust_aggregator, 0.5, 1e-6),
  'compression': (tff.learning.compression_aggregator, 0.5, 1e-6),
  'differential privacy': (lambda: tff.learning.dp_aggregator(0.1, 3), 0.05, 0.03),
}


@pytest.mark.parametrize('name', AGGREGATORS)
def test_stock_aggregator_gives_what_is_computed_by_hand(in_process, name):
  build, expected, tolerance = AGGREGATORS[name]
  factory = build()
  fields = collections.OrderedDict(a=tff.TensorType(np.float32, [3]), b=np.float32)
  weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  types = [tff.to_type(fields)] + ([tff.TensorType(np.float32)] if weighted else [])
  process = factory.create(*types)
  values = [{'a': np.full(3, i, np.float32), 'b': np.float32(-i)} for i in (1, 2, 3)]
  weights = [[1.0, 1.0, 1.0]] if weighted else []
  result = process.next(process.initialize(), values, *weights).result
  np.testing.assert_allclose(result['a'], [expected] * 3, rtol=0.0, atol=tolerance)
  np.testing.assert_allclose(result['b'], -expected, rtol=0.0, atol=tolerance)
