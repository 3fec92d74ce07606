"""The simulation is tested on the in-process runtime, with a process worked out by hand."""

import pathlib
import sys

import pytest

from tffpers import runtime

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import toy_process  # noqa: E402


@pytest.fixture(autouse=True)
def in_process():
  """Restores whatever runtime another test left."""
  runtime.use('in_process')


@pytest.fixture(scope='session')
def process():
  """Compiled once for all tests."""
  return toy_process.build()


@pytest.fixture(scope='session')
def fed_avg():
  """FedAvg with dropout and server momentum, compiled once."""
  return toy_process.build_small_fed_avg()
