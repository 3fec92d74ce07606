import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
  """The scripts import each other as plain modules."""
  monkeypatch.syspath_prepend(str(FOLDER.parents[1] / 'experiments'))
