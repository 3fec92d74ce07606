"""Pickles of arrays are read, and nothing that a pickle holds is run."""

import io
import pathlib
import pickle
import pickletools

import numpy as np
import pytest

from tffpers.datasets import _safe_pickle


class Runs:
  """What runs a function when it is unpickled."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


def write(path, value, protocol=2):
  path.write_bytes(pickle.dumps(value, protocol))
  return path


@pytest.mark.parametrize('protocol', [0, 1, 2, 3, 4])
def test_arrays_containers_numbers_and_text_are_read(tmp_path, protocol):
  value = {b'x': np.arange(6, dtype=np.uint8).reshape(2, 3), 'y': [1, 2.5, None], b'z': b'\xff'}
  found = _safe_pickle.load(write(tmp_path / 'a', value, protocol))
  np.testing.assert_array_equal(found.pop(b'x'), value.pop(b'x'))
  assert found == value


@pytest.mark.parametrize('protocol', [0, 2, 4])
def test_what_would_run_code_is_refused_by_name_and_not_run(tmp_path, protocol):
  victim = tmp_path / 'victim'
  hostile = write(tmp_path / 'a', {'x': Runs(pathlib.Path.touch, victim)}, protocol)
  with pytest.raises(ValueError, match=f'{hostile} .*not allowed'):
    _safe_pickle.load(hostile)
  assert not victim.exists()


@pytest.mark.parametrize('function', [eval, np.load, np.frombuffer, getattr])
def test_other_functions_are_refused(tmp_path, function):
  with pytest.raises(ValueError, match=f'{function.__name__} is not allowed'):
    _safe_pickle.load(write(tmp_path / 'a', Runs(function, '1')))


def test_codecs_are_not_imported(tmp_path):
  stream = b'c_codecs\nencode\n(Vtext\nVrot13\ntR.'
  assert 'rot13' in ''.join(str(argument) for _, argument, _ in pickletools.genops(stream))
  (tmp_path / 'a').write_bytes(stream)
  with pytest.raises(ValueError, match="no bytes in 'rot13'"):
    _safe_pickle.load(tmp_path / 'a')


def test_damage_anywhere_is_a_value_error_that_names_the_file(tmp_path):
  content = pickle.dumps({b'x': np.arange(20, dtype=np.uint8), b'y': [1, 2]}, 2)
  path = tmp_path / 'a'
  for end in range(len(content)):
    path.write_bytes(content[:end])
    with pytest.raises(ValueError, match=str(path)):
      _safe_pickle.load(path)


def test_the_plain_unpickler_would_have_run_it(tmp_path):
  victim = tmp_path / 'victim'
  pickle.load(io.BytesIO(pickle.dumps(Runs(pathlib.Path.touch, victim))))
  assert victim.exists()
