"""What all tests share."""

import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# Two pytest workers on two cores: one thread each is faster than four that compete.
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
os.environ.setdefault('TF_NUM_INTEROP_THREADS', '2')

import pathlib

import hypothesis
import pytest

hypothesis.settings.register_profile('tffpers', deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.load_profile('tffpers')

DATA = pathlib.Path(
  os.environ.get('TFFPERS_DATA', pathlib.Path(__file__).parents[2] / 'shared' / 'data')
)


@pytest.fixture
def shared_data() -> pathlib.Path:
  """The folder of development data; tests that need it skip where it is absent."""
  if not DATA.is_dir():
    pytest.skip(f'development data are not at {DATA}')
  return DATA
