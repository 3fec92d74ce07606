"""How a study writes its tables (CSV and Markdown) and its figure (PNG)."""

import csv
import io
import math
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from matplotlib import figure as figure_lib
from matplotlib.backends import backend_agg

Row = Mapping[str, Any]
Lines = Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]

_INCHES = 4.5


def write_table(folder: pathlib.Path, name: str, rows: Sequence[Row], caption: str) -> None:
  """Writes `<name>.csv`, its first line the caption after `# `, and `<name>.md`; prints it.

  Args:
    folder: Where; made if need be.
    name: Of the files.
    rows: Cells by column; the columns are those of all rows, in order of appearance.
    caption: One line.
  """
  columns = list(dict.fromkeys(column for row in rows for column in row))
  text = io.StringIO(newline='')
  writer = csv.DictWriter(text, columns, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  lines = [columns, ['---'] * len(columns), *([_cell(row.get(c)) for c in columns] for row in rows)]
  markdown = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
  folder.mkdir(parents=True, exist_ok=True)
  (folder / f'{name}.csv').write_text(f'# {caption}\n{text.getvalue()}', encoding='utf-8')
  (folder / f'{name}.md').write_text(f'{caption}\n\n{markdown}\n', encoding='utf-8')
  print(f'\n{caption}\n\n{markdown}', flush=True)


def read_table(folder: pathlib.Path, name: str) -> tuple[str, list[dict[str, str]]]:
  """Caption and rows of a table that `write_table` wrote; `('', [])` if there is none."""
  path = folder / f'{name}.csv'
  if not path.exists():
    return '', []
  caption, _, text = path.read_text(encoding='utf-8').partition('\n')
  return caption.removeprefix('# '), list(csv.DictReader(io.StringIO(text)))


def draw(
  folder: pathlib.Path,
  name: str,
  panels: Mapping[str, Lines],
  caption: str,
  *,
  xlabel: str,
  xscale: str | Mapping[str, Any] = 'linear',
  bands: Mapping[str, Lines] | None = None,
) -> None:
  """Draws `<name>.png`: lines in panels beside one another, above the caption.

  Args:
    folder: Where; made if need be.
    name: Of the file.
    panels: `(x, y)` by label, by the label of the panel's y axis.
    caption: One line; wrapped.
    xlabel: Label of all x axes.
    xscale: Name of a scale, or arguments of `Axes.set_xscale`.
    bands: `(low, high)` around a line, by panel and label.
  """
  figure = figure_lib.Figure(figsize=(_INCHES * len(panels), _INCHES + 0.5), layout='constrained')
  backend_agg.FigureCanvasAgg(figure)
  scale = {'value': xscale} if isinstance(xscale, str) else xscale
  for position, (ylabel, lines) in enumerate(panels.items(), 1):
    axes = figure.add_subplot(1, len(panels), position, xlabel=xlabel, ylabel=ylabel)
    axes.set_xscale(**scale)
    axes.grid(alpha=0.3)
    for label, (x, y) in lines.items():
      (line,) = axes.plot(x, y, label=label, marker='.' if len(list(x)) < 20 else None)
      if bands and label in bands.get(ylabel, {}):
        axes.fill_between(x, *bands[ylabel][label], color=line.get_color(), alpha=0.15)
    if lines:
      axes.legend(fontsize=7)
  put_caption(figure, caption, 70 * len(panels))
  folder.mkdir(parents=True, exist_ok=True)
  figure.savefig(folder / f'{name}.png', format='png', dpi=120)


def put_caption(figure: figure_lib.Figure, caption: str, columns: int) -> None:
  """Writes what a figure shows below it, in lines of so many characters."""
  wrapped = '\n'.join(textwrap.wrap(caption, columns))
  figure.supxlabel(wrapped, x=0.01, ha='left', fontsize=6)


def _cell(value: Any) -> str:
  if value is None or (isinstance(value, float) and math.isnan(value)):
    return ''
  text = f'{value:.5g}' if isinstance(value, float) else str(value)
  return text.replace('|', chr(92) + '|').replace('\n', ' ')
