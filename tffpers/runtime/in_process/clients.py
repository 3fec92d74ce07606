"""Runs the work of the clients of one call, in parallel threads."""

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import Any

from tffpers.runtime.in_process import values


class ClientError(RuntimeError):
  """The work of one client failed.

  Attributes:
    position: Which client, counted from 0 in the order of the argument's lists.
  """

  def __init__(self, position: int, num_clients: int, error: Exception):
    super().__init__(
      f'The work of the client at position {position} of {num_clients} failed: '
      f'{type(error).__name__}: {error}'
    )
    self.position = position


def num_cores() -> int:
  """The CPU cores this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


class Threads:
  """Maps functions over clients with at most `parallelism` of them running at a time."""

  def __init__(self, parallelism: int):
    self._parallelism = parallelism
    # One less than `parallelism`: the caller's own thread works too.
    self._executor = concurrent.futures.ThreadPoolExecutor(
      max(1, parallelism - 1), thread_name_prefix='tffpers-client'
    )

  def map(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list:
    """`[fn(item) for item in items]`; raises `ClientError` for the first that fails."""
    results = [None] * len(items)
    errors: dict[int, Exception] = {}
    positions = iter(range(len(items)))  # shared by the threads; its `next` is atomic

    def work() -> None:
      for i in positions:
        try:
          results[i] = fn(items[i])
        except Exception as error:  # pylint: disable=broad-except
          errors[i] = error
          list(positions)  # clients not begun yet are left out
        except BaseException:
          list(positions)
          raise

    helpers = min(self._parallelism, len(items)) - 1
    futures = [self._executor.submit(work) for _ in range(helpers)]
    try:
      work()
    finally:
      concurrent.futures.wait(futures)
    for future in futures:
      future.result()
    if errors:
      position = min(errors)
      raise ClientError(position, len(items), errors[position]) from errors[position]
    return results


class Clients:
  """The clients of one call: how many there are, and the threads that do their work."""

  def __init__(self, number: int, threads: Threads):
    self.number = number
    self._threads = threads

  def spread(self, value: Any) -> list:
    """A value at CLIENTS as a list with one item per client."""
    return [value.value] * self.number if isinstance(value, values.Everywhere) else value

  def map(self, fn: Callable[[Any], Any], value: Any) -> list:
    """`fn` of each client's item, in client order."""
    return self._threads.map(fn, self.spread(value))
