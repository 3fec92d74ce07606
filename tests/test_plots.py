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


def test_label_counts_are_darker_where_there_are_more(tmp_path):
  path = tmp_path / 'counts.png'
  plots.label_counts({'a': {0: 9, 1: 0}, 'b': {0: 0}, 'c': {0: 0, 1: 5}}, path)
  picture = matplotlib.image.imread(path)[..., :3].sum(-1)
  height, width = picture.shape
  rows, columns = (np.linspace(0.05, 0.55, 60), np.linspace(0.12, 0.7, 60))
  cells = picture[np.ix_((rows * height).astype(int), (columns * width).astype(int))]
  # Class 0 is the upper row: dark at a, white at c.
  assert cells[:20, :15].mean() < 1 < cells[:20, -15:].mean()


@pytest.mark.parametrize('num_clients', [0, 1, 300])
def test_label_counts_of_any_number_of_clients_and_long_names(tmp_path, num_clients):
  counts = {
    f'a client with a long name {k}': {c: k + c for c in range(5)} for k in range(num_clients)
  }
  plots.label_counts(counts, tmp_path / 'counts.png')
  assert (tmp_path / 'counts.png').stat().st_size > 1000


def test_a_picture_that_fails_leaves_the_file_that_was_there(tmp_path, monkeypatch):
  path = tmp_path / 'clients.png'
  path.write_bytes(b'before')

  def fail(*_):
    raise OSError('disk full')

  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises(OSError, match='disk full'):
    plots.clients({'S': [0.1]}, path)
  assert [file.read_bytes() for file in tmp_path.iterdir()] == [b'before']
