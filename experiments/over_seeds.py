"""Mean and standard deviation over seeds of runs that scripts left in folders.

  python experiments/over_seeds.py runs/mnist_1 runs/mnist_2 runs/mnist_3

Each folder is the --output_dir of one seed, with a subfolder for each method. Prints a
Markdown table of the last evaluated round: S is the server's model on all clients' test
data, MT each client's own on its own, weighted by test size.
"""

import csv
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

COLUMNS = {
  'S accuracy': 'server_accuracy',
  'MT accuracy': 'clients_accuracy_weighted',
  'S NLL': 'server_nll',
  'MT NLL': 'clients_nll_weighted',
  'S ECE': 'server_ece',
  'MT ECE': 'clients_ece_weighted',
  'σ 95th / 5th percentile': None,
}
Row = Mapping[str, str]


def last_row(folder: pathlib.Path) -> Row:
  """The last row of a run's `metrics.csv` that was evaluated."""
  with open(folder / 'metrics.csv', encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  if not rows:
    sys.exit(f'{folder} has no evaluated round yet.')
  return rows[-1]


def value(row: Row, name: str) -> float:
  """One number of a row, NaN where it has not got it."""
  column = COLUMNS[name]
  if column is None:
    high, low = (float(row.get(f'report_sigma_p{q}') or 'nan') for q in (95, 5))
    return high / low
  return float(row.get(column) or 'nan')


def cell(values: Sequence[float]) -> str:
  """Mean ± standard deviation (divisor n − 1) to four digits; empty for NaN."""
  if np.isnan(values).any():
    return ''
  spread = f' ± {np.std(values, ddof=1):.4f}' if len(values) > 1 else ''
  return f'{np.mean(values):.4f}{spread}'


def table(folders: Sequence[pathlib.Path]) -> str:
  """The table of all methods that every folder has."""
  found = [{path.parent.name for path in folder.glob('*/metrics.csv')} for folder in folders]
  methods = sorted(set.intersection(*found))
  if not methods:
    sys.exit(f'No method has a run in each of {", ".join(map(str, folders))}.')
  lines = [['method', 'round', 'seeds', *COLUMNS], ['---'] * (3 + len(COLUMNS))]
  for method in methods:
    rows = [last_row(folder / method) for folder in folders]
    rounds = '/'.join(dict.fromkeys(row['round'] for row in rows))
    cells = [cell([value(row, name) for row in rows]) for name in COLUMNS]
    lines.append([method, rounds, str(len(rows)), *cells])
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


if __name__ == '__main__':
  if len(sys.argv) < 2:
    sys.exit(__doc__)
  print(table([pathlib.Path(argument) for argument in sys.argv[1:]]))
