"""The layout is the architecture: imports point one way."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'tffpers'

# What each part may import of tffpers besides itself.
ALLOWED = {
  'version': set(),
  'requirements': set(),
  'gaussians': set(),
  'keras': {'gaussians'},
  'losses': set(),
  'datasets': set(),
  'runtime': set(),
  'metrics': set(),
  'plots': {'metrics'},
  'seeds': {'keras'},
  'process': set(),
  'modelling': {'seeds'},
  'inspection': {'modelling', 'seeds'},
  'client_loop': {'modelling', 'seeds'},
  'algorithms': {
    'client_loop', 'factors', 'gaussians', 'inspection', 'keras', 'modelling', 'process', 'requirements',
    'runtime', 'seeds',
  },
  'factors': {'gaussians'},
  'simulation': {
    'datasets', 'metrics', 'plots', 'process', 'requirements', 'runtime', 'seeds', 'version',
  },
}  # fmt: skip


def part(path):
  relative = path.relative_to(PACKAGE)
  return relative.parts[0].removesuffix('.py')


def imported_parts(path):
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom) and node.module == 'tffpers':
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and (node.module or '').startswith('tffpers.'):
      found.add(node.module.split('.')[1])
    elif isinstance(node, ast.Import):
      found |= {a.name.split('.')[1] for a in node.names if a.name.startswith('tffpers.')}
  return found


SOURCES = [path for path in sorted(PACKAGE.rglob('*.py')) if path != PACKAGE / '__init__.py']


@pytest.mark.parametrize('path', SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
  own = part(path)
  assert imported_parts(path) <= ALLOWED[own] | {own}


def loaded_modules(statement):
  code = f'import sys; {statement}; print(*sorted(sys.modules))'
  return subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True, check=True
  ).stdout.split()


def test_layers_import_without_tff_and_without_matplotlib():
  loaded = loaded_modules('import tffpers.keras, tffpers.gaussians, tffpers.losses')
  assert not {'tensorflow_federated', 'matplotlib', 'tffpers.process'} & set(loaded)


def test_package_itself_imports_nothing_heavy():
  loaded = loaded_modules('import tffpers')
  assert not {'tensorflow', 'numpy', 'tensorflow_federated', 'matplotlib'} & set(loaded)


def test_importing_everything_changes_no_global_state():
  code = """
import warnings
import numpy as np
filters, state = list(warnings.filters), np.random.get_state()[1].copy()
import tensorflow, tensorflow_probability, tensorflow_federated, matplotlib
filters = list(warnings.filters)
policy = tensorflow.keras.mixed_precision.global_policy().name
state = np.random.get_state()[1].copy()
import tffpers.algorithms, tffpers.datasets, tffpers.keras, tffpers.runtime, tffpers.simulation
assert (np.random.get_state()[1] == state).all()
assert tensorflow.keras.mixed_precision.global_policy().name == policy
assert list(warnings.filters) == filters
assert 'matplotlib.pyplot' not in __import__('sys').modules
"""
  subprocess.run([sys.executable, '-c', code], check=True, capture_output=True)
