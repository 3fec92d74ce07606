import platform
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_federated as tff

from tffpers import runtime


def current():
  return tff.framework.get_context_stack().current


def test_use_sets_the_default_and_running_gives_it_back():
  before = current()
  try:
    runtime.use('in_process')
    chosen = current()
    with runtime.running('native'):
      assert current() is not chosen
    assert current() is chosen
    runtime.use('in_process')
    assert current() is chosen
  finally:
    tff.framework.set_default_context(before)


def test_running_gives_the_previous_runtime_back_after_an_error():
  before = current()
  with pytest.raises(ZeroDivisionError), runtime.running('in_process'):
    1 / 0  # noqa: B018
  assert current() is before


@pytest.mark.parametrize('function', [runtime.use, lambda name: runtime.running(name).__enter__()])
def test_unknown_runtime_is_named_with_those_known(function):
  with pytest.raises(ValueError, match=r"\['in_process', 'native'\].*'gpu'"):
    function('gpu')


@pytest.mark.parametrize(
  ('system', 'machine'), [('Darwin', 'arm64'), ('Windows', 'AMD64'), ('Linux', 'aarch64')]
)
def test_i3_other_platforms_are_told_in_a_sentence(monkeypatch, system, machine):
  monkeypatch.setattr(platform, 'system', lambda: system)
  monkeypatch.setattr(platform, 'machine', lambda: machine)
  runtime._context.cache_clear()
  with pytest.raises(RuntimeError, match=f'Linux x86-64 only.*{system}.*{machine}'):
    runtime.use('in_process')


def test_import_brings_in_neither_tensorflow_nor_tff():
  names = "{'tensorflow', 'tensorflow_federated'}"
  code = f'import sys, tffpers.runtime; print({names} & set(sys.modules))'
  printed = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  assert printed.stdout.strip() == 'set()'


def test_both_runtimes_run_the_same_computation():
  compute = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS))
  for name in ('in_process', 'native'):
    with runtime.running(name):
      assert compute([1, 2, 3]) == 6
