"""What becomes of APPLE's directed relationships: trajectories, heat maps, likeness, pull."""

from collections.abc import Mapping, Sequence
from typing import Any

import apple_measures
import numpy as np
import study_reports
from apple_setting import Followed, Setting, apple
from matplotlib import figure as figure_lib
from matplotlib.backends import backend_agg

from tffpers import datasets

Lines = dict[str, tuple[np.ndarray, np.ndarray]]

_MAPS = 6
_INCHES = 3.0


def relations(setting: Setting, mus: Sequence[float]) -> None:
  """Tables and figures of the relations.

  Args:
    setting: What is run.
    mus: Values of μ of which the distance from p_0 is compared.
  """
  print(f'relations, seed {setting.seeds[0]}', flush=True)
  _table(setting)
  first = setting.seeds[0]
  counts = datasets.label_counts(setting.data(first).train)
  _trajectories(setting, apple(setting, first), counts)
  _heat_maps(setting, apple(setting, first), list(counts))
  pull(setting, mus)


def rows(
  seed: int, counts: Mapping[str, Mapping[int, int]], matrix: np.ndarray, start: np.ndarray
) -> list[dict[str, Any]]:
  """What a client's relations are at the end, a row for each client and one for all.

  Args:
    seed: For the rows.
    counts: Training examples of each class by client.
    matrix: P, [N, N].
    start: p_0, [N].
  """
  everywhere, by_client = apple_measures.rank_correlations(
    matrix, apple_measures.label_cosines(counts)
  )
  holds, own = apple_measures.most_of(counts), apple_measures.own_is_largest(matrix)
  found = []
  for i, key in enumerate(counts):
    strongest = int(np.argmax(np.where(np.arange(len(matrix)) == i, -1, np.abs(matrix[i]))))
    found.append(
      {
        'seed': seed,
        'client': key,
        'training examples': sum(counts[key].values()),
        'holds most of classes': ' '.join(map(str, holds[i])),
        'p_0i': float(start[i]),
        'p_ii': float(matrix[i, i]),
        'largest other p_ij': float(matrix[i, strongest]),
        'its j': list(counts)[strongest],
        'own is largest': 'yes' if own[i] else 'no',
        'rank correlation': by_client[i],
      }
    )
  holders = np.array([bool(classes) for classes in holds])
  found.append(
    {
      'seed': seed,
      'client': 'all',
      'own is largest': (
        f'{own[holders].sum()} of {holders.sum()} that hold most of a class, '
        f'{own[~holders].sum()} of {(~holders).sum()} others'
      ),
      'rank correlation': everywhere,
    }
  )
  return found


def pull(setting: Setting, mus: Sequence[float]) -> None:
  """‖P − P_0‖ (Frobenius) at round L for some μ, on the same seeds; table and figure.

  Args:
    setting: What is run.
    mus: Values of μ, increasing.
  """
  length = max(1, round(setting.values.schedule_ratio * setting.values.rounds))
  found: list[tuple[float, np.ndarray, str]] = []
  lines: Lines = {}
  for mu in mus:
    runs = [_until(setting, mu, seed, length) for seed in setting.seeds]
    distances = np.array([distance(run.relations) for run in runs])
    lines[f'μ = {mu:g}'] = runs[0].rounds, distances.mean(0)
    last = distances[:, -1]
    below = ('yes' if all(last < found[-1][1]) else 'no') if found else ''
    found.append((mu, last, below))
  table = [
    {
      'μ': f'{mu:g}',
      '‖P − P_0‖, mean over seeds': float(last.mean()),
      'seed by seed': ' / '.join(f'{value:.5g}' for value in last),
      'below the row above on every seed': below,
    }
    for mu, last, below in found
  ]
  note = f'‖P − P_0‖ (Frobenius) after L = {length} rounds, when λ has come to 0.'
  caption = setting.caption(note)
  study_reports.write_table(setting.folder, 'relations_mu', table, caption)
  study_reports.draw(setting.folder, 'relations_mu', {'‖P − P_0‖': lines}, caption, xlabel='round')


def distance(matrices: np.ndarray) -> np.ndarray:
  """‖P − P_0‖ (Frobenius) of each P, [T], where the first of [T, N, N] is P_0."""
  return np.linalg.norm(matrices - matrices[0], axis=(1, 2))


def _until(setting: Setting, mu: float, seed: int, length: int) -> Followed:
  print(f'relations until round {length}: mu = {mu:g}, seed {seed}', flush=True)
  built = setting.build('apple', seed, mu=mu)
  return setting.follow(f'until_{length}_mu{mu:g}', seed, built, length, 1)


def _table(setting: Setting) -> None:
  found = []
  for seed in setting.seeds:
    followed = apple(setting, seed)
    counts = datasets.label_counts(setting.data(seed).train)
    found += rows(seed, counts, followed.relations[-1], followed.relations[0, 0])
  note = (
    'Directed relationships after the last round. Holds most of: has more than half of all '
    'training examples of. Own is largest: |p_ii| among all |p_ij|. Rank correlation: Spearman’s, '
    'of |p_ij| with the cosine of the label histograms of i and j, over j ≠ i; in the rows “all” '
    'over all pairs.'
  )
  study_reports.write_table(setting.folder, 'relations', found, setting.caption(note))


def _trajectories(
  setting: Setting, followed: Followed, counts: Mapping[str, Mapping[int, int]]
) -> None:
  """p_1j and p_ii over rounds, and the rank correlation with likeness of labels."""
  rounds, matrices = followed.rounds, followed.relations
  keys = list(counts)
  own: Lines = {f'i = {key}': (rounds, matrices[:, i, i]) for i, key in enumerate(keys)}
  first: Lines = {f'j = {key}': (rounds, matrices[:, 0, j]) for j, key in enumerate(keys)}
  cosines = apple_measures.label_cosines(counts)
  likeness = [apple_measures.rank_correlations(matrix, cosines)[0] for matrix in matrices]
  panels = {
    f'p_1j, of client {keys[0]}': first,
    'p_ii': own,
    'rank correlation of |p_ij|, j ≠ i, with label cosine': {
      'all pairs': (rounds, np.array(likeness))
    },
  }
  note = f'Directed relationships over rounds, seed {setting.seeds[0]}.'
  study_reports.draw(setting.folder, 'relations', panels, setting.caption(note), xlabel='round')


def _heat_maps(setting: Setting, followed: Followed, keys: Sequence[str]) -> None:
  """P at some rounds, client i's p_i in row i; one scale for all."""
  last = len(followed.rounds) - 1
  shown = np.unique(np.linspace(0, last, min(_MAPS, last + 1)).round().astype(int))
  figure = figure_lib.Figure(figsize=(_INCHES * len(shown), _INCHES + 1.2), layout='constrained')
  backend_agg.FigureCanvasAgg(figure)
  panels = figure.subplots(1, len(shown), squeeze=False)[0]
  largest = np.abs(followed.relations).max()
  for axes, position in zip(panels, shown, strict=True):
    image = axes.imshow(followed.relations[position], 'RdBu', vmin=-largest, vmax=largest)
    axes.set(title=f'round {followed.rounds[position]}', xlabel='j', ylabel='client i')
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_ticks(range(len(keys)), labels=keys, fontsize=6)
  figure.colorbar(image, ax=panels.tolist(), label='p_ij')
  note = f'Directed relationships P over rounds, seed {setting.seeds[0]}; blue is positive.'
  study_reports.put_caption(figure, setting.caption(note), 45 * len(shown))
  figure.savefig(setting.folder / 'relations_maps.png', format='png', dpi=120)
