"""Which client has how much of which class, as numbers and as tables.

`tffpers.plots.label_counts` draws the same counts.
"""

import csv
import io
from collections.abc import Mapping

import numpy as np

from tffpers.datasets.federated_dataset import FederatedDataset

Counts = Mapping[str, Mapping[int, int]]


def label_counts(data: FederatedDataset) -> dict[str, dict[int, int]]:
  """Examples of every class at every client.

  Args:
    data: `y` class ids, integers or booleans [n].

  Returns:
    `{client id: {class: examples}}`; every client has all classes of the data set, in
    increasing order, some with 0.

  Raises:
    ValueError: If `y` has several labels for an example, or other numbers.

  >>> rows = lambda *y: (np.zeros([len(y), 1]), np.array(y))
  >>> label_counts(FederatedDataset.from_arrays({"ann": rows(1, 3, 1), "bob": rows(2)}))
  {'ann': {1: 2, 2: 0, 3: 1}, 'bob': {1: 0, 2: 1, 3: 0}}
  """
  spec = data.element_spec[1]
  if spec.shape.rank != 0 or not (spec.dtype.is_integer or spec.dtype.is_bool):
    raise ValueError(f'y must be one class id for each example, [n]. Received: {data!r}')
  found = {}
  for key in data.client_ids:
    present, numbers = np.unique(data.load(key)[1].astype(np.int64), return_counts=True)
    found[key] = dict(zip(present.tolist(), numbers.tolist(), strict=True))
  classes = _classes(found)
  return {key: {c: counts.get(c, 0) for c in classes} for key, counts in found.items()}


def majority_accuracy(train: Counts, test: Counts) -> dict[str, float]:
  """What each client's test accuracy is if it always guesses its commonest training class.

  A personal model that does no better has learned nothing but the mix of labels. The
  more clients differ, the higher this is, which is why personal accuracy falls as
  partitions come nearer to the global mix.

  Args:
    train: Counts of the training sets, from `label_counts`.
    test: Counts of the test sets.

  Returns:
    Between 0 and 1 by id of train's clients, of equally common classes the lowest
    guessed; NaN for a client without training or test examples.

  >>> majority_accuracy({"ann": {0: 7, 1: 3}}, {"ann": {0: 1, 1: 3}})
  {'ann': 0.25}
  """
  return {key: _guess_right(train[key], test.get(key, {})) for key in train}


def label_csv(counts: Counts) -> str:
  """The counts as CSV, a line for each client.

  Args:
    counts: From `label_counts`.

  Returns:
    Text with columns `client_id`, `num_examples`, `majority_share` (the share of the
    client's commonest class, empty for a client without examples), `class_0`, …
  """
  text = io.StringIO(newline='')
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow([*_LEADING, *(f'class_{c}' for c in _classes(counts))])
  writer.writerows(_rows(counts))
  return text.getvalue()


def label_markdown(counts: Counts) -> str:
  """The counts as a Markdown table; lines and columns as in `label_csv`.

  Args:
    counts: From `label_counts`.

  Returns:
    Text of one line per client after two header lines.

  >>> print(label_markdown({"ann": {0: 3, 1: 1}}), end="")
  | client | examples | majority | 0 | 1 |
  |---|---:|---:|---:|---:|
  | ann | 4 | 0.7500 | 3 | 1 |
  """
  classes = _classes(counts)
  lines = [
    f'| {" | ".join(["client", "examples", "majority", *map(str, classes)])} |',
    f'|---|{"---:|" * (2 + len(classes))}',
  ]
  for key, size, share, *numbers in _rows(counts):
    escaped = str(key).replace('|', '\\|')
    share = f'{share:.4f}' if share != '' else share
    lines.append(f'| {" | ".join(map(str, [escaped, size, share, *numbers]))} |')
  return '\n'.join(lines) + '\n'


_LEADING = ('client_id', 'num_examples', 'majority_share')


def _classes(counts: Counts) -> list[int]:
  return sorted({c for row in counts.values() for c in row})


def _rows(counts: Counts) -> list[list]:
  classes = _classes(counts)
  rows: list[list] = []
  for key, row in counts.items():
    numbers = [row.get(c, 0) for c in classes]
    size = sum(numbers)
    rows.append([key, size, max(numbers) / size if size else '', *numbers])
  return rows


def _guess_right(train: Mapping[int, int], test: Mapping[int, int]) -> float:
  size = sum(test.values())
  if not size or not sum(train.values()):
    return float('nan')
  # Of equal counts the lowest class, whatever the order of the mapping.
  guess = min(train, key=lambda c: (-train[c], c))
  return test.get(guess, 0) / size
