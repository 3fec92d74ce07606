import csv
import json
import math
import os
import pathlib
import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf
import toy_process
from tensorboard.backend.event_processing import event_accumulator

from tffpers import simulation
from tffpers.simulation import history, reports

SUMMARY = [
  'method',
  'dataset',
  'rounds',
  'seed',
  'num_clients',
  'server',
  'clients',
  'evaluation_point',
  'clients_before',
  'clients_after',
  'best_round',
  'selected_on',
  'sigma_quantiles',
  'models_up_per_round',
  'models_down_per_round',
  'bytes_up_per_round',
  'bytes_down_per_round',
  'seconds_per_round',
  'personalize_traffic',
]
CLIENTS = [
  'accuracy_mean',
  'accuracy_weighted',
  'accuracy_std',
  'accuracy_p5',
  'accuracy_p10',
  'accuracy_p50',
  'accuracy_p90',
  'worst10_mean',
  'loss_mean',
  'nll',
  'ece',
]


@pytest.fixture(scope='module')
def finished(tmp_path_factory, process):
  from tffpers import runtime

  runtime.use('in_process')
  folder = tmp_path_factory.mktemp('run')
  data = toy_process.data()
  result = simulation.run(
    process,
    data,
    test_data=data,
    output_dir=folder,
    config={'width': 3},
    **toy_process.arguments(rounds=4, evaluate_every=2),
  )
  return folder, result


def rows(path: pathlib.Path) -> list[dict[str, str]]:
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.DictReader(file))


def test_metrics_csv_has_a_row_per_evaluated_round_with_exact_numbers(finished):
  folder, result = finished
  read = rows(folder / 'metrics.csv')
  assert [row['round'] for row in read] == ['2', '4']
  for row, expected in zip(read, result.history, strict=True):
    assert {k: float(v) for k, v in row.items()} == pytest.approx(expected, abs=0, nan_ok=True)


def test_clients_csv_has_a_row_per_client(finished):
  folder, result = finished
  read = rows(folder / 'clients.csv')
  assert [row['client_id'] for row in read] == toy_process.data().client_ids
  assert sum(int(row['rounds']) for row in read) == 4 * 2
  for row in read:
    expected = result.clients[row['client_id']]
    assert float(row['client_accuracy']) == expected['client_accuracy']
    assert int(row['num_test']) == expected['client_num_examples'] == expected['num_train']


def test_summary_has_exactly_the_fixed_keys(finished):
  folder, result = finished
  summary = json.loads((folder / 'summary.json').read_text())
  assert summary == result.summary
  assert list(summary) == SUMMARY
  assert list(summary['clients']) == list(summary['clients_after']) == CLIENTS
  assert list(summary['server']) == ['accuracy', 'loss']
  assert summary['clients_after'] == summary['clients']
  assert list(summary['clients_before']) == CLIENTS
  measured = [row['server_accuracy'] for row in result.clients.values() if row['num_test']]
  assert summary['clients_before']['accuracy_mean'] == pytest.approx(np.mean(measured))
  assert summary['clients']['nll'] is None
  assert summary['clients']['accuracy_p50'] == result.history[-1]['clients_accuracy_p50']
  assert (summary['method'], summary['dataset'], summary['seed']) == ('toy', 'counting', 3)
  # Two clients a round.
  assert (summary['models_up_per_round'], summary['models_down_per_round']) == (2, 6)
  assert (summary['bytes_up_per_round'], summary['bytes_down_per_round']) == (16, 8)
  assert summary['sigma_quantiles'] == {'sigma_p5': float(result.server_state.mean)}
  assert summary['seconds_per_round'] > 0


def test_a_run_without_test_data_has_nulls(process):
  result = simulation.run(process, toy_process.data(), **toy_process.arguments(rounds=1))
  assert list(result.summary) == SUMMARY
  assert result.summary['server'] == {'accuracy': None, 'loss': None}
  assert set(result.summary['clients'].values()) == {None}
  assert (result.summary['best_round'], result.summary['selected_on']) == (None, None)
  assert result.history[0]['train_num_clients'] == 2


def test_config_holds_every_setting(finished):
  config = json.loads((finished[0] / 'config.json').read_text())
  assert config['hyper_parameters'] == {'algorithm': 'toy'}
  assert config['settings'] == {'width': 3}
  assert (config['seed'], config['rounds'], config['evaluate_every']) == (3, 4, 2)
  assert config['data']['train']['examples'] == 21
  assert config['versions']['tensorflow'] == '2.14.1'


def test_pictures_and_events_are_written(finished):
  folder, result = finished
  for name in ('curves.png', 'clients.png'):
    assert matplotlib.image.imread(folder / name).shape[0] > 100
  events = event_accumulator.EventAccumulator(str(folder / 'tensorboard'))
  events.Reload()
  tensors = events.Tensors('clients/accuracy_mean')
  assert [event.step for event in tensors] == [2, 4]
  value = tf.make_ndarray(tensors[-1].tensor_proto)
  assert value == pytest.approx(result.history[-1]['clients_accuracy_mean'])


def test_nothing_temporary_is_left(finished):
  assert sorted(path.name for path in finished[0].iterdir()) == sorted(
    [*reports.FILES, 'state.sqlite', 'tensorboard']
  )


def test_a_report_that_fails_leaves_the_old_one(tmp_path):
  path = tmp_path / 'summary.json'
  reports.write_json(path, {'a': float('nan'), 'b': [float('inf'), 1]})
  assert json.loads(path.read_text()) == {'a': None, 'b': [None, 1]}
  with pytest.raises(TypeError):
    reports.write_json(path, {'a': object()})
  assert [p.name for p in tmp_path.iterdir()] == ['summary.json']
  assert json.loads(path.read_text())['a'] is None


def test_e3_final_and_best_are_told_apart():
  series = tuple(
    {'round': r, 'clients_accuracy_mean': a, 'clients_accuracy_weighted': a}
    for r, a in ((1, 0.5), (2, 0.9), (3, 0.6))
  )
  assert history.best(series) == (2, 'test')
  validated = tuple(
    {**row, 'validation_clients_accuracy_mean': v}
    for row, v in zip(series, (0.7, 0.6, 0.7), strict=True)
  )
  assert history.best(validated) == (1, 'validation')
  losses = tuple({'round': r, 'server_loss': v} for r, v in ((1, math.nan), (2, 3.0), (3, 2.0)))
  assert history.best(losses) == (3, 'test')
  assert history.best(()) == (None, None)


def test_f15_i6_a_piped_run_without_a_display_ends(tmp_path):
  here = pathlib.Path(__file__).parent
  code = f"""
import sys
sys.path.insert(0, {str(here)!r})
import toy_process
from tffpers import runtime, simulation
runtime.use('in_process')
data = toy_process.data()
simulation.run(toy_process.build(), data, test_data=data, output_dir={str(tmp_path / 'run')!r},
               **toy_process.arguments(rounds=2))
assert 'matplotlib.pyplot' not in sys.modules
assert not [name for name in sys.modules if name.startswith('tffpers.algorithms')]
"""
  environment = {k: v for k, v in os.environ.items() if k != 'DISPLAY'}
  environment |= {'MPLBACKEND': 'TkAgg', 'PYTHONPATH': str(here.parents[1])}
  done = subprocess.run(
    [sys.executable, '-c', code], env=environment, capture_output=True, timeout=120
  )
  assert done.returncode == 0, done.stderr.decode()[-3000:]
  assert (tmp_path / 'run' / 'curves.png').exists()
