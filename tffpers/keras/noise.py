"""Where the noise of Bayesian layers comes from.

Every draw is stateless: a function of a seed. Inside a `scope` the seed is the
caller's and the order of draws picks the stream; outside, a layer counts its own
draws in a weight. The generator is always Philox, whose random bits do not
depend on the device or on XLA.
"""

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Iterator

import tensorflow as tf

_ALGORITHM = 'philox'


@dataclasses.dataclass
class _Scope:
  key: tf.Tensor
  sample: bool | None
  stream: int = 0
  draws: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)


class _Scopes(threading.local):
  def __init__(self):
    self.stack: list[_Scope] = []


_scopes = _Scopes()


@contextlib.contextmanager
def scope(seed: tf.Tensor, *, sample: bool | None = None) -> Iterator[None]:
  """Makes every draw of this thread inside the block a function of `seed`.

  Draws are numbered while Python runs, so equal seeds and an equal order of draws
  give equal noise. Enter the scope *inside* the function or loop body that is
  traced: a function traced earlier keeps the noise source it was traced with.
  Scopes nest; the innermost one counts.

  Args:
    seed: int32 tensor of shape [2]; may be symbolic, such as one built from
      (run, round, client, step).
    sample: True makes each Bayesian layer sample and False use its posterior
      mean, whatever `training` is. None leaves the layers' own rule.

  Raises:
    ValueError: `seed` is not int32 of shape [2].

  >>> with scope(tf.constant([1, 2])):
  ...   first = next_seed()
  >>> with scope(tf.constant([1, 2])):
  ...   assert (first == next_seed()).numpy().all()
  """
  _scopes.stack.append(_Scope(_key(seed), sample))
  try:
    yield
  finally:
    _scopes.stack.pop()


@contextlib.contextmanager
def stream(number: int) -> Iterator[None]:
  """Numbers the draws inside the block apart from all others of the innermost scope.

  Code that draws in a stream of its own shifts no draw of other code, whether it runs
  or not. Entering the same stream again continues it. Outside a scope nothing changes.

  Args:
    number: Which stream; 0 is the one that scopes start with.

  >>> with scope(tf.constant([1, 2])):
  ...   with stream(1):
  ...     other = next_seed()
  ...   first = next_seed()
  >>> with scope(tf.constant([1, 2])):
  ...   assert (first == next_seed()).numpy().all()
  """
  if not _scopes.stack:
    yield
    return
  current = _scopes.stack[-1]
  outer, current.stream = current.stream, number
  try:
    yield
  finally:
    current.stream = outer


def next_seed() -> tf.Tensor | None:
  """Seed, int32 [2], of the next draw of the innermost scope; None outside any."""
  if not _scopes.stack:
    return None
  current = _scopes.stack[-1]
  current.draws[current.stream] += 1
  return current.key + [current.stream, current.draws[current.stream]]


def forced_sampling() -> bool | None:
  """What the innermost scope asks of layers: sample, posterior mean, or nothing."""
  return _scopes.stack[-1].sample if _scopes.stack else None


def normal(shape: tf.Tensor | tuple[int, ...], seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Standard normal noise of `shape` and floating `dtype`, a function of `seed` [2].

  Half-precision noise is float32 noise rounded.
  """
  draw = tf.float64 if dtype == tf.float64 else tf.float32
  return tf.cast(tf.random.stateless_normal(shape, seed, dtype=draw, alg=_ALGORITHM), dtype)


def signs(shape: tf.Tensor | tuple[int, ...], seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Fair ±1 noise of `shape` and floating `dtype`, a function of `seed` [2]."""
  bits = tf.random.stateless_uniform(shape, seed, 0, 2, dtype=tf.int32, alg=_ALGORITHM)
  return tf.cast(2 * bits - 1, dtype)


def _key(seed: tf.Tensor) -> tf.Tensor:
  """A hash of `seed`, int32 [2].

  Adding the draw's number to the seed instead would make neighbouring seeds,
  such as those of consecutive steps, share noise.
  """
  seed = tf.convert_to_tensor(seed)
  if seed.dtype != tf.int32 or not seed.shape.is_compatible_with([2]):
    raise ValueError(
      'The seed of a noise scope must be int32 of shape [2]. '
      f'Received: seed.dtype={seed.dtype.name}, seed.shape={seed.shape}'
    )
  return tf.random.stateless_uniform(
    [2], seed, minval=None, maxval=None, dtype=tf.int32, alg=_ALGORITHM
  )
