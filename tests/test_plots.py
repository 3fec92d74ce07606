import os
import subprocess
import sys
import types

import matplotlib.image
import numpy as np
import pytest

from tffpers import plots

HISTORY = [
  {
    'round': r,
    'server_accuracy': 0.1 * r,
    'server_loss': 1 / r,
    'clients_accuracy_weighted': 0.12 * r,
    'clients_loss_weighted': 0.5 / r,
  }
  for r in range(1, 5)
]
CLIENTS = {
  key: {'client_id': key, 'client_accuracy': value}
  for key, value in (('a', 0.2), ('b', 0.9), ('c', float('nan')))
}


def ink(path) -> float:
  """Share of the picture that is not white."""
  return float(np.mean(matplotlib.image.imread(path)[..., :3].min(-1) < 0.99))


def test_every_method_adds_a_curve(tmp_path):
  plots.curves({'one': HISTORY}, tmp_path / 'one.png')
  shifted = [{**row, 'server_accuracy': 1 - row['server_accuracy']} for row in HISTORY]
  plots.curves({'one': HISTORY, 'two': shifted}, tmp_path / 'two.png')
  assert ink(tmp_path / 'two.png') > ink(tmp_path / 'one.png') > 0.01


def test_clients_are_drawn_and_those_without_data_left_out(tmp_path):
  plots.clients({'S': [0.1, 0.5, float('nan')], 'MT': [0.2, 0.6]}, tmp_path / 'a.png')
  plots.clients({'S': [0.1, 0.5], 'MT': [0.2, 0.6]}, tmp_path / 'b.png')
  assert (tmp_path / 'a.png').read_bytes() == (tmp_path / 'b.png').read_bytes()


def test_compare_draws_methods_beside_one_another(tmp_path):
  result = types.SimpleNamespace(history=HISTORY, clients=CLIENTS)
  plots.compare({'FedAvg': result, 'Ditto': result}, tmp_path / 'compare.png')
  height, width, _ = matplotlib.image.imread(tmp_path / 'compare.png').shape
  assert width == pytest.approx(3 * height, rel=0.01)
  assert ink(tmp_path / 'compare.png') > 0.01


def test_nothing_measured_gives_empty_axes(tmp_path):
  plots.curves({'none': [], 'training only': [{'round': 1, 'train_loss': 0.1}]}, tmp_path / 'e.png')
  assert ink(tmp_path / 'e.png') < 0.1


def test_i6_works_without_a_display_and_leaves_pyplot_alone(tmp_path):
  code = f"""
import sys
from tffpers import plots
plots.clients({{'S': [0.5]}}, {str(tmp_path / 'x.png')!r})
assert 'matplotlib.pyplot' not in sys.modules
assert 'tensorflow' not in sys.modules
import matplotlib
assert matplotlib.get_backend().lower() == 'tkagg'
"""
  environment = {k: v for k, v in os.environ.items() if k != 'DISPLAY'}
  environment |= {'MPLBACKEND': 'TkAgg', 'PYTHONPATH': os.getcwd()}
  subprocess.run([sys.executable, '-c', code], env=environment, check=True, timeout=60)
  assert (tmp_path / 'x.png').stat().st_size > 1000
