"""What APPLE costs: a round of 12 clients as a ratio to FedAvg's with the same network and steps.

Each client trains 2 epochs on 200 MNIST-shaped examples in batches of 50, on the CNN with
filters 20 and 50 and a hidden layer of 500; everything of a round is included. APPLE mixes
12 cores in every step: M = 11 downloads all others, M = 5 a part. Rounds of the methods take
turns, so a busy machine slows all alike. The bound for M = 11 is twice FedAvg.

  python benchmarks/apple.py
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import process as process_lib
from tffpers import runtime
from tffpers.algorithms import build_apple, build_fed_avg
from tffpers.keras import models

NUM_CLIENTS, NUM_EXAMPLES = 12, 200
EPOCHS, BATCH = 2, 50
BASE = 'FedAvg'
# Methods beside it, with the largest ratio they may have.
APPLE = {'APPLE, M = 11': '2', 'APPLE, M = 5': '–'}


def make_data() -> list[dict]:
  rng = np.random.default_rng(0)
  return [
    {
      'train': {
        'x': tf.constant(rng.uniform(size=(NUM_EXAMPLES, 28, 28, 1)), tf.float32),
        'y': tf.constant(rng.integers(0, 10, NUM_EXAMPLES), tf.int32),
      },
      'seed': [i, 1],
    }
    for i in range(NUM_CLIENTS)
  ]


def contestants() -> dict[str, process_lib.PersonalizedProcess]:
  shared = {
    'model_fn': lambda: models.cnn(input_shape=(28, 28, 1), filters=(20, 50), hidden=(500,)),
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': lambda: [],
    'element_spec': (tf.TensorSpec([28, 28, 1], tf.float32), tf.TensorSpec([], tf.int32)),
    'optimizer': tff.learning.optimizers.build_sgdm(0.01),
    'epochs': EPOCHS,
    'batch_size': BATCH,
  }
  apple = {'client_num_examples': [NUM_EXAMPLES] * NUM_CLIENTS, 'rounds': 100, **shared}
  everything, part = APPLE
  return {
    BASE: build_fed_avg(**shared),
    everything: build_apple(**apple),
    part: build_apple(max_downloads=5, **apple),
  }


def rounds_of(process: process_lib.PersonalizedProcess, data: list[dict]) -> Callable[[], None]:
  """Runs the next round of all clients at each call."""
  server = process.initialize([0, 0])
  states = process.initialize_client(
    server,
    [{'index': i, 'num_examples': NUM_EXAMPLES, 'seed': [i, 0]} for i in range(NUM_CLIENTS)],
  )

  def run() -> None:
    nonlocal server, states
    server, states, _, _ = process.next(server, states, data)

  return run


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=5, help='measured rounds of each')
  num_rounds = parser.parse_args().rounds
  runtime.use('in_process')
  data = make_data()
  running = {name: rounds_of(process, data) for name, process in contestants().items()}
  seconds: dict[str, list[float]] = {name: [] for name in running}
  for turn in range(num_rounds + 1):
    for name, run in running.items():
      start = time.perf_counter()
      run()
      if turn:  # The first round traces.
        seconds[name].append(time.perf_counter() - start)
  medians = {name: statistics.median(values) for name, values in seconds.items()}
  print('| round of 12 clients | median s | fastest s | to FedAvg | bound |')
  print('|---|---|---|---|---|')
  for name, median in medians.items():
    ratio, bound = median / medians[BASE], APPLE.get(name, '–')
    print(f'| {name} | {median:.2f} | {min(seconds[name]):.2f} | {ratio:.2f} | {bound} |')


if __name__ == '__main__':
  main()
