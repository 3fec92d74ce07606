"""Seconds of one FedPer round of ResNet-34 and MobileNet-v1: 10 clients × 64 images of 32².

One local pass in steps of 32, K_P = 2, all computations traced before. Random images: only
the time is of interest.

  python benchmarks/networks.py
"""

import argparse
import functools
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import keras as tffpers_keras
from tffpers import runtime
from tffpers.algorithms import build_fed_per
from tffpers.keras import models

NUM_CLIENTS, NUM_EXAMPLES, SIDE = 10, 64, 32
NETWORKS = {
  'ResNet-34': models.resnet,
  'MobileNet-v1, 13 blocks': models.mobilenet,
  'MobileNet-v1, 11 blocks': functools.partial(models.mobilenet, num_blocks=11),
}


def seconds(model_fn, clients: list[dict]) -> tuple[float, float]:
  """Of the first round, tracing included, and of the second."""
  process = build_fed_per(
    model_fn=model_fn,
    partition=tffpers_keras.last_blocks(2),
    loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics_fn=lambda: [],
    element_spec=(tf.TensorSpec([SIDE, SIDE, 3], tf.float32), tf.TensorSpec([], tf.int32)),
    optimizer=tff.learning.optimizers.build_sgdm(0.01),
    epochs=1,
    batch_size=32,
  )
  server = process.initialize([0, 0])
  states = process.initialize_client(
    server,
    [{'index': i, 'num_examples': NUM_EXAMPLES, 'seed': [i, 0]} for i in range(len(clients))],
  )
  taken = []
  for _ in range(2):
    start = time.perf_counter()
    server, states, _, _ = process.next(server, states, clients)
    taken.append(time.perf_counter() - start)
  return taken[0], taken[1]


def main() -> None:
  argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
  runtime.use('in_process')
  random = np.random.default_rng(0)
  clients = [
    {
      'train': {
        'x': random.uniform(size=(NUM_EXAMPLES, SIDE, SIDE, 3)).astype(np.float32),
        'y': random.integers(0, 10, NUM_EXAMPLES).astype(np.int32),
      },
      'seed': [i, 1],
    }
    for i in range(NUM_CLIENTS)
  ]
  print(f'{"first round s":>14} {"second s":>9}  network')
  for name, network in NETWORKS.items():
    for stem in ('cifar', 'imagenet'):
      for normalization in ('group', 'batch'):
        model_fn = functools.partial(network, stem=stem, normalization=normalization)
        first, second = seconds(model_fn, clients)
        print(f'{first:14.1f} {second:9.1f}  {name}, stem {stem}, {normalization} norm', flush=True)


if __name__ == '__main__':
  main()
