"""The vehicle sensor network from both of its layouts."""

import os
import pathlib

import numpy as np
import pytest
from scipy import io

from tffpers.datasets import load_vsn

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)


def write_recording(folder, run, sensor, acoustic, seismic):
  """Feature files of 53 columns, of which the last three tell of time."""
  target = folder / 'events' / 'runs' / run / sensor
  target.mkdir(parents=True, exist_ok=True)
  # Written in the other order, so that a listing is not sorted by chance.
  for name, table in (('seismic', seismic), ('acoustic', acoustic)):
    rows = [' '.join(f'{value:g}' for value in [*row, 7, 8, 9]) for row in table]
    (target / f'{run}{sensor}_{name}_feat.txt').write_text('\n'.join(rows) + '\n')


def table(value, rows=8):
  return np.full([rows, 50], value, float)


def all_rows(parts, key):
  loaded = [part.load(key) for part in parts]
  return tuple(np.concatenate(arrays) for arrays in zip(*loaded, strict=True))


def test_v19_sensors_are_clients_in_order_of_numbers_with_all_their_runs(tmp_path):
  for sensor in ('s54', 's1', 's2'):
    write_recording(tmp_path, 'aav3', sensor, table(1), table(2))
    write_recording(tmp_path, 'dw5', sensor, table(3, 4), table(4, 4))
  (tmp_path / 'events' / 'runs' / 'dw5' / 's9').mkdir()
  (tmp_path / 'events' / 'runs' / 'dw5' / 'summary_feat').write_text('no sensor')
  parts = load_vsn(tmp_path)
  assert parts[0].client_ids == parts[1].client_ids == ['s1', 's2', 's54']
  assert [part.num_examples('s2') for part in parts] == [9, 3]
  x, y = all_rows(parts, 's2')
  assert (x.dtype, y.dtype, x.shape) == (np.float32, np.int32, (12, 100))
  aav = x[y == 1]
  assert len(aav) == 8 and (aav[:, :50] == 1).all() and (aav[:, 50:] == 2).all()
  other = x[y == 0]
  assert len(other) == 4 and (other[:, :50] == 3).all() and (other[:, 50:] == 4).all()


@pytest.mark.parametrize('shape', [(-1, 1), (1, -1)])
@pytest.mark.parametrize('cells', [(-1, 1), (1, -1)])
def test_mat_cells_in_rows_or_columns_give_clients(tmp_path, shape, cells):
  features, labels = np.empty([12], object), np.empty([12], object)
  for k in range(12):
    features[k] = np.full([8, 100], k + 0.5)
    features[k][:, 0] = np.arange(8)
    labels[k] = np.where(np.arange(8) < 3, 1, -1).astype(np.int16).reshape(shape)
  io.savemat(tmp_path / 'vehicle.mat', {'X': features.reshape(cells), 'Y': labels.reshape(cells)})
  parts = load_vsn(tmp_path)
  assert parts[0].client_ids == [str(k) for k in range(1, 13)]
  for k in range(12):
    x, y = all_rows(parts, str(k + 1))
    assert (x[:, 1:] == k + 0.5).all() and sorted(x[:, 0]) == list(range(8))
    np.testing.assert_array_equal(y, x[:, 0] < 3)


def test_split_depends_on_the_seed(tmp_path):
  for run in ('aav1', 'dw2'):
    write_recording(tmp_path, run, 's1', table(1) + np.arange(8)[:, None], table(2))
  first, again, other = (load_vsn(tmp_path, seed=seed)[0].load('s1')[0] for seed in (0, 0, 1))
  assert first.tolist() == again.tolist() != other.tolist()


def test_recordings_that_disagree_name_run_and_sensor(tmp_path):
  write_recording(tmp_path, 'aav3', 's1', table(1, 3), table(1, 2))
  with pytest.raises(ValueError, match="run 'aav3', sensor 's1', .*3.*2"):
    load_vsn(tmp_path)
  (tmp_path / 'events/runs/aav3/s1/aav3s1_seismic_feat.txt').unlink()
  with pytest.raises(ValueError, match='two feature files'):
    load_vsn(tmp_path)


def test_too_few_columns_name_the_file(tmp_path):
  write_recording(tmp_path, 'aav3', 's1', table(1)[:, :40], table(1))
  with pytest.raises(ValueError, match='50 numbers or more. Received: .*acoustic_feat.txt with 43'):
    load_vsn(tmp_path)


@pytest.mark.parametrize(
  'x, y, words',
  [
    (np.zeros([4, 100]), [0, 1, 1, 1], "client '1', labels"),
    (np.zeros([4, 100]), [1, 1, 1], r"client '1', X \(4, 100\) and 3 labels"),
    (np.zeros([4, 99]), [1, 1, 1, 1], r'X \(4, 99\)'),
  ],
)
def test_damaged_cells_name_the_client(tmp_path, x, y, words):
  features, labels = np.empty([1], object), np.empty([1], object)
  features[0], labels[0] = x, np.array(y)
  io.savemat(tmp_path / 'vehicle.mat', {'X': features, 'Y': labels})
  with pytest.raises(ValueError, match=words):
    load_vsn(tmp_path)


def test_other_mat_files_are_refused(tmp_path):
  io.savemat(tmp_path / 'vehicle.mat', {'X': np.zeros([3])})
  with pytest.raises(ValueError, match=r"without \['Y'\]"):
    load_vsn(tmp_path)
  io.savemat(tmp_path / 'vehicle.mat', {'X': np.zeros([3]), 'Y': np.zeros([2])})
  with pytest.raises(ValueError, match='3 and 2'):
    load_vsn(tmp_path)


def test_missing_data_name_the_folder_and_how_to_get_them(tmp_path):
  with pytest.raises(FileNotFoundError, match=f'{tmp_path}.*SensIT Vehicle'):
    load_vsn(tmp_path)
  (tmp_path / 'events' / 'runs').mkdir(parents=True)
  with pytest.raises(FileNotFoundError, match='runs.*SensIT Vehicle'):
    load_vsn(tmp_path)


@needs_data
def test_development_events():
  train, test = load_vsn(DATA / 'formats' / 'vsn' / 'events_format_only')
  assert train.client_ids == test.client_ids == ['s1', 's2', 's54']
  assert np.bincount(all_rows((train, test), 's54')[1]).tolist() == [12, 12]


@needs_data
def test_v19_development_mat_has_23_sensors(tmp_path):
  source = DATA / 'formats' / 'vsn' / 'vehicle_format_only.mat'
  (tmp_path / 'vehicle.mat').symlink_to(source)
  train, test = load_vsn(tmp_path)
  assert len(train) == len(test) == 23
  assert [train.num_examples('1'), test.num_examples('1')] == [15, 5]
