"""MedMNIST: small medical images of many kinds, whole, for a partitioner."""

import os
import pathlib

import numpy as np

from tffpers.datasets import _npz
from tffpers.datasets.arrays import Arrays, as_floats, stratified_rows

_CACHE = '~/.medmnist'
_PARTS = ('train', 'val', 'test')
_GET = (
  'Get the file from https://medmnist.com, or by '
  "`medmnist.PathMNIST('train', download=True)` of the package `medmnist`."
)
# Since its second version the collection calls the three views of organs by other names.
_SAME = (
  ('organamnist', 'organmnist_axial'),
  ('organcmnist', 'organmnist_coronal'),
  ('organsmnist', 'organmnist_sagittal'),
)


def read_medmnist(
  name: str, data_dir: str | os.PathLike[str] | None = None, *, seed: int = 0
) -> Arrays:
  """One of MedMNIST's sets of images, its three parts merged and split anew.

  Training, validation and test images are merged; 80 % of each class train. Where an
  image has several labels, 80 % of all images do. APPLE scales the images to mean 0.5
  and deviation 0.5, which is `2 * x − 1`.

  Args:
    name: A set of flat images, such as `PathMNIST` or `OrganAMNIST`, in any case, or
      the stem of its file, such as `pathmnist_64`; `organmnist_axial`, the older name
      of OrganAMNIST, finds either.
    data_dir: Folder with `<name>.npz`, `None` for the cache of the package `medmnist`.
    seed: Non-negative seed of the split.

  Returns:
    Images [n, height, width, channels], one channel or three, and `y`: int32 [n], the
    class; float32 [n, labels] of zeros and ones where an image has several labels, as
    in ChestMNIST, which ask for a loss of one sigmoid each.

  Raises:
    FileNotFoundError: If the file is not there; says how to get it.
    ValueError: If `seed` is negative, the file is damaged or holds volumes.

  Sources: Yang et al., MedMNIST v2, arXiv 2110.14795; setting of Luo and Wu, APPLE,
  arXiv 2110.08394.
  """
  folder = pathlib.Path(_CACHE if data_dir is None else data_dir).expanduser()
  images, y = _read(_find(folder, name.lower()))
  train, test = stratified_rows(y, seed=seed)
  return Arrays(as_floats(images[train]), y[train], as_floats(images[test]), y[test])


def _find(folder: pathlib.Path, stem: str) -> pathlib.Path:
  others = next((names for names in _SAME if stem in names), ())
  stems = dict.fromkeys((stem, *others))
  for path in (folder / f'{each}.npz' for each in stems):
    if path.is_file():
      return path
  raise FileNotFoundError(f'No {" nor ".join(f"{each}.npz" for each in stems)} in {folder}. {_GET}')


def _read(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  names = [f'{part}_{what}' for part in _PARTS for what in ('images', 'labels')]
  source = _npz.read(path, names, "MedMNIST's layout")
  for part in _PARTS:
    _check(path, part, source[f'{part}_images'], source[f'{part}_labels'])
  images, labels = ([source[f'{part}_{what}'] for part in _PARTS] for what in ('images', 'labels'))
  if len({(x.shape[1:], y.shape[1:]) for x, y in zip(images, labels, strict=True)}) > 1:
    raise ValueError(
      'The three parts must have the same shapes. '
      f'Received: {path} with {[x.shape for x in images]} and {[y.shape for y in labels]}'
    )
  return _with_channel(np.concatenate(images)), _targets(path, np.concatenate(labels))


def _check(path: pathlib.Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
  flat = images.ndim == 3 or (images.ndim == 4 and images.shape[-1] == 3)
  if not flat or images.dtype != np.uint8:
    raise ValueError(
      'Expected images of bytes, [n, height, width] or [n, height, width, 3]. '
      f'Received: {path}, {part}_images {images.dtype} {images.shape}'
    )
  if labels.ndim != 2 or len(labels) != len(images) or labels.dtype.kind not in 'iu':
    raise ValueError(
      f'Expected integer labels, [{len(images)}, 1] or [{len(images)}, labels]. '
      f'Received: {path}, {part}_labels {labels.dtype} {labels.shape}'
    )


def _with_channel(images: np.ndarray) -> np.ndarray:
  return images if images.ndim == 4 else images[..., np.newaxis]


def _targets(path: pathlib.Path, labels: np.ndarray) -> np.ndarray:
  # A column [n, 1] would be broadcast against predictions [n] to n × n comparisons.
  if labels.shape[1] == 1:
    return labels[:, 0].astype(np.int32)
  if not np.isin(labels, (0, 1)).all():
    raise ValueError(
      f'Several labels must be zeros and ones. Received: {path} with {np.unique(labels)[:5]}'
    )
  return labels.astype(np.float32)
