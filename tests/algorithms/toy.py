"""Two-class toy clients, small models and a bare driver for tests of algorithms."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import keras as tk
from tffpers import seeds
from tffpers.algorithms import template

NUM_FEATURES, NUM_CLASSES = 3, 2
ELEMENT_SPEC = (tf.TensorSpec([NUM_FEATURES], tf.float32), tf.TensorSpec([], tf.int32))


def plain_model() -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([NUM_FEATURES]),
      tf.keras.layers.Dense(4, activation='tanh'),
      tf.keras.layers.Dense(NUM_CLASSES),
    ]
  )


def gate_model() -> tf.keras.Model:
  """A gate of three experts."""
  return tf.keras.Sequential([tf.keras.layers.InputLayer([NUM_FEATURES]), tf.keras.layers.Dense(3)])


def bayesian_model(**kwargs) -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([NUM_FEATURES]),
      tk.layers.BayesianDense(4, activation='tanh', **kwargs),
      tk.layers.BayesianDense(NUM_CLASSES, **kwargs),
    ]
  )


def settings(**overrides) -> dict[str, object]:
  """Arguments that every builder takes."""
  return {
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': lambda: [tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    'element_spec': ELEMENT_SPEC,
    'optimizer': tff.learning.optimizers.build_sgdm(0.1),
    'epochs': 2,
    'batch_size': 4,
    **overrides,
  }


def examples(client: int, n: int) -> dict[str, np.ndarray]:
  """n examples of one client, the same at each call."""
  random = np.random.default_rng([client, 7])
  x = random.normal(size=[n, NUM_FEATURES]).astype(np.float32)
  return {'x': x, 'y': (x.sum(-1) + 0.3 * client > 0).astype(np.int32)}


def train_data(client: int, n: int, round_: int = 0, seed: int = 1) -> dict[str, object]:
  return {'train': examples(client, n), 'seed': seeds.derive(seed, 'train', round_, str(client))}


def held_out(client: int, n: int, seed: int = 1) -> dict[str, object]:
  return {'test': examples(100 + client, n), 'seed': seeds.derive(seed, 'evaluate', str(client))}


def completed(computation, client: int, data: dict[str, object]) -> dict[str, object]:
  """The data with six examples of each further data set that a computation takes."""
  fields = [name for name, _ in tff.structure.iter_elements(data_type(computation))]
  shift = {'train': 0, 'test': 100, 'validation': 200}
  return {
    name: data[name] if name in data else examples(shift[name] + client, 6) for name in fields
  }


def data_type(computation) -> tff.Type:
  """Type of one client's data."""
  return computation.type_signature.parameter[2].member


def start(process, sizes: Sequence[int], seed: int = 1):
  """Server state and the states of clients with the given numbers of examples."""
  server = process.initialize(seeds.derive(seed, 'server'))
  info = [
    template.ClientInfo(i, n, seeds.derive(seed, 'client', str(i))) for i, n in enumerate(sizes)
  ]
  return server, list(process.initialize_client(server, info))


def run(process, sizes: Sequence[int], rounds: Sequence[Sequence[int]], seed: int = 1):
  """Runs rounds with the given clients; returns server, clients and the last metrics."""
  server, clients = start(process, sizes, seed)
  metrics, client_metrics = None, None
  for r, chosen in enumerate(rounds):
    server, new, metrics, client_metrics = process.next(
      server,
      [clients[i] for i in chosen],
      [completed(process.next, i, train_data(i, sizes[i], r, seed)) for i in chosen],
    )
    for i, state in zip(chosen, new, strict=True):
      clients[i] = state
  return server, clients, metrics, client_metrics


def assert_equal(a, b) -> None:
  """Bit equality of nested states, NaN equal to NaN."""
  flat_a, flat_b = tf.nest.flatten(a), tf.nest.flatten(b)
  assert len(flat_a) == len(flat_b)
  for x, y in zip(flat_a, flat_b, strict=True):
    np.testing.assert_array_equal(x, y)


def assert_close(a, b, rtol: float = 1e-6, atol: float = 1e-7) -> None:
  for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
