"""Every script starts, explains its flags, and runs where its data come with a package."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / 'experiments'
SCRIPTS = sorted(
  path.name for path in FOLDER.glob('virtual_*.py') if path.name != 'virtual_methods.py'
)


def run(*arguments):
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=FOLDER,
    capture_output=True,
    text=True,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
  )


@pytest.mark.parametrize('script', SCRIPTS)
def test_script_explains_its_flags(script):
  done = run(script, '--helpshort')
  assert 'Traceback' not in done.stderr
  for flag in ('--output_dir', '--seed', '--rounds', '--preset', '--beta'):
    assert flag in done.stdout


@pytest.mark.parametrize(
  'arguments',
  [
    ('virtual_images.py', '--preset=quick', '--num_clients=4', '--clients_per_round=2'),
    ('virtual_sensors.py', '--sensors=watch', '--clients_per_round=2', '--batch_size=200'),
  ],
  ids=['images', 'sensors'],
)
def test_script_runs_on_data_of_a_package(arguments):
  done = run(*arguments, '--rounds=1', '--epochs=1', '--method=fed_avg', '--noprogress')
  if 'seglearn' in done.stderr:
    pytest.skip('the package seglearn is not installed')
  assert done.returncode == 0, done.stderr
  assert '| fed_avg |' in done.stdout


def test_mistake_ends_a_script_with_a_sentence():
  done = run('virtual_images.py', '--preset=quick', '--num_clients=4', '--clients_per_round=9')
  assert done.returncode == 1
  assert 'clients_per_round must be' in done.stderr
  assert 'Traceback' not in done.stderr
