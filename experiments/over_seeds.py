"""Mean and standard deviation over seeds of runs that scripts left in folders.

  python experiments/over_seeds.py runs/mnist_1 runs/mnist_2 runs/mnist_3

Each folder is the --output_dir of one seed, with a subfolder for each method. Prints a
Markdown table of the last evaluated round: S is the server's model on all clients' test
data, MT each client's own on its own, weighted by test size. A second table has the
differences between methods seed by seed: methods share clients and splits, so these spread
far less than the values. ECE is that of each client's examples,
averaged, and so above 0 even for perfect probabilities where clients have few.
"""

import csv
import json
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


def check_runs(folders: Sequence[pathlib.Path], method: str) -> None:
  """Ends unless the folders hold different seeds of one experiment."""
  configs = [
    json.loads((folder / method / 'config.json').read_text(encoding='utf-8')) for folder in folders
  ]
  seeds = [config['seed'] for config in configs]
  kinds = {(config['dataset'], config['rounds'], config['clients_per_round']) for config in configs}
  if len(set(seeds)) < len(seeds) or len(kinds) > 1:
    sys.exit(
      'The folders must be different seeds of one experiment. '
      f'Received: seeds {seeds}; data set, rounds and clients per round {sorted(kinds, key=str)}'
    )


def table(folders: Sequence[pathlib.Path]) -> str:
  """The table of all methods that every folder has."""
  for folder in folders:
    if not folder.is_dir():
      sys.exit(f'There is no folder {folder}.')
  found = [{path.parent.name for path in folder.glob('*/metrics.csv')} for folder in folders]
  methods = sorted(set.intersection(*found))
  if not methods:
    sys.exit(f'No method has a run in each of {", ".join(map(str, folders))}.')
  rows = {method: [last_row(folder / method) for folder in folders] for method in methods}
  lines = [['method', 'round', 'seeds', *COLUMNS]]
  differences = [['difference', *COLUMNS]]
  for method in methods:
    check_runs(folders, method)
    values = {name: [value(row, name) for row in rows[method]] for name in COLUMNS}
    rounds = '/'.join(dict.fromkeys(row['round'] for row in rows[method]))
    lines.append([method, rounds, str(len(folders)), *map(cell, values.values())])
    for other in methods[: methods.index(method)]:
      by_seed = [
        np.subtract(values[name], [value(row, name) for row in rows[other]]) for name in COLUMNS
      ]
      differences.append([f'{method} − {other}', *map(cell, by_seed)])
  tables = [lines] if len(methods) == 1 else [lines, differences]
  return '\n\n'.join(map(markdown, tables))


def markdown(lines: Sequence[Sequence[str]]) -> str:
  """A table whose first line is its head."""
  ruled = [lines[0], ['---'] * len(lines[0]), *lines[1:]]
  return '\n'.join(f'| {" | ".join(line)} |' for line in ruled)


if __name__ == '__main__':
  if len(sys.argv) < 2:
    sys.exit(__doc__)
  print(table([pathlib.Path(argument) for argument in sys.argv[1:]]))
