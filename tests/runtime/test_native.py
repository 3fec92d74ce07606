"""The worker of TFF's C++ runtime ends with its parent, however that ends."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow_federated as tff

from tffpers import runtime

SCRIPT = """
import pathlib, sys, time
import numpy as np
import tensorflow_federated as tff
from tffpers import runtime
from tffpers.runtime import native
if sys.argv[1] == 'native':
  runtime.use('native')
else:
  runtime.use_by_default("native")
compute = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS))
assert compute([1, 2, 3]) == 6
tasks = pathlib.Path('/proc/self/task').glob('*/children')
print(*[pid for task in tasks for pid in task.read_text().split()], flush=True)
if sys.argv[2] == 'exception':
  raise ValueError('on purpose')
if sys.argv[2] == 'exit':
  sys.exit(3)
if sys.argv[2] == 'wait':
  time.sleep(100)
"""


def start(default, how):
  env = {**os.environ, 'PYTHONPATH': str(pathlib.Path(runtime.__file__).parents[2])}
  return subprocess.Popen(
    [sys.executable, '-c', SCRIPT, default, how],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # A test run in the background of a shell has SIGINT ignored, and so would its children.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    env=env,
  )


def worker_of(line):
  (pid,) = line.split()
  return int(pid)


def is_alive(pid):
  try:
    return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def assert_gone(pid):
  deadline = time.monotonic() + 5.0
  while is_alive(pid) and time.monotonic() < deadline:
    time.sleep(0.02)
  assert not is_alive(pid)


@pytest.mark.parametrize('default', ['native', 'default'])
@pytest.mark.parametrize(('how', 'code'), [('end', 0), ('exception', 1), ('exit', 3)])
def test_f15_worker_and_pipe_end_with_the_script(default, how, code):
  process = start(default, how)
  printed, errors = process.communicate(timeout=60)
  assert process.returncode == code, errors
  assert_gone(worker_of(printed))


@pytest.mark.parametrize('default', ['native', 'default'])
@pytest.mark.parametrize('sent', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_f15_worker_and_pipe_end_when_the_script_is_killed(default, sent):
  process = start(default, 'wait')
  worker = worker_of(process.stdout.readline())
  assert is_alive(worker)
  process.send_signal(sent)
  process.communicate(timeout=60)
  assert_gone(worker)


def children():
  """The workers among this process's children."""
  tasks = pathlib.Path('/proc/self/task').glob('*/children')
  pids = [int(pid) for task in tasks for pid in task.read_text().split()]
  return [p for p in pids if b'worker_binary' in pathlib.Path(f'/proc/{p}/cmdline').read_bytes()]


def test_f15_one_worker_serves_all_and_is_replaced_when_it_dies():
  compute = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS))
  for _ in range(2):
    with runtime.running('native'):
      assert compute([1, 2]) == 3
  (worker,) = children()
  os.kill(worker, signal.SIGKILL)
  assert_gone(worker)
  with runtime.running('native'):
    assert compute([1, 2]) == 3
  (other,) = children()
  assert other != worker


def rss(pid):
  return int(pathlib.Path(f'/proc/{pid}/statm').read_text().split()[1])


def test_p1_memory_of_the_worker_is_flat_over_changing_numbers_of_clients():
  compute = tff.federated_computation(
    lambda x: tff.federated_sum(x),
    tff.FederatedType(tff.TensorType(np.float32, [1000]), tff.CLIENTS),
  )
  with runtime.running('native'):
    for round_num in range(150):
      compute([np.ones(1000, np.float32)] * (1 + round_num % 30))
      if round_num == 50:
        (worker,) = children()
        before = rss(worker)
    assert rss(worker) < 1.2 * before
