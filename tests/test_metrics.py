import numpy as np
import pytest

from tffpers import metrics


def test_d4_means_over_clients_and_over_examples_differ_and_are_named():
  result = metrics.summarize([0.0, 1.0], [1, 99])
  assert result['mean'] == 0.5
  assert result['weighted'] == 0.99
  assert result['std'] == 0.5


def test_statistics_of_a_hundred_and_one_clients():
  result = metrics.summarize(np.arange(101.0), np.ones(101))
  assert [result[f'p{p}'] for p in (5, 10, 50, 90)] == [5, 10, 50, 90]
  assert result['worst10_mean'] == np.mean(np.arange(11))  # ⌈101 / 10⌉ clients


def test_worst_tenth_of_few_clients_is_the_worst_client():
  assert metrics.summarize([0.3, 0.1, 0.2], [1, 1, 1])['worst10_mean'] == 0.1


def test_d1_clients_without_data_are_left_out():
  with_empty = metrics.summarize([0.25, np.nan, 0.0, 0.75], [1, 0, 0, 3])
  assert with_empty == metrics.summarize([0.25, 0.75], [1, 3])
  assert with_empty['mean'] == 0.5


def test_no_client_with_data_gives_nan_not_zero():
  assert all(np.isnan(v) for v in metrics.summarize([np.nan], [0]).values())
  assert np.isnan(metrics.weighted_mean([], []))
  assert np.isnan(metrics.share_worse_than([1.0], [0.0], [0]))


def test_a_diverged_client_is_not_left_out():
  assert all(np.isnan(v) for v in metrics.summarize([0.25, np.nan], [1, 1]).values())
  assert np.isnan(metrics.weighted_mean([0.25, np.nan], [1, 1]))
  assert np.isnan(metrics.share_worse_than([0.1, np.nan], [0.2, 0.2], [1, 1]))


def test_an_infinite_loss_stays_infinite_in_the_means():
  result = metrics.summarize([1.0, np.inf], [1, 1])
  assert result['mean'] == result['weighted'] == np.inf


def test_share_worse_than_counts_strictly_worse_clients_with_data():
  worse = metrics.share_worse_than([0.5, 0.9, 0.7, 0.1], [0.6, 0.8, 0.7, 0.9], [5, 5, 5, 0])
  assert worse == pytest.approx(1 / 3)


def test_e7_majority_share():
  assert metrics.majority_share([2, 2, 0, 1]) == 0.5
  assert np.isnan(metrics.majority_share([]))


@pytest.mark.parametrize(('values', 'sizes'), [([1.0], [1, 2]), ([1.0], [-1]), ([[1.0]], [[1]])])
def test_values_and_sizes_must_fit(values, sizes):
  with pytest.raises(ValueError, match='one number per client'):
    metrics.summarize(values, sizes)


def test_accuracy_is_found_by_name():
  assert metrics.accuracy_name(['loss', 'top_5_accuracy', 'accuracy']) == 'accuracy'
  assert metrics.accuracy_name(['loss', 'masked_accuracy']) == 'masked_accuracy'
  assert metrics.accuracy_name(['loss']) is None


def test_table_has_the_last_row_of_each_method_and_leaves_out_what_is_not_there():
  both = {
    'server_accuracy': 0.5,
    'server_loss': 1.25,
    'clients_accuracy_weighted': 0.75,
    'clients_loss_weighted': 0.5,
  }
  own_only = {'clients_accuracy_weighted': 1.0, 'clients_loss_weighted': float('nan')}
  text = metrics.table({'FedAvg': [{'server_accuracy': 0.1}, both], 'a|b': [own_only], 'none': []})
  assert text.splitlines()[2:] == [
    '| FedAvg | 0.5000 | 1.2500 | 0.7500 | 0.5000 |',
    '| a\\|b |  |  | 1.0000 |  |',
    '| none |  |  |  |  |',
  ]
