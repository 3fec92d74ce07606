"""What the studies of adaptive expert models measure, and that they run on digits."""

import csv
import dataclasses
from importlib import import_module as module

import numpy as np
import optuna
import pytest
import tensorflow as tf
from written import assert_picture, table

from tffpers import datasets, runtime

SMALL = {'num_clients': 4, 'num_train': 60, 'num_test': 30, 'validation_share': 0.2, 'seed': 1}


def rows_of(data):
  """Every example of every client as bytes, by client."""
  return {key: [row.tobytes() for row in data.load(key)[0]] for key in data.client_ids}


def test_b15_train_validation_and_test_share_no_example():
  data = module('experts_data')
  # Every image is different: its pixels are its number.
  x = np.arange(2000, dtype=np.float32).reshape(-1, 1, 1, 1) * np.ones([1, 8, 8, 1], np.float32)
  y = np.arange(2000) % 10
  arrays = datasets.Arrays(x[:1500], y[:1500].astype(np.int32), x[1500:], y[1500:].astype(np.int32))
  for clients in (
    data.label_skew(arrays, fraction=0.6, **SMALL),
    data.rotated(arrays, **SMALL),
    data.unequal(arrays, **SMALL),
  ):
    parts = [rows_of(part) for part in (clients.train, clients.validation, clients.test)]
    seen = [row for part in parts for rows in part.values() for row in rows]
    # Of rotated images both halves have the whole set, so clients of one half are compared.
    if clients.groups:
      own = [key for key, group in clients.groups.items() if group == 0]
      seen = [row for part in parts for key in own for row in part[key]]
    assert len(seen) == len(set(seen)) > 0


def test_label_skew_holds_the_fraction_exactly():
  data = module('experts_data')
  digits = module('image_sets').read('digits', None)
  clients = data.label_skew(digits, fraction=0.8, **SMALL)
  for key in clients.train.client_ids:
    labels = np.concatenate([part.load(key)[1] for part in (clients.train, clients.validation)])
    counts = np.sort(np.bincount(labels, minlength=10))
    assert counts[-2:].sum() == 48 and counts.sum() == 60
    assert clients.test.num_examples(key) == 30


def test_rotated_clients_are_half_upside_down():
  data = module('experts_data')
  clients = data.rotated(module('image_sets').read('digits', None), **SMALL)
  assert clients.groups == {'0': 0, '1': 0, '2': 1, '3': 1}
  upright = {row for part in clients[:3] for key in '01' for row in rows_of(part)[key]}
  turned = {
    np.rot90(image, 2).tobytes()
    for part in clients[:3]
    for key in '23'
    for image in part.load(key)[0]
  }
  assert upright == turned


def test_share_on_the_group_s_own_model_by_hand():
  share = module('experts_measures').own_group_model
  groups = {'a': 0, 'b': 0, 'c': 1, 'd': 1}
  assert share({'a': 1, 'b': 1, 'c': 0, 'd': 0}, groups, 2) == 1
  assert share({'a': 1, 'b': 1, 'c': 0, 'd': 1}, groups, 2) == 0.75
  assert share({'a': 0, 'b': 0, 'c': 0, 'd': 0}, groups, 2) == 0.5
  # A group on two models of its own is not on one.
  assert share({'a': 0, 'b': 2, 'c': 1, 'd': 1}, groups, 2) == 0.75
  # Models go to groups one to one, also where one group has the most clients on both.
  groups = {**dict.fromkeys(range(10), 0), **dict.fromkeys(range(10, 18), 1)}
  best = {key: int(key in (6, 7, 8, 9, 15, 16, 17)) for key in groups}
  assert share(best, groups, 2) == 9 / 18


def test_ends_and_middle_by_hand():
  found = module('experts_measures').ends_and_middle
  assert found([1, 0.2, 0.4, 0.8, 0.6]) == [0.2, 0.6, 1]
  assert [found([0.5]), found([1, 0.2]), found([])] == [[0.5], [0.2, 1], []]


def test_picks_over_rounds_by_hand():
  measures = module('experts_measures')
  history = {
    'a': [{'round': 1, 'picked/0': 0, 'picked/1': 1}, {'round': 3, 'picked/0': 1, 'picked/1': 0}],
    'b': [{'round': 2, 'picked/0': 0, 'picked/1': 0}],
  }
  found = measures.picks(history, ['a', 'b', 'c'], 2, 3)
  none = measures.NOBODY
  assert found.tolist() == [[1, none, 0], [none] * 3, [none] * 3]


def test_a_step_of_sgd_on_the_penalised_network_takes_rate_times_decay_off_kernels_alone():
  plain = tf.keras.Sequential([tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(2)])
  model = module('experts_methods').with_decay(plain, 0.1)
  for variable in model.trainable_variables:
    variable.assign(tf.ones_like(variable) * 2)
  with tf.GradientTape() as tape:
    loss = tf.add_n(model.losses)
  kernel, bias = tape.gradient(loss, model.trainable_variables)
  np.testing.assert_allclose(kernel, np.full([3, 2], 0.2), rtol=1e-6)
  assert bias is None


VALUES = {
  'rounds': 2,
  'epochs': 1,
  'batch_size': 20,
  'clip_norm': 0.0,
  'num_models': 2,
  'epsilon': 0.5,
  'initial_models': 'random',
  'check_every': 1,
  'model_patience': 0,
  'personal_epochs': 2,
  'patience': 2,
  'train_experts': False,
  'client_learning_rate': 0.1,
  'cluster_decay': 1e-4,
  'local_learning_rate': 0.01,
  'local_decay': 0.01,
  'gate_learning_rate': 0.01,
  'gate_decay': 0.01,
  **{f'{part}_filters': (4,) for part in ('cluster', 'local', 'gate')},
  **{f'{part}_hidden': (4,) for part in ('cluster', 'local', 'gate')},
  **{f'{part}_dropout': 0.1 for part in ('cluster', 'local', 'gate')},
}


def make_setting(folder, *, grouped=False, **changes):
  """Digits at four clients, networks with one small layer, two rounds."""
  runtime.use('in_process')
  data = module('experts_data')
  digits = module('image_sets').read('digits', None)

  def deal(fraction, seed):
    arguments = {**SMALL, 'seed': seed}
    if grouped:
      return data.rotated(digits, **arguments)
    return data.label_skew(digits, fraction=fraction, **arguments)

  return module('experts_setting').Setting(
    folder=folder,
    values=module('experts_methods').Values(**{**VALUES, **changes}),
    deal=deal,
    fraction=None if grouped else 1.0,
    num_classes=10,
    client_fraction=1.0,
    methods=list(module('experts_methods').METHODS),
    seeds=(1,),
    evaluate_every=2,
    description='Command: python x.py',
    dataset='digits',
    progress=False,
  )


def test_studies_of_label_skew_measure_all_methods_and_share_runs(tmp_path):
  studies = module('experts_studies')
  setting = make_setting(tmp_path)
  studies.methods(setting)
  rows = table(tmp_path, 'methods')
  assert [row['method'] for row in rows] == list(module('experts_methods').METHODS)
  with open(
    tmp_path / 'runs' / 'experts_e0.5_J2_random_p1_seed1' / 'clients.csv', encoding='utf-8'
  ) as file:
    accuracies = [float(row['personalized_client_accuracy']) for row in csv.DictReader(file)]
  assert rows[-1]['mean'] == f'{100 * np.mean(accuracies):.2f}'
  before = {path: path.stat().st_mtime_ns for path in tmp_path.glob('runs/*/*')}
  # Another process of the same script, which knows the runs from their folders alone.
  again = dataclasses.replace(make_setting(tmp_path), methods=['FedAvg', 'local'])
  studies.sweep(again, 'models', 'num_models', 'J', [2])
  studies.choices(setting, [1.0])
  assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob('runs/*/*')}
  (row,) = table(tmp_path, 'models')
  assert row['J'] == '2' and row['local'] == rows[3]['mean']
  # ε is the ε-greedy run's alone, which is another run for another ε.
  studies.sweep(setting, 'epsilon', 'epsilon', 'ε', [1])
  new = {path.parent.name for path in tmp_path.glob('runs/*/*')} - {p.parent.name for p in before}
  assert new == {'experts_e1_J2_random_p1_seed1'}
  (row,) = table(tmp_path, 'epsilon')
  assert row['mixture, ε = 0'] == rows[-2]['mean']
  for name in ('cdf', 'models', 'epsilon', 'choices'):
    assert_picture(tmp_path / f'{name}.png')


def test_run_ends_when_all_cluster_models_have_stopped(tmp_path):
  # Steps of size 0: no check after the first finds a lower loss.
  setting = make_setting(tmp_path, rounds=9, model_patience=1, client_learning_rate=0.0)
  result = setting.run('ifca', 1)
  assert result.summary['rounds'] == 2
  assert all(len(rows) == 2 for rows in result.client_history.values())
  assert np.isfinite([row['personalized_client_accuracy'] for row in result.clients.values()]).all()


def test_studies_of_rotations_count_clients_on_their_rotation_s_model(tmp_path):
  studies = module('experts_studies')
  setting = make_setting(tmp_path, grouped=True, initial_models='balanced')
  studies.rotations(setting)
  (row,) = table(tmp_path, 'rotations')
  result = setting.run('clusters', 1, initial_models='balanced', data_seed=1)
  best = [int(result.clients[key]['client_best_1']) for key in '0123']
  split = best in ([0, 0, 1, 1], [1, 1, 0, 0])
  assert row['split'] == ('yes' if split else 'no')


def test_starts_are_on_the_same_data_beside_runs_of_the_same_seeds_on_their_own(tmp_path):
  studies = module('experts_studies')
  setting = dataclasses.replace(make_setting(tmp_path, grouped=True), seeds=(1, 2))
  studies.rotations(setting)
  studies.starts(setting, 2)
  rows = table(tmp_path, 'starts')
  assert [(row['initial models'], row['start']) for row in rows] == [
    ('random', '1'),
    ('random', '2'),
    ('balanced', '1'),
    ('balanced', '2'),
  ]
  # Seed 1 has the data of seed 1 in both studies, so they share its run.
  assert sorted(path.name for path in tmp_path.glob('runs/*')) == [
    'clusters_J2_balanced_seed1',
    'clusters_J2_balanced_seed2_data1',
    'clusters_J2_random_seed1',
    'clusters_J2_random_seed2',
    'clusters_J2_random_seed2_data1',
  ]
  caption = (tmp_path / 'starts.csv').read_text(encoding='utf-8').partition('\n')[0]
  for kind in ('random', 'balanced'):
    number = sum(row['split'] == 'yes' for row in rows if row['initial models'] == kind)
    assert f'{number} of 2 {kind}' in caption


@pytest.fixture
def one_stage(monkeypatch):
  """The search of the gate alone, whose run is measured by a formula."""
  search = module('experts_search')
  monkeypatch.setattr(search, 'STAGES', search.STAGES[1:2])
  seen = []

  def measured(setting, values, run):
    seen.append(values)
    assert run == 'ifca' and values.num_models == 1
    return {'a': {'personalized_client_accuracy': 1 - values.gate_dropout}}

  monkeypatch.setattr(search, 'measure', measured)
  return search, seen


def test_interrupted_search_goes_on_with_the_trial_it_was_in(tmp_path, one_stage):
  search, seen = one_stage
  for folder in ('whole', 'parts'):
    (tmp_path / folder).mkdir()
  best = search.search(make_setting(tmp_path / 'whole'), 4)
  expected, seen[:] = list(seen), []
  setting = make_setting(tmp_path / 'parts')
  search.search(setting, 2)
  # Killed between asking and telling.
  study = search._study(setting, search.STAGES[0].parts[0])
  study.sampler = optuna.samplers.TPESampler(seed=1002)
  trial = study.ask()
  for name, propose in search.STAGES[0].parts[0].space.items():
    propose(trial, name)
  assert search.search(setting, 4) == best
  assert seen == expected and len(seen) == 4
  assert best.gate_dropout == min(values.gate_dropout for values in seen)
  rows = table(tmp_path / 'parts', 'search')
  assert len(rows) == 4 and sum(row['best'] == 'yes' for row in rows) == 1


def test_search_measures_on_validation_data_only(tmp_path):
  search = module('experts_search')
  setting = make_setting(tmp_path, num_models=1)
  data = setting.deal(1.0, 1)
  clients = search.measure(setting, setting.values, 'ifca')
  assert {key: row['num_test'] for key, row in clients.items()} == {
    key: data.validation.num_examples(key) for key in data.validation.client_ids
  }
  changed = dataclasses.replace(setting, deal=lambda fraction, seed: data._replace(test=None))
  again = search.measure(changed, setting.values, 'ifca')
  assert repr(again) == repr(clients)


def test_four_stages_in_the_paper_s_order():
  stages = module('experts_search').STAGES
  assert [[part.name for part in stage.parts] for stage in stages] == [
    ['global', 'local'],
    ['gate'],
    ['clusters'],
    ['epsilon'],
  ]
  assert [stage.num_models for stage in stages] == [1, 1, 2, None]
