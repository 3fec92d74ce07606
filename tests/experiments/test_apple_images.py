"""What APPLE's studies measure, and that they run on digits."""

import csv
import functools
from importlib import import_module as module

import numpy as np
import pytest
from written import assert_picture, table

from tffpers import datasets, metrics, runtime
from tffpers.keras import models


def history(*accuracies, sizes, validated=()):
  """Rows of a run by accuracies of its clients in each round, on test and validation data."""

  def columns(prefix, values):
    return {f'{prefix}_{name}': value for name, value in metrics.summarize(values, sizes).items()}

  rows = [{'round': r, **columns('clients_accuracy', a)} for r, a in enumerate(accuracies, 1)]
  for row, values in zip(rows, validated, strict=False):
    row |= columns('validation_clients_accuracy', values)
  return rows


def test_a16_bmcta_differs_from_pooled_accuracy_on_unequal_clients():
  rows = history([0.2, 0.9], [0.8, 0.6], [0.8, 0.5], sizes=[10, 90])
  assert module('apple_measures').bmcta(rows, 'clients') == (pytest.approx(0.7), 2)
  pooled = [row['clients_accuracy_weighted'] for row in rows]
  np.testing.assert_allclose(pooled, [0.83, 0.62, 0.53])


def test_bmcta_counts_no_client_without_test_data_and_takes_the_first_of_equal_rounds():
  rows = history([0.5, 0.7, np.nan], [0.7, 0.5, np.nan], sizes=[1, 5, 0])
  assert module('apple_measures').bmcta(rows, 'clients') == (pytest.approx(0.6), 1)


def test_round_that_validation_data_choose_is_not_the_best_on_test_data():
  measures = module('apple_measures')
  rows = history([0.9], [0.6], sizes=[4], validated=([0.3], [0.5]))
  assert measures.at_validated(rows, 'clients', 'clients') == (pytest.approx(0.6), 2)
  assert measures.at_validated(history([0.9], sizes=[4]), 'clients', 'clients') is None


def test_ahead_is_counted_from_the_last_round_behind_by_the_best_so_far():
  measures = module('apple_measures')
  rows = [{'round': r} for r in (2, 4, 6, 8)]
  other = np.array([0.5, 0.6, 0.4, 0.6])
  # Ahead in round 4, behind again by no best so far in round 6.
  assert measures.ahead_from(rows, np.array([0.1, 0.7, 0.3, 0.5]), other) == 4
  assert measures.ahead_from(rows, np.array([0.5, 0.6, 0.1, 0.1]), other) == 2
  assert measures.ahead_from(rows, np.array([0.9, 0.1, 0.1, 0.9]), other + 1) is None


def test_likeness_of_labels_and_rank_correlation_by_hand():
  measures = module('apple_measures')
  counts = {'a': {0: 3, 1: 0}, 'b': {0: 4, 1: 4}, 'c': {0: 0, 1: 0}, 'd': {0: 0, 1: 9}}
  half = 1 / np.sqrt(2)
  cosines = measures.label_cosines(counts)
  np.testing.assert_allclose(cosines[0], [1, half, 0, 0])
  np.testing.assert_allclose(cosines[1], [half, 1, 0, half])
  assert measures.most_of(counts) == [[], [0], [], [1]]
  # |p_ij| rises with the cosine in row 0 and is the reverse of it in row 3.
  relations = np.array([[0.9, -0.5, 0.1, 0.1], [1, 1, 1, 1], [2, 3, 1, 4], [0.2, -0.1, 0.2, 0]])
  _, by_client = measures.rank_correlations(relations, cosines)
  assert by_client[0] == pytest.approx(1)
  assert np.isnan(by_client[1]) and np.isnan(by_client[2])
  assert by_client[3] == pytest.approx(-1)
  assert measures.own_is_largest(relations).tolist() == [True, True, False, False]


def test_distance_from_the_start_is_frobenius():
  matrices = np.array([np.zeros([2, 2]), [[3, 0], [0, -4]]])
  assert module('apple_relations').distance(matrices).tolist() == [0, 5]


def test_stratified_share_keeps_the_mix_of_classes():
  digits = datasets.read_digits()
  kept = module('apple_data').stratified(digits, 0.2, 1, seed=3)
  expected = np.round(np.bincount(digits.y_train) * 0.2)
  np.testing.assert_array_equal(np.bincount(kept.y_train), expected)
  assert kept.x_test is digits.x_test and len(kept.x_train) == len(kept.y_train)


def test_images_are_scaled_to_minus_one_and_one_and_large_ones_resized():
  data = module('apple_data')
  digits = data.read('digits', None, '')
  assert digits.x_train.shape[1:] == (8, 8, 1)
  assert (digits.x_train.min(), digits.x_test.max()) == (-1, 1)
  large = np.ones([2, 32, 32, 3], np.float32)
  np.testing.assert_allclose(data._scaled(large), np.ones([2, 28, 28, 3]), rtol=1e-6)


@pytest.mark.parametrize('kind', ['practical', 'pathological'])
def test_validation_data_are_a_part_of_the_training_data(kind):
  data = module('apple_data')
  arrays = data.read('digits', None, '')
  whole = data.clients(arrays, kind, 5, 0.0, seed=1)
  parted = data.clients(arrays, kind, 5, 0.2, seed=1)
  assert whole.validation is None
  for key in whole.train.client_ids:
    kept, held = parted.train.num_examples(key), parted.validation.num_examples(key)
    assert kept + held == whole.train.num_examples(key)
    assert held == pytest.approx(0.2 * whole.train.num_examples(key), abs=1)


VALUES = {
  'rounds': 2,
  'epochs': 1,
  'batch_size': 40,
  'client_learning_rate': 0.05,
  'momentum': 0.9,
  'clip_norm': 0.0,
  'dr_learning_rate': 0.01,
  'mu': 0.2,
  'schedule': 'cosine',
  'schedule_ratio': 0.5,
  'max_downloads': 2,
  'priority': 'abs',
  'prox_mu': 0.01,
  'fine_tune_epochs': 1,
  'amp_mu': 0.1,
  'amp_sigma': 1.0,
  'amp_self_weight': 0.5,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('apple')


@pytest.fixture
def setting(folder):
  """A part of digits at three clients, a network with one small layer, two rounds."""
  runtime.use('in_process')
  data = module('apple_data')
  arrays = data.stratified(data.read('digits', None, ''), 0.3, 0.5, seed=1)
  return module('apple_setting').Setting(
    folder=folder,
    values=module('apple_methods').Values(**VALUES),
    data=lambda seed: data.clients(arrays, 'practical', 3, 0.15, seed),
    model_fn=functools.partial(models.mlp, input_shape=arrays.x_train.shape[1:], hidden=(4,)),
    runs=module('apple_methods').RUNS,
    seeds=(1,),
    evaluate_every=1,
    description='Command: python x.py',
    dataset='digits',
    progress=False,
  )


def test_methods_study_measures_all_nine_and_repeats_no_run(setting, folder):
  studies = module('apple_studies')
  studies.methods(setting)
  rows = {row['method']: row for row in table(folder, 'methods')}
  assert list(rows) == list(module('apple_methods').METHODS) and len(rows) == 9
  assert_picture(folder / 'methods.png')
  for row in rows.values():
    best, last, chosen = (
      float(row[name])
      for name in (studies._BEST, 'last round', 'at the round chosen on validation data')
    )
    assert best >= max(last, chosen) and min(last, chosen) > 0
  models_of = {name: (row['models up'], row['models down']) for name, row in rows.items()}
  assert models_of['separate'] == ('0.00', '0.00')
  assert models_of['FedAvg'] == models_of['FedAvg-FT'] == models_of['APFL'] == ('1.00', '1.00')
  assert models_of['HeurFedAMP'][1] == '1.00'
  assert models_of['FedFomo'][1] == models_of['APPLE'][1] == '2.00'
  # The last round in the table is the mean of the clients' own accuracies.
  with open(folder / 'runs' / 'apple_M2_seed1' / 'clients.csv', encoding='utf-8') as file:
    accuracies = [float(row['client_accuracy']) for row in csv.DictReader(file)]
  assert rows['APPLE']['last round'] == f'{100 * np.mean(accuracies):.2f}'
  before = {path: path.stat().st_mtime_ns for path in folder.glob('runs/*/*')}
  studies.methods(setting)
  assert before == {path: path.stat().st_mtime_ns for path in folder.glob('runs/*/*')}


def test_relations_study_follows_what_only_the_clients_know(setting, folder):
  module('apple_relations').relations(setting, [0.0, 1000.0])
  followed = module('apple_setting').apple(setting, 1)
  assert followed.rounds.tolist() == [0, 1, 2] and followed.relations.shape == (3, 3, 3)
  train = setting.data(1).train
  sizes = np.array([train.num_examples(key) for key in train.client_ids])
  np.testing.assert_allclose(followed.relations[0], np.tile(sizes / sizes.sum(), [3, 1]), rtol=1e-6)
  last = [followed.result.client_state(key).relations for key in train.client_ids]
  np.testing.assert_array_equal(followed.relations[-1], last)
  found = table(folder, 'relations')
  assert [row['client'] for row in found] == ['0', '1', '2', 'all']
  assert float(found[1]['p_ii']) == pytest.approx(followed.relations[-1, 1, 1])
  pulled = table(folder, 'relations_mu')
  assert [row['below the row above on every seed'] for row in pulled] == ['', 'yes']
  for name in ('relations', 'relations_maps', 'relations_mu'):
    assert_picture(folder / f'{name}.png')


def test_run_that_is_followed_is_the_run_that_is_not(setting, folder):
  built = setting.build('apple', 1)
  followed = setting.follow('followed', 1, built, 2, 1)
  plain = setting.run('plain', 1, built)
  np.testing.assert_array_equal(followed.result.server_state.model, plain.server_state.model)
  columns = [name for name in plain.history[-1] if 'accuracy' in name or 'loss' in name]
  for ours, theirs in zip(followed.result.history, plain.history, strict=True):
    np.testing.assert_array_equal([ours[c] for c in columns], [theirs[c] for c in columns])


def test_downloads_study_counts_what_is_downloaded(setting, folder):
  module('apple_studies').downloads(setting, [9, 1])
  rows = {row['M']: row for row in table(folder, 'downloads')}
  assert [row['models down'] for row in rows.values()] == ['2.00', '1.00']
  assert_picture(folder / 'downloads.png')


def test_labels_study_shows_who_holds_which_classes(setting, folder):
  module('apple_studies').labels(setting)
  rows = table(folder, 'labels')
  train = setting.data(1).train
  _, y = train.load('2')
  assert [int(rows[2][f'class {c}']) for c in range(10)] == np.bincount(y, minlength=10).tolist()
  assert sum(int(row['training examples']) for row in rows) == sum(
    train.num_examples(key) for key in train.client_ids
  )
  assert_picture(folder / 'labels.png')
