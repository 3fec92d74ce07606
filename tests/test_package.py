"""The wheel builds, and its metadata say what it needs."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  target = tmp_path_factory.mktemp('wheel')
  source = tmp_path_factory.mktemp('source') / 'tree'
  listed = subprocess.run(
    ['git', 'ls-files', '-z', 'tffpers', 'setup.py', 'setup.cfg', 'pyproject.toml', 'README.md'],
    cwd=ROOT, capture_output=True, check=True,
  ).stdout.decode()  # fmt: skip
  for name in filter(None, listed.split('\0')):
    if (ROOT / name).is_file():
      (source / name).parent.mkdir(parents=True, exist_ok=True)
      (source / name).write_bytes((ROOT / name).read_bytes())
  subprocess.run(
    [sys.executable, '-m', 'build', '--wheel', '--no-isolation', '--outdir', target, source],
    check=True, capture_output=True,
  )  # fmt: skip
  (path,) = target.glob('*.whl')
  return zipfile.ZipFile(path)


def test_wheel_holds_every_module_and_no_test(wheel):
  names = set(wheel.namelist())
  for path in (ROOT / 'tffpers').rglob('*.py'):
    assert str(path.relative_to(ROOT)) in names
  assert 'tffpers/py.typed' in names
  assert not any(name.startswith(('tests/', 'experiments/')) for name in names)


def test_metadata_pin_python_and_keep_tff_optional(wheel):
  (name,) = [n for n in wheel.namelist() if n.endswith('METADATA')]
  lines = wheel.read(name).decode().splitlines()
  assert 'Requires-Python: <3.14,>=3.10' in lines or 'Requires-Python: >=3.10,<3.14' in lines
  needs = [line for line in lines if line.startswith('Requires-Dist')]
  plain = [line for line in needs if 'extra ==' not in line]
  assert not any('federated' in line for line in plain)
  assert any('tensorflow-federated==0.87.0' in line and 'extra ==' in line for line in needs)
