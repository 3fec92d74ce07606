"""The examples in the documentation run as they stand."""

import pathlib
import re
import subprocess
import sys

import pytest

README = (pathlib.Path(__file__).parents[1] / 'README.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


@pytest.mark.parametrize('number', range(len(BLOCKS)))
def test_example_runs(number, tmp_path):
  done = subprocess.run(
    [sys.executable, '-c', BLOCKS[number]], cwd=tmp_path, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout


def test_every_builder_is_in_the_table_of_algorithms():
  from tffpers import algorithms

  for name in algorithms.__all__:
    assert f'| `{name}` |' in README
