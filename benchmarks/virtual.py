"""What VIRTUAL costs: a local step as a ratio to FedAvg's, and memory against clients.

Steps: one client's round of 600 steps (MLP 2×100 on MNIST-shaped data, batch 20) or 20
steps (two LSTMs of 100 on text, batch 10 × 80 characters), everything of a round included.
Methods take turns, so a busy machine slows all alike. Memory: the peak of a fresh process
that runs three rounds and one evaluation of all clients, states on disk.

  python benchmarks/virtual.py
"""

import argparse
import functools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import losses, runtime, simulation
from tffpers.algorithms import build_fed_avg, build_virtual
from tffpers.datasets import FederatedDataset
from tffpers.keras import models

IMAGE = (tf.TensorSpec([784], tf.float32), tf.TensorSpec([], tf.int32))
TEXT = (tf.TensorSpec([80], tf.int32), tf.TensorSpec([80], tf.int32))
POPULATIONS = ((100, 5), (1000, 5), (100, 20))


def images(num_examples: int) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(num_examples, 784)).astype(np.float32)
  return x, rng.integers(0, 10, num_examples).astype(np.int32)


def text(num_examples: int) -> tuple[np.ndarray, np.ndarray]:
  tokens = np.random.default_rng(0).integers(1, 87, (num_examples, 81)).astype(np.int32)
  return tokens[:, :-1], tokens[:, 1:]


def builder(model_fn: Callable[..., tf.keras.Model], virtual: bool, **arguments: Any):
  """One of the two methods on the same network."""
  arguments |= {
    'model_fn': functools.partial(model_fn, bayesian=virtual),
    'metrics_fn': lambda: [],
    'optimizer': tff.learning.optimizers.build_sgdm(0.1),
  }
  if virtual:
    return build_virtual(beta=1e-4, **arguments)
  del arguments['client_num_examples']
  return build_fed_avg(**arguments)


def mlp(virtual: bool, epochs: int, client_num_examples: list[int]):
  return builder(
    functools.partial(models.mlp, input_shape=(784,)),
    virtual,
    loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    element_spec=IMAGE,
    epochs=epochs,
    batch_size=20,
    client_num_examples=client_num_examples,
  )


def char_lstm(virtual: bool, epochs: int, client_num_examples: list[int]):
  return builder(
    models.char_lstm,
    virtual,
    loss_fn=losses.MaskedCrossEntropy(),
    element_spec=TEXT,
    epochs=epochs,
    batch_size=10,
    client_num_examples=client_num_examples,
  )


def client_round(process, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
  """One round of one client, from the same states each time."""
  server = process.initialize([0, 0])
  clients = process.initialize_client(
    server, [{'index': 0, 'num_examples': len(y), 'seed': [0, 0]}]
  )
  data = [{'train': {'x': tf.constant(x), 'y': tf.constant(y)}, 'seed': [1, 2]}]
  return lambda: process.next(server, clients, data)


def contestants() -> Iterator[tuple[str, int, Callable[[], None]]]:
  """Name, steps and round of each."""
  for name, build, (x, y), epochs, steps in (
    ('MLP', mlp, images(600), 20, 600),
    ('char-LSTM', char_lstm, text(100), 2, 20),
  ):
    for method in ('FedAvg', 'VIRTUAL'):
      process = build(method == 'VIRTUAL', epochs, [len(y)])
      yield f'{name} {method}', steps, client_round(process, x, y)


def step_costs(repetitions: int) -> None:
  runtime.use('in_process')
  running = {name: (steps, run) for name, steps, run in contestants()}
  seconds: dict[str, list[float]] = {name: [] for name in running}
  for turn in range(repetitions + 2):
    for name, (_, run) in running.items():
      start = time.perf_counter()
      run()
      if turn > 1:
        seconds[name].append(time.perf_counter() - start)
  print(f'{"median µs/step":>15} {"ratio":>6}')
  for name, (steps, _) in running.items():
    cost = statistics.median(seconds[name])
    base = statistics.median(seconds[f'{name.split()[0]} FedAvg'])
    print(f'{cost / steps * 1e6:15.0f} {cost / base:6.2f}  {name}')


def population_memory(num_clients: int, clients_per_round: int) -> None:
  """Runs in a process of its own and prints its peak in MiB."""
  runtime.use('in_process')
  example = images(40)
  clients = FederatedDataset.from_arrays({i: example for i in range(num_clients)})
  with tempfile.TemporaryDirectory() as folder:
    simulation.run(
      mlp(True, 1, [40] * num_clients),
      clients,
      test_data=clients,
      rounds=3,
      clients_per_round=clients_per_round,
      seed=0,
      evaluate_every=3,
      output_dir=folder,
      progress=False,
    )
  # The resource usage that getrusage gives would begin with the parent's peak.
  status = pathlib.Path('/proc/self/status').read_text(encoding='ascii')
  print(int(status.split('VmHWM:')[1].split()[0]) / 1024)


def memory() -> None:
  print(f'\n{"clients":>8} {"sampled":>8} {"peak MiB":>9} {"to first":>9}')
  first = None
  for num_clients, sampled in POPULATIONS:
    command = [sys.executable, __file__, f'--population={num_clients},{sampled}']
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    peak = float(output.split()[-1])
    first = first or peak
    print(f'{num_clients:8d} {sampled:8d} {peak:9.0f} {peak / first:9.2f}')


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--repetitions', type=int, default=9, help='measured rounds of each')
  parser.add_argument('--population', help='internal: clients,sampled of one process')
  arguments = parser.parse_args()
  if arguments.population:
    population_memory(*map(int, arguments.population.split(',')))
    return
  step_costs(arguments.repetitions)
  memory()


if __name__ == '__main__':
  main()
