import contextlib
import csv
import hashlib
import json
import os
import pathlib
import resource
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import toy_process
from test_driver import assert_same

from tffpers import simulation

HERE = pathlib.Path(__file__).parent
TABLES = ('metrics.csv', 'clients.csv')


def run(process, folder, **overrides):
  data = overrides.pop('data', None) or toy_process.data()
  overrides.setdefault('sample_fn', toy_process.sampled)
  arguments = toy_process.arguments(clients_per_round=None, output_dir=folder, **overrides)
  return simulation.run(process, data, test_data=data, **arguments)


def hashes(folder: pathlib.Path) -> dict[str, str]:
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }


def stored(folder: pathlib.Path, owner: str) -> list[bytes]:
  connection = sqlite3.connect(folder / 'state.sqlite')
  rows = connection.execute(
    'SELECT value FROM tensors WHERE owner = ? ORDER BY position', (owner,)
  ).fetchall()
  connection.close()
  return [value for (value,) in rows]


KILLS = [('toy', 'loading'), ('toy', 'writing'), ('fed_avg', 'between')]


@pytest.fixture(scope='module')
def killed(tmp_path_factory):
  """Folders of runs that died in round 4, each in a process of its own."""
  folders = {kill: tmp_path_factory.mktemp('-'.join(kill)) for kill in KILLS}
  environment = os.environ | {
    'PYTHONPATH': os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
    'TF_CPP_MIN_LOG_LEVEL': '3',
  }
  with contextlib.ExitStack() as stack:
    running = {
      kill: stack.enter_context(
        subprocess.Popen(
          [sys.executable, str(HERE / 'killed.py'), *kill, str(folder)],
          env=environment,
          stdout=subprocess.DEVNULL,
          stderr=subprocess.PIPE,
        )
      )
      for kill, folder in folders.items()
    }
    for kill, process in running.items():
      _, errors = process.communicate(timeout=200)
      assert process.returncode == 9, (kill, errors.decode()[-3000:])
  return folders


@pytest.mark.parametrize('kill', KILLS, ids='-'.join)
def test_f4_a_killed_run_resumes_bit_for_bit_in_a_new_process(
  process, fed_avg, killed, kill, tmp_path
):
  algorithm = process if kill[0] == 'toy' else fed_avg
  with open(killed[kill] / 'metrics.csv', encoding='utf-8') as file:
    assert [row['round'] for row in csv.DictReader(file)] == ['1', '2', '3']
  resumed = run(algorithm, killed[kill], resume=True)
  uninterrupted = run(algorithm, tmp_path / 'whole')
  assert_same(resumed, uninterrupted)
  for name in TABLES:
    assert (killed[kill] / name).read_text() == (tmp_path / 'whole' / name).read_text()
  assert (killed[kill] / 'clients.png').exists()


def test_f4_more_rounds_can_be_asked_for(fed_avg, tmp_path):
  run(fed_avg, tmp_path / 'parts', rounds=3, evaluate_every=2)
  parts = run(fed_avg, tmp_path / 'parts', rounds=6, evaluate_every=2, resume=True)
  whole = run(fed_avg, tmp_path / 'whole', rounds=6, evaluate_every=2)
  assert_same(parts, whole)
  assert [row['round'] for row in parts.history] == [2, 4, 6]
  for name in (*TABLES, 'config.json'):
    assert (tmp_path / 'parts' / name).read_text() == (tmp_path / 'whole' / name).read_text()
  assert_same(whole, run(fed_avg, None, rounds=6, evaluate_every=2))


def test_f4_a_finished_run_is_left_alone(process, tmp_path):
  first = run(process, tmp_path, rounds=2)
  before = hashes(tmp_path)
  second = run(process, tmp_path, rounds=2, resume=True)
  assert hashes(tmp_path) == before
  assert_same(first, second)
  assert first.summary == second.summary
  with pytest.raises(ValueError, match='has 2 rounds already. Received: rounds=1'):
    run(process, tmp_path, rounds=1, resume=True)


def test_f4_reports_that_a_kill_prevented_are_written_later(process, tmp_path):
  first = run(process, tmp_path, rounds=2)
  (tmp_path / 'summary.json').unlink()
  assert_same(first, run(process, tmp_path, rounds=2, resume=True))
  assert json.loads((tmp_path / 'summary.json').read_text())['rounds'] == 2


def test_resume_without_a_run_starts_one(process, tmp_path):
  (tmp_path / 'killed').mkdir()
  (tmp_path / 'killed' / 'state.sqlite').touch()  # Died before its first transaction.
  assert run(process, tmp_path / 'killed', rounds=1, resume=True).summary['rounds'] == 1
  assert run(process, tmp_path / 'new', rounds=1, resume=True).summary['rounds'] == 1


@pytest.mark.parametrize(
  ('change', 'key'),
  [
    ({'seed': 4}, 'seed=3'),
    ({'evaluate_every': 2}, 'evaluate_every=1'),
    ({'data': toy_process.data(7)}, 'num_clients=6'),
    (
      {
        'data': toy_process.FederatedDataset.from_arrays(
          {f'c{i}': toy_process.constant(i, i + 1) for i in range(6)}
        )
      },
      'data.train.contents=',
    ),
    (
      {'data': toy_process.data().select([f'c{i}' for i in (1, 0, 2, 3, 4, 5)])},
      'data.train.client_ids=',
    ),
  ],
)
def test_f4_another_run_is_not_resumed(process, tmp_path, change, key):
  run(process, tmp_path, rounds=1)
  before = hashes(tmp_path)
  with pytest.raises(ValueError, match=f'Expected: {key}'):
    run(process, tmp_path, rounds=2, resume=True, **change)
  assert hashes(tmp_path) == before


def test_f4_other_hyper_parameters_and_models_are_refused(tmp_path):
  run(toy_process.build(rate=0.1), tmp_path, rounds=1)
  with pytest.raises(ValueError, match='Expected: hyper_parameters.rate=0.1. Received: .*=0.2'):
    run(toy_process.build(rate=0.2), tmp_path, rounds=2, resume=True)
  with pytest.raises(simulation.StoreError, match="another model.*'mean', .*float64.*float32"):
    run(toy_process.build(rate=0.1, dtype=np.float64), tmp_path, rounds=2, resume=True)
  assert run(toy_process.build(rate=0.1), tmp_path, rounds=2, resume=True).summary['rounds'] == 2


def test_a_folder_with_a_run_is_not_overwritten(process, tmp_path):
  run(process, tmp_path, rounds=1)
  before = hashes(tmp_path)
  with pytest.raises(FileExistsError, match='resume=True'):
    run(process, tmp_path, rounds=1)
  assert hashes(tmp_path) == before
  (tmp_path / 'state.sqlite').unlink()
  with pytest.raises(FileExistsError, match='not its state.sqlite'):
    run(process, tmp_path, rounds=1, resume=True)


def test_v15_clients_that_were_not_sampled_keep_their_bytes(fed_avg, tmp_path):
  run(fed_avg, tmp_path, rounds=3)
  before = {key: stored(tmp_path, f'client:{key}') for key in ('c1', 'c2', 'c3', 'c4')}
  assert stored(tmp_path, 'client:c0') == stored(tmp_path, 'client:c5') == []
  result = run(fed_avg, tmp_path, rounds=4, resume=True)
  after = {key: stored(tmp_path, f'client:{key}') for key in before}
  assert {key for key in before if before[key] != after[key]} == {'c1'}
  assert result.trained_clients == ['c1', 'c2', 'c3', 'c4', 'c5']


def test_f7_a_client_finds_the_state_it_left(process, tmp_path):
  rounds = {1: ['c0'], 5: ['c0']}
  result = run(process, tmp_path, rounds=5, sample_fn=lambda r: rounds.get(r, ['c1']))
  assert result.client_state('c0').visits == 2
  assert result.client_state('c1').visits == 3


def test_d5_ids_of_any_text_keep_their_states(process, tmp_path):
  ids = ["o'neil", 'a/b\\c', '日本 語', '*;"--', '%s', 'server', '3']
  data = toy_process.FederatedDataset.from_arrays(
    {key: toy_process.constant(i, i + 1) for i, key in enumerate(ids)}
  )
  result = run(process, tmp_path / 'ø #1?', data=data, rounds=1, sample_fn=lambda r: ids)
  assert [float(result.client_state(key).mean) for key in ids] == list(range(len(ids)))
  with open(tmp_path / 'ø #1?' / 'clients.csv', encoding='utf-8', newline='') as file:
    assert [row['client_id'] for row in csv.DictReader(file)] == ids
  assert_same(
    result,
    run(process, tmp_path / 'ø #1?', data=data, rounds=1, sample_fn=lambda r: ids, resume=True),
  )


def test_an_interrupted_run_has_its_reports_and_resumes(process, tmp_path):
  def interrupted(number):
    if number == 4:
      raise KeyboardInterrupt
    return toy_process.sampled(number)

  with pytest.raises(KeyboardInterrupt):
    run(process, tmp_path / 'a', sample_fn=interrupted)
  assert json.loads((tmp_path / 'a' / 'summary.json').read_text())['rounds'] == 3
  assert (tmp_path / 'a' / 'curves.png').exists()
  assert_same(run(process, tmp_path / 'a', resume=True), run(process, tmp_path / 'b'))


@pytest.mark.parametrize('content', [b'not a database at all, but long enough to be read', None])
def test_a_file_that_is_no_run_is_refused_and_left(process, tmp_path, content):
  path = tmp_path / 'state.sqlite'
  if content is None:
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE songs (name TEXT)')
    connection.commit()
    connection.close()
  else:
    path.write_bytes(content)
  before = path.read_bytes()
  with pytest.raises(simulation.StoreError, match='not a database|another program'):
    run(process, tmp_path, rounds=1, resume=True)
  assert path.read_bytes() == before


def test_a_damaged_file_is_refused(fed_avg, tmp_path):
  run(fed_avg, tmp_path, rounds=2)
  path = tmp_path / 'state.sqlite'
  content = bytearray(path.read_bytes())
  content[5000:9000] = os.urandom(4000)
  path.write_bytes(content)
  with pytest.raises(simulation.StoreError, match=r'state\.sqlite'):
    run(fed_avg, tmp_path, rounds=3, resume=True)


def test_two_runs_cannot_share_a_folder(process, tmp_path):
  def nested(number):
    if number == 2:
      run(process, tmp_path, rounds=2, resume=True)
    return ['c0']

  with pytest.raises(simulation.StoreError, match='Another run has it open'):
    run(process, tmp_path, rounds=2, sample_fn=nested)


def test_a_full_disk_keeps_the_last_round(process, tmp_path):
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)

  def sample(number):
    if number == 4:
      # Files cannot grow any more: every write fails from here on.
      resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    return toy_process.sampled(number)

  try:
    with pytest.raises(simulation.StoreError, match='last complete round'):
      run(process, tmp_path / 'a', sample_fn=sample)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert run(process, tmp_path / 'a', rounds=3, resume=True).server_state.rounds == 3
  assert_same(run(process, tmp_path / 'a', resume=True), run(process, tmp_path / 'b'))


def test_e2_evaluating_writes_nothing_to_the_store(process, tmp_path):
  run(process, tmp_path / 'often', rounds=4)
  run(process, tmp_path / 'rarely', rounds=4, evaluate_every=4)
  for owner in ('server', 'client:c1', 'client:c2', 'client:c0'):
    assert stored(tmp_path / 'often', owner) == stored(tmp_path / 'rarely', owner)


def test_states_can_be_read_after_the_run_from_disk_and_memory(process, tmp_path):
  for folder in (tmp_path, None):
    result = run(process, folder, rounds=1)
    tf.nest.map_structure(
      np.testing.assert_array_equal, result.server_state, result.store.server_state()
    )
    assert result.client_state('c1').visits == 1
