"""FLICKR-AES: photographs rated for their beauty, one client for each rating worker."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tffpers.datasets import _flickr_ratings
from tffpers.datasets._flickr_ratings import Ratings
from tffpers.datasets.federated_dataset import FederatedDataset

_RATINGS = 'FLICKR-AES_image_labeled_by_each_worker.csv'
_IMAGES = '40K'
_GET = (
  'Links to the images (40K/) and to the ratings are at '
  'https://github.com/alanspike/personalizedImageAesthetics.'
)


@dataclasses.dataclass(frozen=True)
class FlickrAesReport:
  """Which workers a load read, kept, dropped and drew.

  Attributes:
    rule: Which workers are kept, in words.
    clients_read: Number of workers in the file.
    clients_kept: Ids of the workers whom the rule keeps.
    clients_dropped: Why the rule drops each other worker, by id.
    clients_drawn: Ids of the kept workers that are in train and test.
    ratings_read: Ratings in the file.
    train_ratings: Ratings in train.
    test_ratings: Ratings in test.
  """

  rule: str
  clients_read: int
  clients_kept: tuple[str, ...]
  clients_dropped: Mapping[str, str]
  clients_drawn: tuple[str, ...]
  ratings_read: int
  train_ratings: int
  test_ratings: int


def load_flickr_aes(
  data_dir: str | os.PathLike[str],
  *,
  num_clients: int = 30,
  image_size: int = 224,
  min_ratings: int = 60,
  max_ratings: int = 290,
  seed: int = 0,
) -> tuple[FederatedDataset, FederatedDataset]:
  """Ratings 1–5 of photographs as five classes; workers drawn at random are clients.

  Kept are workers of `min_ratings` to `max_ratings` ratings with each score among
  them; `num_clients` of these are drawn. 80 % of the images that a worker rated train;
  were an image rated twice, both ratings would be in the same part. Photographs are
  decoded and resized, whatever their proportions, whenever a client is loaded: at the
  default size one takes 0.6 MB of memory.

  Args:
    data_dir: Folder with `FLICKR-AES_image_labeled_by_each_worker.csv` and `40K/`.
    num_clients: Number of workers.
    image_size: Height and width of an image.
    min_ratings: Fewest ratings of a kept worker.
    max_ratings: Most ratings of a kept worker.
    seed: Non-negative seed of the draw and of the split.

  Returns:
    `(train, test)`, both with all drawn workers, sorted by id; `x` float32
    [n, image_size, image_size, 3] in [0, 1] and `y` int32 [n], the rating minus 1.

  Raises:
    FileNotFoundError: If the ratings, or a drawn worker's image, are not there; says
      how to get them.
    ValueError: If an argument is out of range, the ratings are damaged or there are
      too few workers; when a client is loaded, if an image is damaged.

  Sources: Ren et al., Personalized image aesthetics, ICCV 2017; setting of
  Arivazhagan et al., FedPer, arXiv 1912.00818.
  """
  if image_size < 1:
    raise ValueError(f'image_size must be at least 1. Received: image_size={image_size}')
  parts, _ = _select(data_dir, num_clients, min_ratings, max_ratings, seed)
  folder = pathlib.Path(data_dir) / _IMAGES
  for part in parts:
    _check_images(folder, part)
  train, test = (
    FederatedDataset.from_loader(
      {key: len(ratings) for key, ratings in part.items()},
      functools.partial(_load, folder, image_size, part),
    )
    for part in parts
  )
  return train, test


def flickr_aes_report(
  data_dir: str | os.PathLike[str],
  *,
  num_clients: int = 30,
  min_ratings: int = 60,
  max_ratings: int = 290,
  seed: int = 0,
) -> FlickrAesReport:
  """What `load_flickr_aes` with the same arguments reads, keeps, drops and draws."""
  return _select(data_dir, num_clients, min_ratings, max_ratings, seed)[1]


def _select(
  data_dir: str | os.PathLike[str], num_clients: int, fewest: int, most: int, seed: int
) -> tuple[tuple[dict[str, Ratings], dict[str, Ratings]], FlickrAesReport]:
  if num_clients < 1 or not 1 <= fewest <= most or seed < 0:
    raise ValueError(
      'num_clients must be at least 1, 1 <= min_ratings <= max_ratings, and seed not negative. '
      f'Received: num_clients={num_clients}, min_ratings={fewest}, max_ratings={most}, seed={seed}'
    )
  path = pathlib.Path(data_dir) / _RATINGS
  if not path.is_file():
    raise FileNotFoundError(f'No {path.name} in {path.parent}. {_GET}')
  workers = _flickr_ratings.read(path)
  reasons = {
    key: _flickr_ratings.why_dropped(ratings, fewest, most) for key, ratings in workers.items()
  }
  kept = sorted(key for key, reason in reasons.items() if not reason)
  dropped = {key: reason for key, reason in reasons.items() if reason}
  if num_clients > len(kept):
    raise ValueError(
      f'Only {len(kept)} of {len(workers)} workers have {fewest} to {most} ratings and every '
      f'score. Received: num_clients={num_clients}, dropped {dict(list(dropped.items())[:3])} …'
    )
  drawn = np.random.default_rng(seed).choice(len(kept), num_clients, replace=False)
  train: dict[str, Ratings] = {}
  test: dict[str, Ratings] = {}
  for key in (kept[k] for k in np.sort(drawn)):
    train[key], test[key] = _flickr_ratings.split(key, workers[key], seed)
  report = FlickrAesReport(
    f'{fewest} to {most} ratings, and every score from 1 to 5 among them',
    len(workers),
    tuple(kept),
    dropped,
    tuple(train),
    *(sum(map(len, ratings.values())) for ratings in (workers, train, test)),
  )
  return (train, test), report


def _check_images(folder: pathlib.Path, part: dict[str, Ratings]) -> None:
  for key, ratings in part.items():
    missing = [name for name, _ in ratings if not (folder / name).is_file()]
    if missing:
      raise FileNotFoundError(
        f'{len(missing)} of the images that client {key!r} rated are missing, such as '
        f'{missing[0]}, in {folder}. {_GET}'
      )


def _load(
  folder: pathlib.Path, size: int, part: dict[str, Ratings], key: str
) -> tuple[np.ndarray, np.ndarray]:
  x = np.empty([len(part[key]), size, size, 3], np.float32)
  # Image by image: on a GPU this would wait for copies and take its memory.
  with tf.device('CPU:0'):
    for row, (name, _) in enumerate(part[key]):
      x[row] = _image(folder / name, size, key)
  return x, np.array([label for _, label in part[key]], np.int32)


def _image(path: pathlib.Path, size: int, key: str) -> np.ndarray:
  try:
    pixels = tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)
  except tf.errors.InvalidArgumentError as error:
    raise ValueError(
      f'Expected a whole image. Received: client {key!r}, {path} ({error.message})'
    ) from error
  resized = tf.image.resize(pixels, [size, size], antialias=True)
  return np.clip(resized.numpy() / np.float32(255), 0, 1)
