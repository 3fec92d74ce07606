"""Reads pickles of arrays without running what else a pickle may hold."""

import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


def load(path: pathlib.Path) -> Any:
  """The content of a pickle of containers, numbers, text and arrays.

  Text that Python 2 wrote is read as bytes.

  Raises:
    ValueError: If the file is damaged, or needs anything else to be imported, as a
      pickle that runs code does.
  """
  with path.open('rb') as file:
    try:
      return _Unpickler(file, encoding='bytes').load()
    except Exception as error:  # Damage can make any exception of a pickle.
      raise ValueError(
        f'Expected a whole pickle of arrays. Received: {path} ({type(error).__name__}: {error})'
      ) from error


def _encode(text: str, encoding: str) -> bytes:
  """How Python 3 writes bytes for Python 2; any other codec would have to be imported."""
  if encoding != 'latin1':
    raise pickle.UnpicklingError(f'no bytes in {encoding!r}')
  return text.encode('latin1')


def _allowed() -> dict[tuple[str, str], Callable[..., Any]]:
  # What numpy itself names when it pickles an array; its place differs by version.
  reconstruct: Any = np.zeros([0]).__reduce__()[0]
  return {
    ('_codecs', 'encode'): _encode,
    ('numpy', 'ndarray'): np.ndarray,
    ('numpy', 'dtype'): np.dtype,
    ('numpy.core.multiarray', '_reconstruct'): reconstruct,
    ('numpy._core.multiarray', '_reconstruct'): reconstruct,
  }


class _Unpickler(pickle.Unpickler):
  _ALLOWED = _allowed()

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in self._ALLOWED:
      raise pickle.UnpicklingError(f'{module}.{name} is not allowed')
    return self._ALLOWED[module, name]
