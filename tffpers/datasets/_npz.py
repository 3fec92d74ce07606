"""Reads NumPy's archives of arrays."""

import pathlib
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np


def read(path: pathlib.Path, names: Sequence[str], layout: str) -> dict[str, np.ndarray]:
  """The named arrays of an `.npz` file.

  Args:
    path: The file.
    names: Arrays that must be there; others may be.
    layout: What the message calls the layout.

  Raises:
    ValueError: If an array is missing, or the file is damaged.
  """
  try:
    with zipfile.ZipFile(path):  # Or else np.load would try other formats.
      pass
    with np.load(path, allow_pickle=False) as archive:
      found = archive.files
      arrays = {name: archive[name] for name in names if name in found}
  except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
    raise ValueError(f'Expected a whole .npz file. Received: {path} ({error})') from error
  if missing := sorted(set(names) - arrays.keys()):
    raise ValueError(f'{layout} needs {missing}. Received: {path} with {found}')
  return arrays
