"""Tests of the source of noise."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tffpers.keras import noise


def seeds(seed, count=3):
  with noise.scope(tf.constant(seed)):
    return [tuple(noise.next_seed().numpy()) for _ in range(count)]


def test_seeds_are_a_function_of_the_scopes_seed_and_of_the_order():
  assert seeds([1, 2]) == seeds([1, 2])
  drawn = [pair for first in range(3) for second in range(3) for pair in seeds([first, second])]
  assert len(set(drawn)) == len(drawn)


def test_outside_a_scope_there_is_no_seed_and_no_rule():
  assert noise.next_seed() is None
  assert noise.forced_sampling() is None


def test_the_innermost_scope_counts():
  with noise.scope(tf.constant([1, 2]), sample=True):
    with noise.scope(tf.constant([3, 4]), sample=False):
      assert noise.forced_sampling() is False
      assert tuple(noise.next_seed().numpy()) == seeds([3, 4])[0]
    assert noise.forced_sampling() is True
    assert tuple(noise.next_seed().numpy()) == seeds([1, 2])[0]


def test_a_scope_ends_also_on_an_error():
  with pytest.raises(KeyError), noise.scope(tf.constant([1, 2])):
    raise KeyError
  assert noise.next_seed() is None


def test_a_symbolic_seed_gives_the_eager_seeds():
  @tf.function
  def traced(seed):
    with noise.scope(seed):
      return [noise.next_seed() for _ in range(3)]

  for seed in ([1, 2], [5, -7]):
    assert [tuple(pair.numpy()) for pair in traced(tf.constant(seed))] == seeds(seed)


def test_a_stream_shifts_no_other_draw_and_is_continued():
  expected = seeds([1, 2])
  with noise.scope(tf.constant([1, 2])):
    found, others = [], []
    for _ in range(3):
      with noise.stream(1):
        others.append(tuple(noise.next_seed().numpy()))
        with noise.stream(0):  # Streams nest.
          found.append(tuple(noise.next_seed().numpy()))
  assert found == expected
  assert len(set(others + expected)) == 6
  with noise.stream(1):
    assert noise.next_seed() is None


def test_scopes_of_threads_do_not_meet():
  found = []
  with noise.scope(tf.constant([1, 2])):
    thread = threading.Thread(target=lambda: found.append(noise.next_seed()))
    thread.start()
    thread.join()
  assert found == [None]


def test_xla_draws_the_same_noise():
  def draw():
    seed = tf.constant([3, 4])
    return noise.normal((1000,), seed, tf.float32), noise.signs((1000,), seed, tf.float32)

  normal, signs = draw()
  compiled_normal, compiled_signs = tf.function(draw, jit_compile=True)()
  np.testing.assert_allclose(normal, compiled_normal, atol=1e-4)
  np.testing.assert_array_equal(signs, compiled_signs)
  assert set(signs.numpy()) == {-1.0, 1.0}


@pytest.mark.parametrize('seed', [tf.constant([1, 2], tf.int64), tf.constant([1, 2, 3])])
def test_a_seed_of_another_type_or_shape_is_refused(seed):
  with pytest.raises(ValueError, match='Received'), noise.scope(seed):
    pass
