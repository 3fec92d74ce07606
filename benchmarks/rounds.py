"""Seconds per round of federated averaging, as ratios to a bare TensorFlow loop.

MNIST-shaped synthetic data: 100 clients of 600 examples, an MLP 2×100, 10 clients a
round, one epoch in 30 steps of batch 20 each, plain SGD. Everything is measured in one
run, the contestants taking turns round by round, so a busy machine slows all alike.

  python benchmarks/rounds.py --rounds 15
"""

import argparse
import concurrent.futures
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import runtime
from tffpers.algorithms import fed_avg

NUM_CLIENTS, NUM_EXAMPLES, CLIENTS_PER_ROUND = 100, 600, 10
BATCH, RATE = 20, 0.1
Round = Callable[[list[int]], None]


def model_fn() -> tf.keras.Model:
  dense = tf.keras.layers.Dense
  return tf.keras.Sequential(
    [tf.keras.Input([784]), dense(100, 'relu'), dense(100, 'relu'), dense(10)]
  )


def loss_fn() -> tf.keras.losses.Loss:
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_data() -> list[tuple[np.ndarray, np.ndarray]]:
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(NUM_CLIENTS, NUM_EXAMPLES, 784)).astype(np.float32)
  y = rng.integers(0, 10, (NUM_CLIENTS, NUM_EXAMPLES)).astype(np.int32)
  return list(zip(x, y, strict=True))


def make_local_training(model: tf.keras.Model) -> Callable[..., list[tf.Tensor]]:
  """One client's epoch on `model`'s variables, from given weights to new ones."""
  loss = loss_fn()

  def local_training(weights, x, y, seed):
    for variable, value in zip(model.trainable_variables, weights, strict=True):
      variable.assign(value)
    order = tf.random.experimental.stateless_shuffle(tf.range(tf.shape(x)[0]), seed)

    def step(start):
      rows = order[start : start + BATCH]
      with tf.GradientTape() as tape:
        value = loss(tf.gather(y, rows), model(tf.gather(x, rows), training=True))
      gradients = tape.gradient(value, model.trainable_variables)
      for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(RATE * gradient)
      return (start + BATCH,)

    tf.while_loop(lambda start: start < NUM_EXAMPLES, step, (0,), parallel_iterations=1)
    return [variable.read_value() for variable in model.trainable_variables]

  return local_training


def bare_loop(data, num_threads: int) -> Round:
  """The same mathematics with nothing around it, clients in `num_threads` threads."""
  models = [model_fn() for _ in range(num_threads)]
  functions = [tf.function(make_local_training(model)) for model in models]
  tensors = [(tf.constant(x), tf.constant(y)) for x, y in data]
  pool = concurrent.futures.ThreadPoolExecutor(num_threads)
  weights = [variable.read_value() for variable in models[0].trainable_variables]

  @tf.function
  def average(updates):
    return [tf.add_n(values) / CLIENTS_PER_ROUND for values in zip(*updates, strict=True)]

  def run(clients: list[int]) -> None:
    nonlocal weights

    def share(thread: int) -> list:
      seeds = [(i, tf.constant([i, 0])) for i in clients[thread::num_threads]]
      return [functions[thread](weights, *tensors[i], seed) for i, seed in seeds]

    weights = average(sum(pool.map(share, range(num_threads)), []))

  return run


def on_tensors(data, name: str) -> Round:
  """The bare loop's client step and mean as the smallest TFF computation there is."""
  spec = [tff.TensorType(np.float32, v.shape.as_list()) for v in model_fn().trainable_variables]

  @tff.tensorflow.computation(
    spec,
    tff.TensorType(np.float32, [None, 784]),
    tff.TensorType(np.int32, [None]),
    tff.TensorType(np.int32, [2]),
  )
  def local(weights, x, y, seed):
    return tf.function(make_local_training(model_fn()))(weights, x, y, seed)

  types = [tff.FederatedType(t, tff.CLIENTS) for t in local.type_signature.parameter[1:]]

  @tff.federated_computation(tff.FederatedType(spec, tff.SERVER), *types)
  def round_fn(weights, x, y, seed):
    return tff.federated_mean(
      tff.federated_map(local, (tff.federated_broadcast(weights), x, y, seed))
    )

  tensors = in_process_tensors(data) if name == 'in_process' else data
  weights = [v.numpy() for v in model_fn().trainable_variables]

  def run(clients: list[int]) -> None:
    nonlocal weights
    with runtime.running(name):
      x, y = zip(*(tensors[i] for i in clients), strict=True)
      weights = round_fn(weights, list(x), list(y), [[i, 0] for i in clients])

  return run


def in_process_tensors(data) -> list[tuple[tf.Tensor, tf.Tensor]]:
  return [(tf.constant(x), tf.constant(y)) for x, y in data]


def stock_fed_avg(data, name: str) -> Round:
  """TFF's own federated averaging on `tf.data`."""
  spec = (tf.TensorSpec([None, 784], tf.float32), tf.TensorSpec([None], tf.int32))
  process = tff.learning.algorithms.build_weighted_fed_avg(
    lambda: tff.learning.models.from_keras_model(model_fn(), input_spec=spec, loss=loss_fn()),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(RATE),
  )
  datasets = [
    tf.data.Dataset.from_tensor_slices(d).shuffle(NUM_EXAMPLES, seed=0).batch(BATCH) for d in data
  ]
  with runtime.running(name):
    state = process.initialize()

  def run(clients: list[int]) -> None:
    nonlocal state
    with runtime.running(name):
      state = process.next(state, [datasets[i] for i in clients]).state

  return run


def our_fed_avg(data, name: str) -> Round:
  """This library's federated averaging."""
  process = fed_avg.build_fed_avg(
    model_fn=model_fn,
    loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction='none'),
    metrics_fn=lambda: [],
    element_spec=(tf.TensorSpec([784], tf.float32), tf.TensorSpec([], tf.int32)),
    optimizer=tff.learning.optimizers.build_sgdm(RATE),
    epochs=1,
    batch_size=BATCH,
  )
  tensors = in_process_tensors(data) if name == 'in_process' else data
  with runtime.running(name):
    server = process.initialize([0, 0])
    infos = [{'index': i, 'num_examples': NUM_EXAMPLES, 'seed': [i, 0]} for i in range(NUM_CLIENTS)]
    states = process.initialize_client(server, infos)

  def run(clients: list[int]) -> None:
    nonlocal server
    batch = [{'train': dict(zip('xy', tensors[i], strict=True)), 'seed': [i, 0]} for i in clients]
    with runtime.running(name):
      server, new, _, _ = process.next(server, [states[i] for i in clients], batch)
    for i, state in zip(clients, new, strict=True):
      states[i] = state

  return run


def contestants(data) -> Iterator[tuple[str, Round]]:
  cores = len(os.sched_getaffinity(0))
  yield 'bare loop, one thread', bare_loop(data, 1)
  yield f'bare loop, {cores} threads', bare_loop(data, cores)
  for name in ('in_process', 'native'):
    yield f'smallest TFF computation, {name}', on_tensors(data, name)
    yield f'tffpers FedAvg, {name}', our_fed_avg(data, name)
    yield f'TFF FedAvg, {name}', stock_fed_avg(data, name)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=15, help='measured rounds of each')
  rounds = parser.parse_args().rounds
  running = {}
  for name, run in contestants(make_data()):
    # Warm up at once: Keras models made eagerly are dead after the first made in a graph.
    for start in (0, 10):
      run(list(range(start, start + CLIENTS_PER_ROUND)))
    running[name] = run
  seconds: dict[str, list[float]] = {name: [] for name in running}
  rng = np.random.default_rng(1)
  for _ in range(rounds):
    clients = rng.choice(NUM_CLIENTS, CLIENTS_PER_ROUND, replace=False).tolist()
    for name, run in running.items():
      start = time.perf_counter()
      run(clients)
      seconds[name].append(time.perf_counter() - start)
  medians = {name: statistics.median(values) for name, values in seconds.items()}
  bare = min(value for name, value in medians.items() if name.startswith('bare'))
  print(f'{"median s/round":>15} {"min":>8} {"ratio":>7}')
  for name, value in medians.items():
    print(f'{value:15.4f} {min(seconds[name]):8.4f} {value / bare:7.2f}  {name}')


if __name__ == '__main__':
  main()
