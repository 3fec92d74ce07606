import asyncio
import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy_process

from tffpers import runtime, seeds, simulation
from tffpers.datasets import federated_dataset

FederatedDataset = federated_dataset.FederatedDataset


def run(process, train=None, **overrides):
  train = toy_process.data() if train is None else train
  return simulation.run(process, train, **toy_process.arguments(test_data=train, **overrides))


def assert_same(a, b) -> None:
  """Bit equality of two results: server, every client, history, table."""
  tf.nest.map_structure(np.testing.assert_array_equal, a.server_state, b.server_state)
  assert a.trained_clients == b.trained_clients
  for key in a.trained_clients:
    tf.nest.map_structure(np.testing.assert_array_equal, a.client_state(key), b.client_state(key))
  assert repr(a.history) == repr(b.history)
  assert {k: repr(v) for k, v in a.clients.items()} == {k: repr(v) for k, v in b.clients.items()}


def test_two_rounds_by_hand(process):
  data = FederatedDataset.from_arrays(
    {'a': toy_process.constant(1.0, 1), 'b': toy_process.constant(4.0, 3, label=1)}
  )
  result = simulation.run(
    process, data, rounds=2, clients_per_round=None, seed=1, test_data=data, progress=False
  )
  assert result.server_state.mean == 3.25
  assert result.server_state.rounds == 2
  row = result.history[-1]
  assert [r['round'] for r in result.history] == [1, 2]
  assert row['server_loss'] == (1 * 2.25 + 3 * 0.75) / 4
  # Also in the first round: what the clients have just learned is evaluated.
  for r in result.history:
    assert r['clients_accuracy_mean'] == r['clients_accuracy_weighted'] == 1.0
  assert row['server_accuracy'] == 0.0
  assert row['clients_accuracy_share_worse'] == 0.0
  assert row['train_loss'] == (1 * 1.0 + 3 * 4.0) / 4
  assert row['train_bytes_up'] == 16
  assert (row['round_weight'], row['round_means/0'], row['round_means/1']) == (4.0, 13.0, 4.0)
  assert row['report_sigma_p5'] == 3.25
  state = result.client_state('b')
  assert (state.mean, state.visits) == (4.0, 2)
  expected = tf.random.stateless_uniform([1], seeds.derive(1, 'train', 2, 'b'))
  np.testing.assert_array_equal(state.draw, expected)


def test_d4_means_over_clients_and_examples(process):
  rows = {
    'small': (np.zeros([1, 1], np.float32), np.zeros([1], np.int32)),
    'large': toy_process.constant(5.0, 99),
  }
  train = FederatedDataset.from_arrays(
    {'small': toy_process.constant(9.0, 1), 'large': toy_process.constant(5.0, 1)}
  )
  result = simulation.run(
    process,
    train,
    rounds=1,
    clients_per_round=None,
    seed=1,
    progress=False,
    test_data=FederatedDataset.from_arrays(rows),
  )
  assert result.history[0]['clients_accuracy_mean'] == 0.5
  assert result.history[0]['clients_accuracy_weighted'] == 0.99
  assert result.summary['clients']['accuracy_mean'] == 0.5
  assert result.summary['clients']['accuracy_weighted'] == 0.99
  assert {k: row['client_accuracy'] for k, row in result.clients.items()} == {
    'small': 0.0,
    'large': 1.0,
  }


def test_f13_the_same_call_gives_the_same_bits(process):
  first, second = run(process), run(process)
  assert_same(first, second)
  assert run(process, seed=4).history != first.history


def test_f13_the_order_of_the_clients_does_not_matter(fed_avg):
  data = toy_process.data()
  shuffled = data.select(['c3', 'c0', 'c5', 'c1', 'c4', 'c2'])
  for size in (3, None):
    assert_same(
      run(fed_avg, data, rounds=2, clients_per_round=size),
      run(fed_avg, shuffled, rounds=2, clients_per_round=size),
    )


def test_i4_runs_inside_an_event_loop(process, tmp_path):
  async def main():
    return run(process, output_dir=tmp_path / 'run')

  assert_same(asyncio.run(main()), run(process))


def test_f6_e4_every_client_is_evaluated_and_only_trained_ones_are_stored(process):
  result = run(process, rounds=1)
  assert len(result.trained_clients) == 2
  assert all(
    row['num_test'] > 0 and np.isfinite(row['client_loss']) for row in result.clients.values()
  )
  assert result.history[0]['num_evaluated'] == 6
  with pytest.raises(KeyError, match='never took part'):
    result.client_state(next(k for k in result.clients if k not in result.trained_clients))


def test_f6_clients_that_are_only_in_the_test_data_come_after_the_others(process):
  train = toy_process.data(2)
  test = FederatedDataset.from_arrays(
    {'new': toy_process.constant(102.0, 2), 'c0': toy_process.constant(0.0, 1)}
  )
  result = simulation.run(
    process, train, rounds=1, clients_per_round=1, seed=1, test_data=test, progress=False
  )
  # An initial state has mean 100 + index: the new client's index is 2.
  assert result.clients['new']['client_loss'] == 0.0
  assert result.clients['new']['num_train'] == 0
  assert list(result.clients) == ['c0', 'c1', 'new']
  assert np.isnan(result.clients['c1']['client_loss'])


def test_d1_a_client_without_examples_changes_nothing(process):
  rows = {'a': toy_process.constant(1.0, 2), 'b': toy_process.constant(2.0, 2)}
  empty = toy_process.constant(0.0, 0)
  arguments = dict(rounds=2, clients_per_round=None, seed=1, progress=False)
  without = FederatedDataset.from_arrays(rows)
  with_empty = FederatedDataset.from_arrays({**rows, 'z': empty})
  a = simulation.run(process, without, test_data=without, **arguments)
  b = simulation.run(process, with_empty, test_data=with_empty, **arguments)
  assert a.server_state == b.server_state
  assert a.history[-1]['clients_accuracy_mean'] == b.history[-1]['clients_accuracy_mean']
  assert b.history[-1]['num_evaluated'] == 2
  assert np.isnan(b.clients['z']['client_accuracy'])
  assert b.clients['z']['num_test'] == 0
  assert b.client_state('z').visits == 0


def test_f1_a_round_of_empty_clients_warns_and_changes_nothing(process):
  data = FederatedDataset.from_arrays({'a': toy_process.constant(1.0, 0)})
  with pytest.warns(RuntimeWarning, match='Round 1: no client had a result'):
    result = simulation.run(
      process, data, rounds=1, clients_per_round=1, seed=1, test_data=data, progress=False
    )
  initial = process.initialize(seeds.derive(1, 'server'))
  assert result.server_state.mean == initial.mean
  assert result.history[0]['round_weight'] == 0
  assert result.history[0]['num_evaluated'] == 0
  assert np.isnan(result.history[0]['clients_accuracy_mean'])
  assert result.summary['clients']['accuracy_mean'] is None
  assert result.summary['best_round'] is None


def test_f2_a_client_that_is_not_finite_is_counted_and_named(process):
  rows = {'a': toy_process.constant(1.0, 2), 'bad': toy_process.constant(np.inf, 2)}
  train = FederatedDataset.from_arrays(rows, allow_nonfinite=True)
  with pytest.warns(RuntimeWarning, match=r"not finite were left out, of clients \['bad'\]"):
    result = simulation.run(
      process, train, rounds=1, clients_per_round=None, seed=1, progress=False
    )
  assert result.server_state.mean == 1.0
  assert result.clients['bad']['nonfinite'] == 1
  assert result.client_state('bad').visits == 0
  assert result.history[0]['total_nonfinite'] == 1
  assert result.history[0]['train_loss'] == 1.0


def failing(key: str) -> None:
  if key == 'c1':
    raise OSError('no such file')


def test_f3_raise_names_the_client(process):
  data = toy_process.Watched(toy_process.data(), failing)
  with pytest.raises(simulation.ClientError, match=r"train data of client 'c1'.*no such file"):
    simulation.run(process, data, **toy_process.arguments(clients_per_round=None))


def test_f3_skip_leaves_the_client_out_and_names_it(process):
  data = toy_process.data()
  arguments = toy_process.arguments(rounds=1, clients_per_round=None)
  with pytest.warns(RuntimeWarning, match="Left out: The train data of client 'c1'"):
    result = simulation.run(
      process,
      toy_process.Watched(data, failing),
      test_data=data,
      on_client_error='skip',
      **arguments,
    )
  without = simulation.run(
    process, data.select(['c0', 'c2', 'c3', 'c4', 'c5']), test_data=data, **arguments
  )
  assert result.server_state == without.server_state
  assert 'c1' not in result.trained_clients
  assert (result.clients['c1']['skipped'], result.clients['c1']['rounds']) == (1, 0)
  assert result.history[0]['total_skipped'] == 1


def test_f3_a_round_in_which_all_fail_changes_nothing(process):
  def broken(key):
    if key == 'a':
      raise OSError('gone')

  data = toy_process.Watched(
    FederatedDataset.from_arrays({'a': toy_process.constant(1.0, 1)}), broken
  )
  with pytest.warns(RuntimeWarning) as caught:
    result = simulation.run(
      process, data, rounds=1, clients_per_round=1, seed=1, progress=False, on_client_error='skip'
    )
  assert any('no client had a result' in str(w.message) for w in caught)
  assert result.server_state == process.initialize(seeds.derive(1, 'server'))
  assert (result.trained_clients, result.summary['rounds']) == ([], 1)
  assert result.history[0]['train_num_clients'] == 0


def test_e2_evaluation_changes_nothing_and_gives_the_same_numbers_twice(process, fed_avg):
  data = toy_process.data()
  for p in (process, fed_avg):
    often = run(p, data, rounds=4, evaluate_every=1)
    rarely = run(p, data, rounds=4, evaluate_every=4)
    np.testing.assert_equal(often.history[-1], rarely.history[-1])
    assert len(rarely.history) == 1
    if p is process:
      noise = {row['clients_noise_mean'] for row in often.history}
      assert len(noise) == 1  # One seed per client, whatever the round.
    validated = run(p, data, rounds=4, evaluate_every=4, validation_data=data)
    row = validated.history[-1]
    assert row['clients_loss_mean'] == row['validation_clients_loss_mean']
    assert validated.summary['selected_on'] == 'validation'


def test_e1_the_table_pools_to_the_history(fed_avg):
  result = run(fed_avg, rounds=1)
  rows = result.clients.values()
  total = sum(row['num_test'] for row in rows)
  pooled = sum(row['num_test'] * row['server_accuracy'] for row in rows) / total
  assert result.history[0]['server_accuracy'] == pytest.approx(pooled, abs=1e-12)
  assert result.clients['c2']['majority_share'] == 2 / 3


def test_features_in_a_dict_are_passed_in_the_process_s_order():
  process = toy_process.build(nested=True)
  x = {'a': np.ones([2, 1], np.float32), 'b': np.full([2, 1], 2, np.float32)}
  data = FederatedDataset.from_arrays({'k': (x, np.zeros([2], np.int32))})
  result = simulation.run(
    process, data, rounds=1, clients_per_round=1, seed=1, test_data=data, progress=False
  )
  assert result.server_state.mean == 3.0


def test_personalize_is_measured_at_the_end_and_not_stored():
  process = toy_process.build(personalize=True)
  data = toy_process.data()
  result = run(process, data, rounds=1, clients_per_round=1)
  assert len(result.trained_clients) == 1
  losses = [row['personalized_client_loss'] for row in result.clients.values()]
  assert np.all(np.isfinite(losses))
  assert result.summary['clients_after']['loss_mean'] == pytest.approx(np.mean(losses))
  before = [row['server_loss'] for row in result.clients.values()]
  assert result.summary['clients_before']['loss_mean'] == pytest.approx(np.mean(before))
  assert np.mean(losses) < np.mean(before)


def test_what_personalize_tells_is_in_the_table_of_clients_and_its_traffic_in_the_summary(tmp_path):
  data = toy_process.data()
  result = run(
    toy_process.build(personalize=True), data, rounds=1, clients_per_round=1, output_dir=tmp_path
  )
  for key, row in result.clients.items():
    x, _ = data.load(key)
    assert row['personalize_num_examples'] == len(x)
    assert row['personalize_loss'] == pytest.approx(np.mean(x))
  number = len(data)
  expected = {'models_up': 1, 'models_down': 3, 'bytes_up': 8, 'bytes_down': 4}
  traffic = {name: number * value for name, value in expected.items()}
  assert result.summary['personalize_traffic'] == traffic
  assert run(toy_process.build(), data, rounds=1).summary['personalize_traffic'] is None
  assert 'personalize_loss' in (tmp_path / 'clients.csv').read_text()


def test_personalize_every_gives_the_columns_of_those_rounds():
  process = toy_process.build(personalize=True)
  result = run(
    process,
    toy_process.data(),
    rounds=5,
    clients_per_round=1,
    evaluate_every=1,
    personalize_every=2,
  )
  column = 'personalized_clients_loss_mean'
  assert [row['round'] for row in result.history if column in row] == [2, 4]
  last = [row['personalized_client_loss'] for row in result.clients.values()]
  assert result.summary['clients_after']['loss_mean'] == pytest.approx(np.mean(last))
  toy_states = run(process, toy_process.data(), rounds=5, clients_per_round=1)
  assert result.server_state.mean == toy_states.server_state.mean


def test_f4_a_run_that_is_continued_has_the_personalised_columns_of_one_that_is_not(tmp_path):
  process = toy_process.build(personalize=True)
  often = {'clients_per_round': 1, 'evaluate_every': 1, 'personalize_every': 3}
  whole = run(process, toy_process.data(), rounds=4, **often)
  run(process, toy_process.data(), rounds=2, output_dir=tmp_path, **often)
  continued = run(process, toy_process.data(), rounds=4, output_dir=tmp_path, resume=True, **often)
  assert [set(row) for row in continued.history] == [set(row) for row in whole.history]


def ending_after(number, **options):
  """A process that says it is finished once it has had so many rounds."""
  process = toy_process.build(**options)
  state = process.server_state_type.member
  at_end = tff.tensorflow.computation(lambda server: server.rounds >= number, state)
  finished = tff.federated_computation(
    lambda server: tff.federated_map(at_end, server), process.server_state_type
  )
  return dataclasses.replace(process, finished=finished)


def test_a_finished_process_ends_the_run_as_its_last_round_does(tmp_path):
  process = ending_after(3, personalize=True)
  often = {'clients_per_round': 1, 'evaluate_every': 2}
  result = run(process, rounds=7, output_dir=tmp_path, **often)
  assert result.server_state.rounds == result.summary['rounds'] == 3
  assert [row['round'] for row in result.history] == [2, 3]
  plain = run(toy_process.build(personalize=True), rounds=3, **often)
  tf.nest.map_structure(np.testing.assert_array_equal, result.server_state, plain.server_state)
  for key, row in plain.clients.items():
    assert result.clients[key]['personalized_client_loss'] == row['personalized_client_loss']
  # Resumed, also for more rounds, it is finished still; resumed before that it ends there.
  assert_same(run(process, rounds=9, output_dir=tmp_path, resume=True, **often), result)
  run(process, rounds=1, output_dir=tmp_path / 'b', **often)
  continued = run(process, rounds=7, output_dir=tmp_path / 'b', resume=True, **often)
  assert [row['round'] for row in continued.history] == [2, 3]


def test_client_history_has_every_round_of_every_client_and_survives_a_resume(tmp_path):
  process = toy_process.build()
  kept = {'clients_per_round': 2, 'client_history': ['num_examples', 'bytes_up']}
  whole = run(process, rounds=4, **kept)
  rows = [(r['round'], key) for key, rows in whole.client_history.items() for r in rows]
  assert len(rows) == len(set(rows)) == 8
  for key, history in whole.client_history.items():
    for row in history:
      assert row['bytes_up'] == 8 and row['num_examples'] == whole.clients[key]['num_train']
      assert list(row) == ['round', 'num_examples', 'bytes_up']
  run(process, rounds=2, output_dir=tmp_path, **kept)
  continued = run(process, rounds=4, output_dir=tmp_path, resume=True, **kept)
  assert continued.client_history == whole.client_history
  assert run(process, rounds=1, clients_per_round=1).client_history == {}


@pytest.mark.parametrize('names', [['nonsense'], 'bytes_up'])
def test_client_history_of_an_unknown_metric_is_refused(process, names):
  with pytest.raises(ValueError, match='client_history must be a list of training metrics'):
    run(process, rounds=1, clients_per_round=1, client_history=names)


def test_f8_many_clients_in_one_round(process):
  rows = {str(i): toy_process.constant(i, 1) for i in range(300)}
  result = run(process, FederatedDataset.from_arrays(rows), rounds=1, clients_per_round=None)
  assert result.server_state.mean == np.mean(np.arange(300))
  assert result.history[0]['clients_accuracy_mean'] == 1.0


def test_f11_only_sampled_clients_are_loaded_and_each_once(process):
  data = toy_process.Watched(toy_process.data(40))
  result = simulation.run(process, data, **toy_process.arguments())
  fingerprint, trained = data.loads[:16], data.loads[16:]
  assert len(set(data.loads)) == len(data.loads)
  assert set(trained) == set(result.trained_clients) - set(fingerprint)


def test_f3_a_client_whose_training_fails(process):
  data = FederatedDataset.from_arrays(
    {
      'a': toy_process.constant(1.0, 1),
      'bad': toy_process.constant(7.0, 1, label=-1000),
      'c': toy_process.constant(3.0, 1),
    }
  )
  arguments = toy_process.arguments(rounds=1, clients_per_round=None)
  with pytest.raises(simulation.ClientError, match="training of client 'bad' failed"):
    simulation.run(process, data, **arguments)
  with pytest.warns(RuntimeWarning, match="training of client 'bad' failed"):
    result = simulation.run(process, data, on_client_error='skip', **arguments)
  assert result.server_state.mean == 2.0
  assert result.trained_clients == ['a', 'c']
  assert result.clients['bad']['skipped'] == 1


def test_the_native_runtime_gives_the_same(process):
  here = run(process, rounds=2)
  with runtime.running('native'):
    there = run(process, rounds=2)
  assert_same(here, there)


def test_the_progress_bar_goes_to_stderr(process, capsys):
  run(process, rounds=2, progress=True)
  captured = capsys.readouterr()
  assert captured.out == ''
  for word in ('S loss', 'S acc', 'MT loss', 'MT acc', '2/2'):
    assert word in captured.err


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  [
    ({'rounds': 0}, ValueError, 'rounds must be'),
    ({'evaluate_every': 0}, ValueError, 'evaluate_every must be'),
    ({'on_client_error': 'ignore'}, ValueError, 'on_client_error must be'),
    ({'clients_per_round': 7}, ValueError, r'between 1 and .* 6\. Received: clients_per_round=7'),
    ({'config': {'f': print}}, TypeError, r'config\.settings\.f'),
  ],
)
def test_arguments_out_of_range_are_refused(process, change, error, message):
  with pytest.raises(error, match=message):
    run(process, **change)


def test_d6_data_that_do_not_fit_the_process_are_refused(process):
  wrong = FederatedDataset.from_arrays(
    {'k': (np.zeros([2, 1], np.float64), np.zeros([2], np.int32))}
  )
  with pytest.raises(TypeError, match=r"train_data.*field x: float32.*float64.*'k'"):
    run(process, wrong)
  wide = FederatedDataset.from_arrays(
    {'k': (np.zeros([2, 3], np.float32), np.zeros([2], np.int32))}
  )
  with pytest.raises(TypeError, match=r'test_data.*\(None, 1\).*\(None, 3\)'):
    simulation.run(process, toy_process.data(), **toy_process.arguments(test_data=wide))


def test_d8_targets_out_of_range_are_refused_before_training(process):
  data = FederatedDataset.from_arrays(
    {'ok': toy_process.constant(0, 2), 'bad': toy_process.constant(0, 2, label=3)}
  )
  with pytest.raises(ValueError, match="client 'bad', field y, value 3"):
    run(process, data, num_classes=3)
  assert run(process, data, num_classes=4, rounds=1).summary['rounds'] == 1


def test_v19_a_process_built_for_other_clients_is_refused():
  data = toy_process.data(2)
  with pytest.raises(ValueError, match=r'\[1, 2\] and so on\. Received: .*\[2, 1\]'):
    run(toy_process.build(client_num_examples=[2, 1]), data)
  with pytest.raises(ValueError, match='Expected: 2. Received: num_clients=3'):
    run(toy_process.build(num_clients=3), data)


def test_p1_memory_does_not_grow_with_the_rounds(process):
  import psutil

  data = toy_process.data(13)
  sizes = []

  def sample(number: int) -> list[str]:
    sizes.append(psutil.Process(os.getpid()).memory_info().rss)
    return [f'c{i}' for i in range(3 + number % 11)]

  simulation.run(
    process,
    data,
    **toy_process.arguments(rounds=200, clients_per_round=None, test_data=data, evaluate_every=20),
    sample_fn=sample,
  )
  assert sizes[-1] < 1.05 * sizes[50]
