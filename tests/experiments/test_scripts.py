"""Every script starts, explains its flags, and runs where its data come with a package."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / 'experiments'
PARTS = {
  'virtual_methods.py',
  'fedper_methods.py',
  'fedper_networks.py',
  'fedper_figures.py',
  'fedper_studies.py',
  'apple_data.py',
  'apple_measures.py',
  'apple_methods.py',
  'apple_relations.py',
  'apple_setting.py',
  'apple_studies.py',
  'experts_data.py',
  'experts_flags.py',
  'experts_measures.py',
  'experts_methods.py',
  'experts_presets.py',
  'experts_search.py',
  'experts_setting.py',
  'experts_studies.py',
}
OWN_FLAGS = {
  'virtual': '--beta',
  'fedper': '--k_p',
  'apple': '--dr_learning_rate',
  'experts': '--epsilon',
}
SCRIPTS = sorted(
  path.name
  for prefix in OWN_FLAGS
  for path in FOLDER.glob(f'{prefix}_*.py')
  if path.name not in PARTS
)


def run(*arguments):
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=FOLDER,
    capture_output=True,
    text=True,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
  )


@pytest.mark.parametrize('script', SCRIPTS)
def test_script_explains_its_flags(script):
  done = run(script, '--helpshort')
  assert 'Traceback' not in done.stderr
  own = OWN_FLAGS[script.partition('_')[0]]
  for flag in ('--output_dir', '--seed', '--rounds', '--preset', own):
    assert flag in done.stdout


@pytest.mark.parametrize(
  'arguments',
  [
    ('virtual_images.py', '--preset=quick', '--num_clients=4', '--clients_per_round=2'),
    ('virtual_sensors.py', '--sensors=watch', '--clients_per_round=2', '--batch_size=200'),
  ],
  ids=['images', 'sensors'],
)
def test_script_runs_on_data_of_a_package(arguments):
  done = run(*arguments, '--rounds=1', '--epochs=1', '--method=fed_avg', '--noprogress')
  if 'seglearn' in done.stderr:
    pytest.skip('the package seglearn is not installed')
  assert done.returncode == 0, done.stderr
  assert '| fed_avg |' in done.stdout


def test_mistake_ends_a_script_with_a_sentence():
  done = run('virtual_images.py', '--preset=quick', '--num_clients=4', '--clients_per_round=9')
  assert done.returncode == 1
  assert 'clients_per_round must be' in done.stderr
  assert 'Traceback' not in done.stderr


def test_fedper_figures_on_data_of_a_package(tmp_path):
  arguments = ('--rounds=1', '--epochs=1', '--classes=2', '--fine_tune_epochs=1', '--noprogress')
  studies = '--study=heterogeneity,fine_tuning'
  done = run('fedper_images.py', *arguments, studies, f'--output_dir={tmp_path}')
  assert done.returncode == 0, done.stderr
  text = (tmp_path / 'heterogeneity.md').read_text(encoding='utf-8')
  for point in ('before', 'after', 'fine-tuned'):
    assert f'| k = 2 | fed_avg | {point} |' in text
  assert '| k = 2 | fed_per | before |' in text
  for name in ('heterogeneity', 'fine_tuning'):
    assert (tmp_path / f'{name}.png').read_bytes().startswith(b'\x89PNG')


def test_over_seeds_gives_means_and_differences_seed_by_seed(tmp_path):
  for seed, accuracy in enumerate((0.5, 0.7)):
    for method, better in (('fed_avg', 0.0), ('virtual', 0.1)):
      folder = tmp_path / str(seed) / method
      folder.mkdir(parents=True)
      (folder / 'metrics.csv').write_text(
        'round,server_accuracy,report_sigma_p5,report_sigma_p95\n'
        f'1,0.1,1,1\n2,{accuracy + better},0.1,0.3\n',
        encoding='utf-8',
      )
      config = {'seed': seed, 'dataset': 'toy', 'rounds': 2, 'clients_per_round': 1}
      (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
  done = run('over_seeds.py', str(tmp_path / '0'), str(tmp_path / '1'))
  assert '| virtual | 2 | 2 | 0.7000 ± 0.1414 |  |' in done.stdout
  assert '| virtual − fed_avg | 0.1000 ± 0.0000 |' in done.stdout
  assert '| 3.0000 ± 0.0000 |' in done.stdout
  same = run('over_seeds.py', str(tmp_path / '0'), str(tmp_path / '0'))
  assert same.returncode == 1 and 'different seeds' in same.stderr
