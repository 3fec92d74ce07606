"""Pictures of results, as PNG files.

Drawn with matplotlib's object interface on its Agg canvas: no display is needed and
the user's backend, figures and settings stay as they are.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib import axes as axes_lib
from matplotlib import axis as axis_lib
from matplotlib import figure as figure_lib
from matplotlib import ticker
from matplotlib.backends import backend_agg

from tffpers import metrics

Path = str | os.PathLike[str]
History = Sequence[Mapping[str, Any]]

_INCHES = 4.5
# How many names fit beside an axis, and how much of each.
_TICKS = 12
_LETTERS = 16


class Measured(Protocol):
  """What `compare` draws of each method; `tffpers.simulation.Result` has it."""

  @property
  def history(self) -> History: ...

  @property
  def clients(self) -> Mapping[str, Mapping[str, Any]]: ...


def curves(histories: Mapping[str, History], path: Path) -> None:
  """Accuracy and loss over rounds, S dashed and MT solid, one colour per method.

  S is the server's model on all test data, MT each client's own model on its own,
  weighted by test size.

  Args:
    histories: Rows of `Result.history` by method.
    path: PNG file to write.
  """
  figure = _figure(2)
  _draw_accuracy(figure.axes[0], histories)
  _draw_loss(figure.axes[1], histories)
  _save(figure, path)


def clients(values: Mapping[str, npt.ArrayLike], path: Path) -> None:
  """How accuracies are distributed over clients: for each model, clients in rising order.

  Args:
    values: One number per client, [n], by model or method; NaN is left out.
    path: PNG file to write.
  """
  figure = _figure(1)
  _draw_clients(figure.axes[0], values)
  _save(figure, path)


def compare(results: Mapping[str, Measured], path: Path) -> None:
  """Several methods in one picture: accuracy, loss, and the clients' own accuracies.

  Args:
    results: `tffpers.simulation.Result` by method.
    path: PNG file to write.
  """
  figure = _figure(3)
  histories = {name: result.history for name, result in results.items()}
  _draw_accuracy(figure.axes[0], histories)
  _draw_loss(figure.axes[1], histories)
  _draw_clients(
    figure.axes[2], {name: accuracies(result.clients.values()) for name, result in results.items()}
  )
  _save(figure, path)


def label_counts(counts: Mapping[str, Mapping[int, int]], path: Path) -> None:
  """How many examples of each class each client has: classes by clients, the darker the more.

  Args:
    counts: `{client id: {class: examples}}`, from `tffpers.datasets.label_counts`.
    path: PNG file to write.
  """
  classes = sorted({c for row in counts.values() for c in row})
  numbers = np.array([[row.get(c, 0) for row in counts.values()] for c in classes])
  figure = _figure(1)
  axes = figure.axes[0]
  axes.set(xlabel='client', ylabel='class')
  if numbers.size:
    image = axes.imshow(numbers, cmap='Blues', vmin=0, aspect='auto', interpolation='nearest')
    figure.colorbar(image, label='examples')
    _name_ticks(axes.xaxis, list(counts))
    axes.tick_params('x', rotation=90 if max(map(len, counts)) > 3 else 0)
    _name_ticks(axes.yaxis, classes)
  _write(figure, path)


def accuracies(rows: Iterable[Mapping[str, Any]]) -> list[float]:
  rows = list(rows)
  prefix = 'client_'
  accuracy = metrics.accuracy_name(
    name[len(prefix) :] for name in (rows[0] if rows else ()) if name.startswith(prefix)
  )
  return [row[f'{prefix}{accuracy}'] for row in rows] if accuracy else []


def _figure(panels: int) -> figure_lib.Figure:
  figure = figure_lib.Figure(figsize=(_INCHES * panels, _INCHES), layout='constrained')
  backend_agg.FigureCanvasAgg(figure)
  figure.subplots(1, panels)
  return figure


def _save(figure: figure_lib.Figure, path: Path) -> None:
  for axes in figure.axes:
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
      axes.legend()
  _write(figure, path)


def _write(figure: figure_lib.Figure, path: Path) -> None:
  """Writes the file at one stroke: a picture that fails leaves what was there."""
  picture = io.BytesIO()
  figure.savefig(picture, format='png', dpi=120)
  temporary = f'{os.fspath(path)}.{os.getpid()}'
  try:
    with open(temporary, 'wb') as file:
      file.write(picture.getvalue())
    os.replace(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)


def _name_ticks(axis: axis_lib.Axis, names: Sequence[Any]) -> None:
  """Names every position, or some where all would not fit."""
  shown = np.unique(np.linspace(0, len(names) - 1, min(len(names), _TICKS)).round().astype(int))
  axis.set_ticks(shown, labels=[str(names[k])[:_LETTERS] for k in shown])


def _draw_accuracy(axes: axes_lib.Axes, histories: Mapping[str, History]) -> None:
  _over_rounds(axes, 'test accuracy')
  for i, (name, history) in enumerate(histories.items()):
    accuracy = metrics.history_accuracy(history[-1]) if history else None
    columns = {'S': f'server_{accuracy}', 'MT': f'clients_{accuracy}_weighted'}
    _draw_columns(axes, i, name, history, columns)


def _draw_loss(axes: axes_lib.Axes, histories: Mapping[str, History]) -> None:
  _over_rounds(axes, 'test loss')
  for i, (name, history) in enumerate(histories.items()):
    columns = {'S': 'server_loss', 'MT': 'clients_loss_weighted'}
    _draw_columns(axes, i, name, history, columns)


def _over_rounds(axes: axes_lib.Axes, label: str) -> None:
  axes.set(xlabel='round', ylabel=label)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))


def _draw_columns(
  axes: axes_lib.Axes, colour: int, name: str, history: History, columns: Mapping[str, str]
) -> None:
  for label, column in columns.items():
    points = [(row['round'], row[column]) for row in history if column in row]
    if points:
      axes.plot(
        *zip(*points, strict=True),
        label=f'{name} {label}',
        color=f'C{colour % 10}',
        linestyle='--' if label == 'S' else '-',
        marker='.' if len(points) < 20 else None,
      )


def _draw_clients(axes: axes_lib.Axes, values: Mapping[str, npt.ArrayLike]) -> None:
  axes.set(xlabel='share of clients, lowest accuracy first', ylabel='test accuracy of a client')
  for name, column in values.items():
    numbers = np.asarray(column, np.float64)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if numbers.size:
      axes.step(np.linspace(0, 1, numbers.size + 1), [numbers[0], *numbers], label=name)
