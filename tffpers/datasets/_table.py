"""Reads text files of numbers in columns."""

import pathlib

import numpy as np


def read(path: pathlib.Path, columns: int, *, or_more: bool = False) -> np.ndarray:
  """The numbers of a file, split on white space of any width.

  Args:
    path: A text file, one row of the table a line; empty lines do not count.
    columns: How many columns it has.
    or_more: Whether further columns may follow, which are left out.

  Returns:
    float32 [n, columns].

  Raises:
    ValueError: If a field is no number, or rows have another number of columns.
  """
  lines = [line for line in path.read_text(encoding='ascii').splitlines() if line.strip()]
  if not lines:
    return np.zeros([0, columns], np.float32)
  try:
    table = np.loadtxt(lines, np.float32, comments=None, ndmin=2)
  except ValueError as error:
    raise ValueError(f'Expected rows of {columns} numbers. Received: {path} ({error})') from error
  if table.shape[1] < columns or (table.shape[1] > columns and not or_more):
    raise ValueError(
      f'Expected rows of {columns} numbers{" or more" if or_more else ""}. '
      f'Received: {path} with {table.shape[1]}'
    )
  return table[:, :columns]
