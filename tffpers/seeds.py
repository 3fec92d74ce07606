"""Every random draw is a function of (run seed, purpose, round, client id).

Nothing in tffpers draws from global or stateful generators: a driver derives one
stateless seed for each use with `derive`, computations fold further labels
into it with `fold`, and `keras_randomness` sends Keras' own initialisers and
dropout layers through the same seeds. The same run therefore gives the same bits
at any parallelism, in any order of clients and after a resume.
"""

import contextlib
import hashlib
import threading
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from keras.src import backend as keras_backend

from tffpers.keras import noise

SEED_SPEC = tf.TensorSpec([2], tf.int32)

# Keras' random generators are patched for the time of one trace only; two threads
# must not interleave patching and restoring.
_TRACE_LOCK = threading.RLock()


def derive(run_seed: int, *labels: str | int) -> np.ndarray:
  """A stateless seed for one purpose.

  Args:
    run_seed: The run's seed, any Python integer.
    *labels: What the draw is for, such as `('train', round, client_id)`.

  Returns:
    int32[2]. Different labels give independent seeds; equal labels equal ones, on
    every machine and in every process.

  >>> bool((derive(1, 'train', 3, 'ann') == derive(1, 'train', 3, 'ann')).all())
  True
  """
  text = repr((int(run_seed),) + tuple(x if isinstance(x, str) else int(x) for x in labels))
  digest = hashlib.sha256(text.encode('utf-8')).digest()
  return np.frombuffer(digest[:8], dtype='<i4').astype(np.int32)


def fold(seed: tf.Tensor, label: int | tf.Tensor) -> tf.Tensor:
  """A new int32[2] seed from `seed` and an integer, inside a graph."""
  return tf.random.fold_in(seed, label, alg='philox')


@contextlib.contextmanager
def keras_randomness(seed: tf.Tensor, *, sample: bool | None = None) -> Iterator[None]:
  """While open, Keras initialisers, dropout and Bayesian layers draw from `seed`.

  Keras 2 seeds its layers per operation: inside a computation all clients would
  share the noise, or none would repeat it.

  Args:
    seed: int32[2], may be symbolic.
    sample: Forces Bayesian layers to sample (True) or to use the posterior mean
      (False); None leaves it to `training`.

  Yields:
    None.
  """
  with _TRACE_LOCK, noise.scope(seed, sample=sample):
    generator = keras_backend.RandomGenerator
    saved = {name: getattr(generator, name) for name in _DRAWS}
    for name, draw in _DRAWS.items():
      setattr(generator, name, draw)
    try:
      yield
    finally:
      for name, draw in saved.items():
        setattr(generator, name, draw)


def _normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
  del self, nonce
  dtype = dtype or tf.keras.backend.floatx()
  return tf.random.stateless_normal(shape, noise.next_seed(), mean, stddev, dtype, alg='philox')


def _uniform(self, shape, minval=0.0, maxval=None, dtype=None, nonce=None):
  del self, nonce
  dtype = dtype or tf.keras.backend.floatx()
  return tf.random.stateless_uniform(shape, noise.next_seed(), minval, maxval, dtype, alg='philox')


def _truncated_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
  del self, nonce
  dtype = dtype or tf.keras.backend.floatx()
  return tf.random.stateless_truncated_normal(
    shape, noise.next_seed(), mean, stddev, dtype, alg='philox'
  )


def _dropout(self, inputs, rate, noise_shape=None):
  del self
  return tf.nn.experimental.stateless_dropout(
    inputs, rate=rate, seed=noise.next_seed(), noise_shape=noise_shape, rng_alg='philox'
  )


_DRAWS = {
  'random_normal': _normal,
  'random_uniform': _uniform,
  'truncated_normal': _truncated_normal,
  'dropout': _dropout,
}
