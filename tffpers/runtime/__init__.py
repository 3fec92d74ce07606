"""Where TFF computations run.

`in_process` evaluates them with TensorFlow in this process, on the GPU if there is one.
`native` is TFF's own C++ runtime: a worker process, on the CPU only, that ends when
this process does.
"""

import contextlib
import functools
import importlib
import platform
from collections.abc import Iterator
from typing import Any

_FACTORIES = {
  'in_process': ('tffpers.runtime.in_process', 'InProcessContext'),
  'native': ('tffpers.runtime.native', 'create_context'),
}


def use(name: str) -> None:
  """Makes runtime `name` TFF's default for this thread.

  Args:
    name: `'in_process'` or `'native'`.

  Raises:
    ValueError: There is no runtime of that name.
    RuntimeError: This is not Linux on x86-64, the only platform TFF is built for.

  >>> import numpy as np, tensorflow_federated as tff
  >>> use('in_process')
  >>> total = tff.federated_computation(
  ...     lambda x: tff.federated_sum(x), tff.FederatedType(np.int32, tff.CLIENTS))
  >>> int(total([1, 2, 3]))
  6
  """
  context = _context(name)
  import tensorflow_federated as tff  # here, so that importing this module stays cheap

  tff.framework.set_default_context(context)


def use_by_default(name: str) -> None:
  """As `use`, unless a runtime has been chosen already in this thread.

  TFF's stock runtime, there since TFF was imported, is no choice: its worker process
  outlives this one and holds its standard output open. A thread other than the one
  that imported TFF has no runtime at all.
  """
  import tensorflow_federated as tff  # as above

  current = tff.framework.get_context_stack().current
  stack_fn = getattr(getattr(current, 'executor_factory', None), '_executor_stack_fn', None)
  stock = getattr(stack_fn, '__qualname__', '').startswith('local_cpp_executor_factory.')
  if stock or type(current).__name__ == 'RuntimeErrorContext':
    use(name)


@contextlib.contextmanager
def running(name: str) -> Iterator[None]:
  """Runs TFF computations on runtime `name` inside a `with` block of this thread.

  Args:
    name: As for `use`, which also says what is raised.
  """
  context = _context(name)
  import tensorflow_federated as tff  # as above

  with tff.framework.get_context_stack().install(context):
    yield


@functools.cache
def _context(name: str) -> Any:
  """The context of runtime `name`: one per process, so compiled computations are kept."""
  if name not in _FACTORIES:
    raise ValueError(f'Unknown runtime; expected one of {sorted(_FACTORIES)}. Received: {name!r}')
  system, machine = platform.system(), platform.machine()
  if (system, machine) != ('Linux', 'x86_64'):
    raise RuntimeError(
      'TensorFlow Federated runs on Linux x86-64 only. '
      f'Received: system={system!r}, machine={machine!r}'
    )
  module, factory = _FACTORIES[name]
  return getattr(importlib.import_module(module), factory)()
