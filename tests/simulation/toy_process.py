"""A process whose numbers can be checked by hand, and data for it.

The server learns the example-weighted mean of its clients' x; a client remembers the
mean of its own x, how often it took part, and a draw from its seed. A model is right
about an example if it is less than ½ away from it. Training fails on y = −1000.
"""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import process as process_lib
from tffpers.datasets import federated_dataset

SEED = tff.TensorType(np.int32, [2])
FederatedDataset = federated_dataset.FederatedDataset


class Server(NamedTuple):
  mean: object
  rounds: object


class Client(NamedTuple):
  mean: object
  visits: object
  draw: object


class Info(NamedTuple):
  index: object
  num_examples: object
  seed: object


SERVER = tff.types.tensorflow_to_type(
  Server(tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32))
)
CLIENT = tff.types.tensorflow_to_type(
  Client(tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32), tf.TensorSpec([1], tf.float32))
)
INFO = tff.types.tensorflow_to_type(
  Info(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32))
)


def _data(name: str, x_spec) -> tff.Type:
  return tff.types.tensorflow_to_type(
    {
      name: {'x': x_spec, 'y': tf.TensorSpec([None], tf.int32)},
      'seed': tf.TensorSpec([2], tf.int32),
    }
  )


def _features(x):
  return x['b'] + x['a'] if isinstance(x, dict) else x


def build(
  *, nested: bool = False, personalize: bool = False, dtype=np.float32, **hyper_parameters
) -> process_lib.PersonalizedProcess:
  """The process; `nested` takes x as a dict, `dtype` is that of the server's mean."""
  spec = tf.TensorSpec([None, 1], tf.float32)
  x_spec = {'b': spec, 'a': spec} if nested else spec
  server_type = tff.types.tensorflow_to_type(
    Server(tf.TensorSpec([], dtype), tf.TensorSpec([], tf.int32))
  )

  @tff.tensorflow.computation(SEED)
  def new_server(seed):
    return Server(tf.cast(tf.random.stateless_uniform([], seed), dtype), 0)

  @tff.tensorflow.computation(INFO)
  def new_client(info):
    return Client(
      100.0 + tf.cast(info.index, tf.float32), 0, tf.random.stateless_uniform([1], info.seed)
    )

  @tff.tensorflow.computation(CLIENT, _data('train', x_spec))
  def train(client, data):
    with tf.control_dependencies([tf.debugging.assert_greater(data['train']['y'], -1000)]):
      x = tf.identity(_features(data['train']['x']))
    n, total = tf.shape(x)[0], tf.reduce_sum(x)
    finite, counts = (
      tf.math.is_finite(total),
      tf.logical_and(tf.math.is_finite(total), tf.shape(x)[0] > 0),
    )
    new = Client(
      total / tf.cast(n, tf.float32),
      client.visits + 1,
      tf.random.stateless_uniform([1], data['seed']),
    )
    new = tf.nest.map_structure(lambda a, b: tf.where(counts, a, b), new, client)
    numbers = {
      'loss': total / tf.cast(n, tf.float32),
      'num_examples': n,
      'nonfinite': tf.cast(~finite, tf.int32),
      'models_up': 1,
      'models_down': 3,
      'bytes_up': 8,
      'bytes_down': 4,
    }
    weight = tf.where(counts, tf.cast(n, tf.float32), 0.0)
    return tf.where(counts, total, 0.0), weight, new, numbers

  @tff.tensorflow.computation(server_type, np.float32, np.float32)
  def update(server, total, weight):
    mean = tf.where(weight > 0, tf.cast(total / weight, dtype), server.mean)
    return Server(mean, server.rounds + 1), {'weight': weight, 'means': tf.stack([total, weight])}

  @tff.tensorflow.computation(server_type, CLIENT, _data('test', x_spec))
  def measure(server, client, data):
    return {
      'server': _measured(tf.cast(server.mean, tf.float32), data['test']),
      'client': {
        **_measured(client.mean, data['test']),
        'noise': tf.random.stateless_uniform([], data['seed']),
      },
    }

  @tff.federated_computation(tff.FederatedType(SEED, tff.SERVER))
  def initialize(seed):
    return tff.federated_map(new_server, seed)

  @tff.federated_computation(
    tff.FederatedType(server_type, tff.SERVER), tff.FederatedType(INFO, tff.CLIENTS)
  )
  def initialize_client(server, info):
    del server
    return tff.federated_map(new_client, info)

  at_clients = tff.FederatedType(CLIENT, tff.CLIENTS)

  @tff.federated_computation(
    tff.FederatedType(server_type, tff.SERVER),
    at_clients,
    tff.FederatedType(_data('train', x_spec), tff.CLIENTS),
  )
  def next_round(server, clients, data):
    total, weight, new, numbers = tff.federated_map(train, (clients, data))
    sums = (server, tff.federated_sum(total), tff.federated_sum(weight))
    server, metrics = tff.federated_map(update, sums)
    return server, new, metrics, numbers

  @tff.federated_computation(
    tff.FederatedType(server_type, tff.SERVER),
    at_clients,
    tff.FederatedType(_data('test', x_spec), tff.CLIENTS),
  )
  def evaluate(server, clients, data):
    return tff.federated_map(measure, (tff.federated_broadcast(server), clients, data))

  @tff.federated_computation(
    tff.FederatedType(server_type, tff.SERVER),
    at_clients,
    tff.FederatedType(_data('train', x_spec), tff.CLIENTS),
  )
  def fine_tune(server, clients, data):
    del server
    _, _, new, numbers = tff.federated_map(train, (clients, data))
    return new, numbers

  @tff.federated_computation(tff.FederatedType(server_type, tff.SERVER))
  def report(server):
    return tff.federated_map(
      tff.tensorflow.computation(lambda s: {'sigma_p5': s.mean}, server_type), server
    )

  return process_lib.PersonalizedProcess(
    initialize=initialize,
    initialize_client=initialize_client,
    next=next_round,
    evaluate=evaluate,
    personalize=fine_tune if personalize else None,
    report=report,
    evaluation_point='after',
    hyper_parameters={'algorithm': 'toy', **hyper_parameters},
  )


def _measured(mean, test):
  x = _features(test['x'])
  distance = tf.abs(x[:, 0] - mean)
  return {
    'loss': tf.reduce_mean(distance),
    'accuracy': tf.reduce_mean(tf.cast(distance < 0.5, tf.float32)),
    'num_examples': tf.shape(x)[0],
    'num_targets': tf.cast(tf.shape(x)[0], tf.float32),
  }


def constant(value: float, n: int, label: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """n examples that all have x = value."""
  return np.full([n, 1], value, np.float32), np.full([n], label, np.int32)


def data(num_clients: int = 6) -> FederatedDataset:
  """Clients c0, c1, … with 1, 2, … examples around their own number."""
  rows = {}
  for i in range(num_clients):
    random = np.random.default_rng(i)
    x = (i + random.normal(size=[i + 1, 1])).astype(np.float32)
    rows[f'c{i}'] = (x, np.arange(i + 1, dtype=np.int32) % 2)
  return FederatedDataset.from_arrays(rows)


class Watched:
  """A data set that counts its loads and does something before chosen ones.

  Args:
    inner: The data.
    before: Called with the client's id before each load.
  """

  def __init__(self, inner: FederatedDataset, before=lambda key: None):
    self.inner, self.before, self.loads = inner, before, []

  client_ids = property(lambda self: self.inner.client_ids)
  element_spec = property(lambda self: self.inner.element_spec)

  def num_examples(self, key: str) -> int:
    return self.inner.num_examples(key)

  def load(self, key: str):
    self.before(key)
    self.loads.append(key)
    return self.inner.load(key)


def build_small_fed_avg() -> process_lib.PersonalizedProcess:
  """FedAvg with what a careless resume forgets: dropout and the server's momentum."""
  from tffpers import algorithms

  return algorithms.build_fed_avg(
    model_fn=lambda: tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([1]),
        tf.keras.layers.Dense(3, activation='tanh'),
        tf.keras.layers.Dropout(0.4),
        tf.keras.layers.Dense(2),
      ]
    ),
    loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics_fn=lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    element_spec=data().element_spec,
    optimizer=tff.learning.optimizers.build_sgdm(0.1),
    epochs=2,
    batch_size=2,
    server_optimizer=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
  )


def arguments(**overrides):
  """What the runs of these tests have in common."""
  return {
    'rounds': 6,
    'clients_per_round': 2,
    'seed': 3,
    'progress': False,
    'method': 'toy',
    'dataset': 'counting',
    **overrides,
  }


def run_and_die(name: str, when: str, folder: str) -> None:
  """Runs in `folder` and kills this very process in round 4 (`killed.py`)."""
  from tffpers import runtime, simulation
  from tffpers.simulation import population, store

  runtime.use('in_process')
  process = build() if name == 'toy' else build_small_fed_avg()
  rounds = []

  def sample(number: int) -> list[str]:
    rounds.append(number)
    if when == 'between' and number == 4:
      os._exit(9)
    return sampled(number)

  def before(key: str) -> None:
    if when == 'loading' and rounds and rounds[-1] == 4:
      os._exit(9)

  if when == 'writing':
    put = store.Store._put_tensors

    def put_and_die(self, connection, owner, value, tff_type):
      put(self, connection, owner, value, tff_type)
      # The server's state and one of two clients' are written.
      if owner.startswith('client:') and rounds[-1] == 4:
        os._exit(9)

    store.Store._put_tensors = put_and_die
  if when == 'loading':
    population._CACHE_BYTES = 0  # Each round loads its clients anew.
  simulation.run(
    process,
    Watched(data(), before),
    test_data=data(),
    output_dir=folder,
    sample_fn=sample,
    **arguments(clients_per_round=None),
  )


def sampled(number: int) -> list[str]:
  """The clients of a round; c5 is new in round 4."""
  return {4: ['c1', 'c5']}.get(number, ['c1', f'c{2 + number % 3}'])
