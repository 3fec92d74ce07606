"""The TFF context that evaluates computations with TensorFlow in this process."""

import threading
import weakref
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers.runtime.in_process import arguments, evaluate, results
from tffpers.runtime.in_process import clients as client_threads


class InProcessContext(tff.framework.SyncContext):
  """Runs TFF computations here: on the GPU if TensorFlow sees one, clients in threads.

  A computation is compiled on its first call and never traced again, whatever the
  number of clients or the sizes of their data. Results are in client order and sums
  are taken in it, so the parallelism does not change a bit on a CPU. (A graph that
  draws from TensorFlow's *stateful* random operators is the exception, as in any
  runtime; draw from stateless seeds.) Which device is used follows TensorFlow's own
  rules: `tf.config.set_visible_devices([], 'GPU')` keeps to the CPU.

  Arguments may be numpy arrays, tensors (which cost no copy), Python numbers and
  lists of them, in dicts (matched by name), named tuples, attrs classes, tuples or
  `tff.structure.Struct`s; client values in a list, tuple or iterator; sequences as
  `tf.data.Dataset`s or lists. Results are what TFF's own runtime returns: numpy scalars,
  read-only numpy arrays, bytes, datasets, and the containers of the computation's type.
  Secure sums are computed as plain sums with the bounds checked: nobody here to hide from.

  Args:
    parallelism: How many clients work at the same time, at least 1; by default
      the number of CPU cores this process may use.
  """

  def __init__(self, parallelism: int | None = None):
    if parallelism is not None and parallelism < 1:
      raise ValueError(f'parallelism must be at least 1. Received: parallelism={parallelism}')
    self._threads = client_threads.Threads(parallelism or client_threads.num_cores())
    self._lock = threading.Lock()
    # By identity, because hashing a computation serialises it; and by content, because
    # one computation may be wrapped in several objects.
    self._by_object: dict[int, _Program] = {}
    self._by_content: weakref.WeakValueDictionary[bytes, _Function] = weakref.WeakValueDictionary()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Evaluates `comp` with argument `arg` (None where it takes none).

    Raises:
      arguments.ArgumentError: (a `TypeError`) The argument is not of the parameter's type.
      ValueError: Values at CLIENTS differ in their number of clients.
      clients.ClientError: The work of a client failed; it names the client's position.
      RuntimeError: Called while a TensorFlow graph is being built.
    """
    if not tf.executing_eagerly():
      raise RuntimeError('A TFF computation cannot be called while a TensorFlow graph is built.')
    return self._program(comp).run(arg, self._threads)

  def _program(self, comp: tff.framework.ConcreteComputation) -> '_Program':
    program = self._by_object.get(id(comp))
    if program is None:
      with self._lock:
        program = self._by_object.get(id(comp))
        if program is None:
          program = _Program(comp, self._function(comp))
          self._by_object[id(comp)] = program
          weakref.finalize(comp, self._by_object.pop, id(comp), None).atexit = False
    return program

  def _function(self, comp: tff.framework.ConcreteComputation) -> '_Function':
    proto = tff.framework.ConcreteComputation.get_proto(comp)
    key = proto.SerializeToString(deterministic=True)
    function = self._by_content.get(key)
    if function is None:
      function = self._by_content[key] = _Function(comp)
    return function


class _Function:
  """A compiled computation: a function from clients and a runtime value to another."""

  def __init__(self, comp: tff.framework.ConcreteComputation):
    comp = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(comp.to_building_block())
    self._evaluate = evaluate.Compiler().compile(tff.framework.to_call_dominant(block))

  def __call__(self, clients: client_threads.Clients, arg: Any) -> Any:
    return self._evaluate({evaluate.CLIENTS: clients})(arg)


class _Program:
  """A compiled computation with the Python types of one computation object."""

  def __init__(self, comp: tff.framework.ConcreteComputation, function: _Function):
    parameter = comp.type_signature.parameter
    self._read = arguments.reader(parameter) if parameter is not None else None
    self._count_clients = arguments.client_counter(parameter)
    self._function = function
    self._write = results.writer(comp.type_signature.result)

  def run(self, arg: Any, threads: client_threads.Threads) -> Any:
    value = self._read(arg) if self._read else None
    number = self._count_clients(value)
    result = self._function(client_threads.Clients(number, threads), value)
    return self._write(result, number)
