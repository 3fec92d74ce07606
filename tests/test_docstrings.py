"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tffpers

MODULES = [
  module.name
  for module in pkgutil.walk_packages(tffpers.__path__, 'tffpers.')
  if not module.ispkg or module.name in ('tffpers.runtime', 'tffpers.keras')
]


@pytest.mark.parametrize('name', MODULES)
def test_examples(name):
  module = importlib.import_module(name)
  failures, _ = doctest.testmod(module, extraglobs={'np': np}, optionflags=doctest.ELLIPSIS)
  assert failures == 0
