"""Reads MNIST's IDX files, plain or compressed by gzip."""

import gzip
import pathlib
import zlib

import numpy as np

_PREFIX = {'train': 'train', 'test': 't10k'}


def read_split(folder: pathlib.Path, split: str) -> tuple[np.ndarray, np.ndarray]:
  """Images and labels of one split, from `<train|t10k>-<images-idx3|labels-idx1>-ubyte[.gz]`.

  Args:
    folder: Where the files are.
    split: `train` or `test`.

  Returns:
    `(images, labels)`, uint8 [n, height, width] and uint8 [n].

  Raises:
    FileNotFoundError: If one of the two files is not there; names it.
    ValueError: If a file is no IDX file of bytes with that number of axes.
  """
  prefix = _PREFIX[split]
  return (
    _read(_existing(folder / f'{prefix}-images-idx3-ubyte'), 3),
    _read(_existing(folder / f'{prefix}-labels-idx1-ubyte'), 1),
  )


def _existing(path: pathlib.Path) -> pathlib.Path:
  compressed = path.with_name(f'{path.name}.gz')
  if not path.is_file() and not compressed.is_file():
    raise FileNotFoundError(f'No {path.name} or {compressed.name} in {path.parent}.')
  return path if path.is_file() else compressed


def _read(path: pathlib.Path, axes: int) -> np.ndarray:
  content = path.read_bytes()
  if path.suffix == '.gz':
    try:
      content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
      raise ValueError(f'Expected a whole gzip file. Received: {path} ({error})') from error
  # Two zeros, 8 for unsigned bytes, the number of axes; then each axis' length.
  start = 4 * (1 + axes)
  magic = bytes([0, 0, 8, axes])
  if content[:4] != magic or len(content) < start:
    raise ValueError(
      f'Expected an IDX file of bytes with {axes} axes, which begins with {magic!r}. '
      f'Received: path={str(path)!r} that begins with {content[:4]!r}'
    )
  shape = np.frombuffer(content[4:start], '>u4').astype(int).tolist()
  if len(content) != start + np.prod(shape, dtype=int):
    raise ValueError(
      f'The header promises {shape} bytes of data. '
      f'Received: path={str(path)!r} with {len(content) - start} bytes'
    )
  return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
