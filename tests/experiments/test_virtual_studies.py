import csv
import functools
import os
import pathlib
import subprocess
import sys
from importlib import import_module as module

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tffpers import algorithms, datasets, runtime
from tffpers.keras import metrics, models

EXPERIMENTS = pathlib.Path(__file__).parents[2] / 'experiments'


def measured():
  return [
    tf.keras.metrics.SparseCategoricalAccuracy('accuracy'),
    metrics.NegativeLogLikelihood('nll'),
    metrics.ExpectedCalibrationError(name='ece'),
    metrics.predictive_entropy,
  ]


@pytest.fixture
def setting(tmp_path):
  """Digits of four clients, a network with one small layer, two rounds of two clients."""
  train, test = datasets.load_digits(num_clients=4, seed=1)
  shared = {
    'loss_fn': tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    'metrics_fn': measured,
    'element_spec': train.element_spec,
    'optimizer': tff.learning.optimizers.build_sgdm(0.1),
    'epochs': 10,
    'batch_size': 20,
  }
  network = functools.partial(
    models.mlp, input_shape=tuple(train.element_spec[0].shape), hidden=(4,)
  )
  plain = {**shared, 'model_fn': functools.partial(network, bayesian=False)}
  virtual = functools.partial(
    algorithms.build_virtual,
    model_fn=functools.partial(network, bayesian=True),
    client_num_examples=[train.num_examples(key) for key in train.client_ids],
    **shared,
  )
  runtime.use('in_process')
  return module('study_setting').Setting(
    dataset='digits',
    preset='small',
    command='the command',
    folder=tmp_path,
    train=train,
    test=test,
    methods={
      'fed_avg': functools.partial(algorithms.build_fed_avg, **plain),
      'fed_prox': functools.partial(algorithms.build_fed_prox, mu=0.01, **plain),
      'virtual': virtual,
      'virtual_frozen': functools.partial(virtual, scale_learning_rate_multiplier=0.0),
    },
    rounds=2,
    clients_per_round=2,
    evaluate_every=1,
    seed=1,
    values={'epochs': 10},
    progress=False,
  )


def table(setting, name: str) -> list[dict[str, str]]:
  caption, rows = module('study_reports').read_table(setting.folder, name)
  # Everything that is needed to make the table again stands over it.
  for part in ('digits', 'preset small', '2 rounds', 'seed 1', 'K=4', 'C=2', 'the command'):
    assert part in caption
  assert (setting.folder / f'{name}.md').read_text(encoding='utf-8').startswith(caption)
  return rows


def assert_drawn(setting, name: str) -> None:
  picture = matplotlib.image.imread(setting.folder / f'{name}.png')
  assert np.mean(picture[..., :3].min(-1) < 0.99) > 0.01


def history(s, mt):
  return [
    {'round': i, 'server_accuracy': a, 'clients_accuracy_weighted': b}
    for i, (a, b) in enumerate(zip(s, mt, strict=True), 1)
  ]


def test_lag_is_the_number_of_rounds_by_which_mt_is_shifted():
  measures = module('study_measures')
  curve = np.linspace(0.0, 0.9, 19)
  shifted = np.concatenate([np.zeros(3), curve[:-3]])
  assert measures.lag(history(curve, shifted), num_levels=2) == pytest.approx(1.5)
  assert measures.lag(history(curve + 0.01, shifted + 0.01), num_levels=1001) == pytest.approx(
    3, abs=0.01
  )
  assert measures.lag(history(shifted, curve), num_levels=1001) == pytest.approx(-3, abs=0.01)
  assert np.isnan(measures.lag(history([0.9, 0.9], [0.1, 0.5])))


def test_roughness_is_blind_to_a_steady_rise_and_to_the_first_half():
  roughness = module('study_measures').roughness
  assert roughness(np.arange(10.0)) == pytest.approx(0, abs=1e-12)
  assert roughness([9, 0, 9, 0, 1, 1, 1, 1, 1]) == 0
  assert roughness([0, 0, 0, 0, 1, 0, 1, 0]) == pytest.approx(np.std([-1, 1, -1], ddof=1))


def test_bytes_until_counts_every_round_to_the_first_that_reaches_the_level():
  measures = module('study_measures')
  rows = history([0.1, 0.5, 0.4, 0.6], [0, 0, 0, 0])
  assert measures.bytes_until(rows, 0.5, 100.0) == 200
  assert measures.bytes_until(rows, 0.7, 100.0) is None
  assert measures.lowest_final([rows, rows[:3]]) == 0.4


def test_distribution_ends_at_the_extremes_and_leaves_nan_out():
  values, shares = module('study_measures').distribution([3.0, np.nan, 1.0, 2.0])
  assert (values[0], values[-1], shares[0], shares[-1]) == (1, 3, 0, 1)
  assert (np.diff(values) >= 0).all()


def test_best_row_is_the_earliest_and_never_a_nan():
  best_row = module('study_measures').best_row
  rows = history([np.nan, 0.5, 0.5], [0, 0, 0])
  assert best_row(rows, 'server_accuracy')['round'] == 2


def test_a_table_is_read_back_as_it_was_written(tmp_path):
  reports = module('study_reports')
  rows = [{'a': 'x|y', 'b': 0.1}, {'a': 'z', 'c': None}]
  reports.write_table(tmp_path, 'one', rows, 'What it is.')
  caption, read = reports.read_table(tmp_path, 'one')
  assert caption == 'What it is.'
  assert read == [{'a': 'x|y', 'b': '0.1', 'c': ''}, {'a': 'z', 'b': '', 'c': ''}]
  assert r'| x\|y | 0.1 |  |' in (tmp_path / 'one.md').read_text(encoding='utf-8')
  assert reports.read_table(tmp_path, 'two') == ('', [])


def test_statistics_list_absent_data_sets_with_the_reason(setting, tmp_path):
  module('study_data').statistics(setting, str(tmp_path), num_clients=4)
  rows = {row['dataset']: row for row in table(setting, 'statistics')}
  assert rows['digits']['num_clients'] == '4' and not rows['digits']['absent']
  assert float(rows['digits']['train_mean']) == pytest.approx(1797 / 4 * 0.8, abs=1)
  assert str(tmp_path) in rows['har']['absent'] and not rows['har']['num_clients']
  assert_drawn(setting, 'statistics')


def test_the_grid_chooses_without_test_data_and_reports_the_spread_over_seeds(setting):
  tuning = module('study_tuning')
  tuning.grid(setting, learning_rates=(0.001, 0.1), betas=(1e-4,), dampings=(None,), num_seeds=2)
  rows = table(setting, 'grid')
  assert [bool(row['chosen']) for row in rows] == [False, True]
  assert tuning.chosen_learning_rate(setting) == 0.1
  for folder in (setting.folder / 'runs' / 'grid').glob('lr*'):
    columns = (folder / 'metrics.csv').read_text(encoding='utf-8').partition('\n')[0].split(',')
    assert 'validation_server_accuracy' in columns and 'server_accuracy' not in columns
  final = {row['seed']: row for row in table(setting, 'grid_chosen')}
  values = [float(final[seed]['S']) for seed in ('1', '2')]
  assert float(final['mean']['S']) == pytest.approx(np.mean(values))
  assert float(final['sd']['S']) == pytest.approx(np.std(values, ddof=1))
  assert_drawn(setting, 'grid')


def test_the_grid_prefers_a_point_that_went_well():
  score = module('study_tuning').score
  good, lucky = (
    {'verdict': verdict, 'validation_S': s, 'validation_MT': 0.5}
    for verdict, s in (('ok', 0.9), ('scaled back', 1.0))
  )
  assert max([lucky, good], key=score) is good


def test_the_verdict_names_back_scaling_and_divergence():
  verdict = module('study_tuning').verdict

  def rows(losses, scaling):
    columns = ('validation_server_loss', 'round_back_scaling')
    return [
      {**dict(zip(columns, pair, strict=True)), 'total_nonfinite': 0}
      for pair in zip(losses, scaling, strict=True)
    ]

  assert verdict(rows([2.0, 1.0], [1.0, 1.0])) == 'ok'
  assert verdict(rows([2.0, 1.0], [1.0, 0.5])) == 'scaled back'
  assert verdict(rows([2.0, float('nan')], [1.0, 1.0])) == 'not finite'
  assert verdict(rows([2.0, 3.0], [1.0, 0.5])) == 'loss rose, scaled back'


def test_beta_reports_every_value_and_a_finished_run_is_not_repeated(setting):
  beta = functools.partial(module('study_tuning').beta, setting, learning_rate=0.1, betas=(1e-2,))
  beta()
  rows, runs = table(setting, 'beta'), sorted(setting.folder.rglob('summary.json'))
  assert [float(row['beta']) for row in rows] == [1e-2] and len(runs) == 1
  times = [path.stat().st_mtime_ns for path in runs]
  beta()
  assert table(setting, 'beta') == rows
  assert [path.stat().st_mtime_ns for path in runs] == times
  assert_drawn(setting, 'beta')


def test_curves_compare_the_methods(setting):
  module('study_curves').curves(setting, methods=('fed_avg', 'virtual'))
  rows = table(setting, 'curves')
  assert [row['method'] for row in rows] == ['fed_avg', 'virtual']
  for row in rows:
    assert float(row['gap_last']) == pytest.approx(float(row['S_last']) - float(row['MT_last']))
    assert float(row['K/C']) == 2
  assert_drawn(setting, 'curves')


def test_snr_is_of_the_clients_that_took_part(setting):
  posteriors = module('study_posteriors')
  posteriors.snr(setting, starts=('server',))
  rows = table(setting, 'snr')
  result = setting.run('snr', 'server', setting.methods['virtual']())
  assert int(rows[0]['clients']) == len(result.trained_clients)
  values = posteriors.client_ratios(result)
  assert values.size == len(result.trained_clients) * (64 * 4 + 4 + 4 * 10 + 10)
  assert float(rows[0]['snr_p50']) == pytest.approx(np.median(values))
  assert_drawn(setting, 'snr')


def test_pruning_saves_bytes_beside_fed_prox(setting):
  module('study_posteriors').pruning(setting, percentiles=(0, 75), starts=('server',))
  prox, dense, sparse = table(setting, 'pruning')
  weights = 64 * 4 + 4 + 4 * 10 + 10
  assert float(prox['bytes']) == 4 * weights
  assert float(dense['bytes']) == 8 * weights
  # Of the hidden layer a quarter and its indices, of the output layer all.
  assert float(sparse['bytes']) == pytest.approx(12 * 65 + 8 * 50, abs=24)
  assert float(dense['bytes/fed_prox']) == 2
  reached = [row['rounds_until_equal'] for row in (prox, dense, sparse)]
  assert all(reached), 'the level is one that every method reached'
  assert_drawn(setting, 'pruning')


def test_uncertainty_agrees_with_the_run_and_pools_at_the_server(setting):
  module('study_uncertainty').uncertainty(setting, num_samples=2)
  rows = {
    (row['method'], row['inputs'], row['model']): row for row in table(setting, 'uncertainty')
  }
  assert len(rows) == 5 * 2 * 3
  path = setting.folder / 'runs' / 'uncertainty' / 'virtual' / 'metrics.csv'
  with path.open(encoding='utf-8') as file:
    *_, last = ({name: float(value) for name, value in row.items()} for row in csv.DictReader(file))
  pooled = rows['virtual, mean', 'test', 'S pooled']
  own = rows['virtual, mean', 'test', 'MT per client']
  assert float(pooled['accuracy']) == pytest.approx(last['server_accuracy'], abs=1e-6)
  assert float(pooled['nll']) == pytest.approx(last['server_nll'], abs=1e-5)
  assert float(own['nll']) == pytest.approx(last['clients_nll_mean'], abs=1e-6)
  assert float(own['nll_p5']) <= float(own['nll']) <= float(own['nll_p95'])
  noisy = rows['virtual, mean', 'noise', 'S pooled']
  assert not noisy['accuracy'] and 0 < float(noisy['predictive_entropy']) < np.log(10)
  sigmas = {row['method']: row for row in table(setting, 'uncertainty_sigma')}
  assert float(sigmas['virtual_frozen']['sigma_ratio_p95/p5']) == pytest.approx(1, abs=1e-5)
  assert float(sigmas['virtual']['sigma_ratio_p95/p5']) > 1.001
  assert_drawn(setting, 'uncertainty')


def test_noise_has_the_moments_of_the_training_inputs_and_the_rows_of_the_test_set(setting):
  study = module('study_uncertainty')
  drawn = study.noise(setting.train, setting.test, seed=1)
  key = setting.test.client_ids[0]
  x, y = drawn.load(key)
  real_x, real_y = setting.test.load(key)
  assert x.shape == real_x.shape and x.dtype == real_x.dtype and (y == real_y).all()
  assert not np.array_equal(x, study.noise(setting.train, setting.test, seed=2).load(key)[0])
  inputs = np.concatenate([setting.train.load(key)[0] for key in setting.train.client_ids])
  assert inputs.min() <= x.min() and x.max() <= inputs.max()


def test_the_script_runs_a_study_and_names_a_wrong_one(tmp_path):
  command = [sys.executable, str(EXPERIMENTS / 'virtual_studies.py'), f'--output_dir={tmp_path}']
  environment = {**os.environ, 'PYTHONPATH': str(EXPERIMENTS.parent)}
  run = functools.partial(
    subprocess.run, capture_output=True, text=True, timeout=200, env=environment
  )
  wrong = run([*command, '--study=other'])
  assert wrong.returncode and 'statistics,grid' in wrong.stdout + wrong.stderr
  right = run([*command, '--study=statistics', '--num_clients=5', '--preset=small'])
  assert right.returncode == 0, right.stderr
  assert '--study=statistics --num_clients=5' in (tmp_path / 'statistics.md').read_text('utf-8')
