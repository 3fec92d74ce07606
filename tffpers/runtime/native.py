"""TFF's C++ runtime, with a worker process that ends when this one does.

TFF starts its worker with our standard output and leaves it running after we exit, so
that a script in a pipe never ends. Here the kernel kills the worker when this process
is gone for whatever reason, and no file of ours is held open by it.
"""

import atexit
import collections
import concurrent.futures
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import portpicker
import tensorflow_federated as tff

_MAX_MESSAGE_BYTES = 2_000_000_000
_CHANNEL_OPTIONS = [
  (f'grpc.max_{kind}message_length', _MAX_MESSAGE_BYTES) for kind in ('', 'receive_', 'send_')
]
_START_TIMEOUT_SECONDS = 60.0
_NUM_EXECUTORS = 10  # kept per number of clients, as many as TFF keeps

# Runs in the child before the worker replaces it. 1 is PR_SET_PDEATHSIG; the parent may
# have died before it took effect, hence the look at who the parent is now.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
  os.execv(sys.argv[2], sys.argv[2:])
"""


@functools.cache
def create_context() -> tff.framework.SyncContext:
  """TFF's C++ runtime as a context; the same one at each call, so one worker in all.

  The worker is started by the first computation.

  Raises:
    RuntimeError: (by a computation) The worker did not start; says what it printed.
  """
  return tff.framework.SyncExecutionContext(
    executor_fn=_Executors(_Worker()),
    compiler_fn=tff.backends.native.desugar_and_transform_to_native,
    transform_args=tff.tensorflow.transform_args,
    transform_result=tff.tensorflow.transform_result,
  )


class _Worker:
  """The worker process and the connection to it, made at first need and again if it dies."""

  def __init__(self):
    self._lock = threading.Lock()
    self._process: subprocess.Popen | None = None
    self._stub: tff.framework.RemoteExecutorGrpcStub | None = None

  def stub(self) -> tff.framework.RemoteExecutorGrpcStub:
    """A connection to a running worker."""
    with self._lock:
      if self._process is None or self._process.poll() is not None:
        port = portpicker.pick_unused_port()
        with tempfile.TemporaryFile() as log:
          self._process = _spawn(port, log)
          channel = grpc.insecure_channel(f'localhost:{port}', _CHANNEL_OPTIONS)
          atexit.register(_stop, self._process, channel, os.getpid())
          self._stub = _connect(self._process, channel, log)
      return self._stub


def _spawn(port: int, log) -> subprocess.Popen:
  """Starts the worker from a thread that lives as long as this process.

  The kernel's signal comes at the end of the *thread* that made the child.
  """
  binary = pathlib.Path(tff.__file__).parent / 'data' / 'worker_binary'
  if not binary.is_file():
    raise RuntimeError(f'TFF has no worker to start. Received: path={binary}')
  command = [sys.executable, '-I', '-S', '-c', _LAUNCHER, str(os.getpid())]
  command += [str(binary), f'--port={port}', '--max_concurrent_computation_calls=-1']
  started: concurrent.futures.Future[subprocess.Popen] = concurrent.futures.Future()

  def run() -> None:
    try:
      # A session of its own: Ctrl-C in a terminal is for us to handle.
      process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
      )
      started.set_result(process)
    except OSError as error:
      started.set_exception(error)
    threading.Event().wait()

  threading.Thread(target=run, daemon=True, name='tffpers-worker-parent').start()
  return started.result()


def _connect(
  process: subprocess.Popen, channel: grpc.Channel, log
) -> tff.framework.RemoteExecutorGrpcStub:
  stub = tff.framework.RemoteExecutorGrpcStub(channel)
  deadline = time.monotonic() + _START_TIMEOUT_SECONDS
  while not stub.is_ready:
    if process.poll() is not None or time.monotonic() > deadline:
      process.kill()
      log.seek(0)
      printed = log.read().decode(errors='replace')[-1000:]
      raise RuntimeError(
        f'TFF’s worker did not start. Received: exit={process.poll()}, printed={printed!r}'
      )
    time.sleep(0.02)
  return stub


def _stop(process: subprocess.Popen, channel: grpc.Channel, owner: int) -> None:
  if os.getpid() == owner:  # not in a forked child, which inherits the exit handlers
    # First: a thread that watches the connection would see it break while Python ends.
    channel.close()
    process.kill()
    process.wait()


class _Executors(tff.framework.ExecutorFactory):
  """The worker's executors, one per number of clients, the least recently used closed.

  TFF's own factory forgets an executor without closing it, and the worker's memory
  grows with every change of the number of clients beyond the tenth.
  """

  def __init__(self, worker: _Worker):
    self._worker = worker
    self._stub = None
    self._executors: collections.OrderedDict[tuple, tff.framework.RemoteExecutor] = (
      collections.OrderedDict()
    )

  def create_executor(self, cardinalities) -> tff.framework.RemoteExecutor:
    stub = self._worker.stub()
    if stub is not self._stub:  # a new worker knows nothing of the old one's executors
      self._stub = stub
      self._executors.clear()
    key = _key(cardinalities)
    if key not in self._executors:
      executor = tff.framework.RemoteExecutor(stub)
      executor.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
      self._executors[key] = executor
    self._executors.move_to_end(key)
    while len(self._executors) > _NUM_EXECUTORS:
      self._executors.popitem(last=False)[1].close()
    return self._executors[key]

  def clean_up_executor(self, cardinalities) -> None:
    executor = self._executors.pop(_key(cardinalities), None)
    if executor is not None:
      executor.close()


def _key(cardinalities) -> tuple:
  return tuple(sorted((str(placement), number) for placement, number in cardinalities.items()))
