"""Who rated which photograph of FLICKR-AES how."""

import csv
import pathlib

from tffpers.datasets import _split

_COLUMNS = ['worker', 'imagePair', 'score']
_SCORES = ('1', '2', '3', '4', '5')

# Name of the image and class, 0–4, of each of a worker's ratings.
Ratings = list[tuple[str, int]]


def read(path: pathlib.Path) -> dict[str, Ratings]:
  """All ratings by worker, in the file's order.

  Raises:
    ValueError: If a row is not worker, image and score from 1 to 5; names it.
  """
  workers: dict[str, Ratings] = {}
  with path.open(newline='', encoding='utf-8') as file:
    reader = csv.reader(file)
    # All columns' names but the first begin with a space.
    rows = ([field.strip() for field in row] for row in reader if row)
    header = next(rows, [])
    if header != _COLUMNS:
      raise ValueError(f'Expected the columns {_COLUMNS}. Received: {path} with {header}')
    for row in rows:
      if len(row) != 3 or row[2] not in _SCORES:
        raise ValueError(
          'Expected worker, image and a score from 1 to 5. '
          f'Received: {path}, line {reader.line_num}: {row}'
        )
      workers.setdefault(row[0], []).append((row[1], int(row[2]) - 1))
  return workers


def why_dropped(ratings: Ratings, fewest: int, most: int) -> str:
  """What is wrong with a worker; empty for one with all scores and neither few nor many ratings."""
  if len(ratings) < fewest:
    return f'{len(ratings)} ratings, fewer than {fewest}'
  if len(ratings) > most:
    return f'{len(ratings)} ratings, more than {most}'
  given = {label for _, label in ratings}
  absent = [score for label, score in enumerate(_SCORES) if label not in given]
  return f'no rating of {", ".join(absent)}' if absent else ''


def split(client_id: str, ratings: Ratings, seed: int) -> tuple[Ratings, Ratings]:
  """Ratings of 80 % of the images and of the others, each in their order.

  It depends on seed, id and names of images only.
  """
  names = sorted({name for name, _ in ratings})
  _, edge, _ = _split.bounds((0.8, 0.2), len(names), client_id)
  order = _split.permutation(seed, client_id, len(names))
  in_train = {names[k] for k in order[:edge]}
  return (
    [rating for rating in ratings if rating[0] in in_train],
    [rating for rating in ratings if rating[0] not in in_train],
  )
