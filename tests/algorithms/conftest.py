"""Algorithms are tested on the in-process runtime."""

import pathlib
import sys

import pytest

from tffpers import runtime

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True)
def in_process():
  """Restores whatever runtime another test left."""
  runtime.use('in_process')
