"""What is missing is said in one sentence."""

import importlib.metadata
import platform
import sys

import pytest

from tffpers import requirements


def test_this_environment_has_what_it_needs():
  assert requirements.problem() is None
  requirements.check()
  requirements.exit_if_unmet()


def one_sentence(words):
  with pytest.raises(ImportError) as caught:
    requirements.check()
  text = str(caught.value)
  assert '\n' not in text
  assert all(word in text for word in words), text
  with pytest.raises(SystemExit) as caught_exit:
    requirements.exit_if_unmet()
  assert str(caught_exit.value) == f'tffpers: {text}'


def test_wrong_python_is_named(monkeypatch):
  monkeypatch.setattr(sys, 'version_info', (3, 13, 1))
  monkeypatch.setattr(platform, 'python_version', lambda: '3.13.1')
  one_sentence(['Found Python 3.13.1', '3.10 and 3.11', 'make run'])


@pytest.mark.parametrize(('system', 'machine'), [('Darwin', 'arm64'), ('Windows', 'AMD64')])
def test_wrong_platform_is_named(monkeypatch, system, machine):
  monkeypatch.setattr(platform, 'system', lambda: system)
  monkeypatch.setattr(platform, 'machine', lambda: machine)
  one_sentence([f'Found {system} on {machine}', 'Linux on x86-64'])


@pytest.mark.parametrize('package', list(requirements.WANTED))
def test_wrong_version_names_found_and_wanted(monkeypatch, package):
  real = importlib.metadata.version
  monkeypatch.setattr(
    importlib.metadata, 'version', lambda name: '0.33.0' if name == package else real(name)
  )
  one_sentence([f'Found {package} 0.33.0', f'needs {package} {requirements.WANTED[package]}'])


def test_missing_tff_is_named(monkeypatch):
  def version(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, 'version', version)
  one_sentence(['Found tensorflow-federated none'])
