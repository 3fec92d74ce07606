"""APPLE's tables: methods, numbers of downloads, and who holds which classes."""

from collections.abc import Mapping, Sequence

import apple_measures
import apple_methods
import numpy as np
import study_measures
import study_reports
from apple_methods import METHODS, REFERENCE, Method
from apple_setting import Setting, apple, limited_name

from tffpers import datasets, plots, simulation

Results = Sequence[simulation.Result]

_WAYS = ('up', 'down')
_BEST = 'BMCTA (selected on test data)'
_EXPLAINED = (
  'Mean over clients, each counting alike, of their test accuracy in %, of the evaluated rounds: '
  'BMCTA is that of the best one, selected on test data and so optimistic; beside it that of '
  'the round that is best on validation data, and the last. Mean over seeds ± standard deviation '
  'over seeds. Models are those that a client sends and receives in a round; bytes are of all '
  'clients, per round.'
)


def methods(setting: Setting) -> None:
  """The table of all methods with BMCTA, and their learning curves."""
  found = {name: [_result(setting, name, seed) for seed in setting.seeds] for name in setting.runs}
  present = {label: method for label, method in METHODS.items() if method.run in found}
  note = (
    f'{_EXPLAINED} FedAvg and FedProx: the server’s model; -FT: it fine-tuned on the client, the '
    'round chosen by the validation accuracy of the clients’ models after local training. Ahead '
    f'of {REFERENCE}: the round from which on a method’s best accuracy so far is at least that '
    'of the other, seed by seed, – where it is behind at the end.'
  )
  _report(setting, 'methods', note, 'method', {k: (found[m.run], m) for k, m in present.items()})


def downloads(setting: Setting, numbers: Sequence[int]) -> None:
  """The table over M, cores that a client downloads in a round, and learning curves.

  Args:
    setting: What is run.
    numbers: Values of M.
  """
  rows = {}
  for number in numbers:
    results = [_limited(setting, number, seed) for seed in setting.seeds]
    rows[str(number)] = results, METHODS['APPLE']
  note = f'APPLE that downloads M of the others’ cores in a round. {_EXPLAINED}'
  _report(setting, 'downloads', note, 'M', rows)


def labels(setting: Setting) -> None:
  """Who holds which classes: a table, and classes by clients as a picture."""
  seed = setting.seeds[0]
  data = setting.data(seed)
  train, test = datasets.label_counts(data.train), datasets.label_counts(data.test)
  guessed = datasets.majority_accuracy(train, test)
  rows = [
    {
      'client': key,
      'training examples': data.train.num_examples(key),
      'validation examples': data.validation.num_examples(key) if data.validation else 0,
      'test examples': data.test.num_examples(key),
      'test accuracy of its commonest class, %': 100 * guessed[key],
      **{f'class {c}': number for c, number in counts.items()},
    }
    for key, counts in train.items()
  ]
  note = f'Training examples of each class at each client, of which labels.png is the picture; seed {seed}.'
  study_reports.write_table(setting.folder, 'labels', rows, setting.caption(note))
  plots.label_counts(train, setting.folder / 'labels.png')


def _result(setting: Setting, name: str, seed: int) -> simulation.Result:
  print(f'{name}, seed {seed}', flush=True)
  if name == 'apple':
    return apple(setting, seed).result
  folder = name
  if name == 'fed_fomo':
    folder = limited_name(name, setting.values.max_downloads, setting, seed)
  return setting.run(folder, seed, setting.build(name, seed))


def _limited(setting: Setting, max_downloads: int, seed: int) -> simulation.Result:
  name = limited_name('apple', max_downloads, setting, seed)
  print(f'{name}, seed {seed}', flush=True)
  if name == limited_name('apple', setting.values.max_downloads, setting, seed):
    return apple(setting, seed).result
  number = apple_methods.num_downloads(max_downloads, len(setting.data(seed).train))
  return setting.run(name, seed, setting.build('apple', seed, max_downloads=number))


def _report(
  setting: Setting, study: str, note: str, column: str, found: Mapping[str, tuple[Results, Method]]
) -> None:
  """Writes the table and the learning curves of results by label."""
  reference = found.get(REFERENCE)
  rows = [
    {column: label}
    | row(results, method)
    | (ahead(results, method, *reference) if reference else {})
    | communication(results)
    for label, (results, method) in found.items()
  ]
  study_reports.write_table(setting.folder, study, rows, setting.caption(note))
  drawn = found if column == 'method' else {f'{column} = {k}': v for k, v in found.items()}
  _draw(setting, study, drawn)


def _draw(setting: Setting, study: str, found: Mapping[str, tuple[Results, Method]]) -> None:
  """Learning curves of results by label, with a band where there are several seeds."""
  panel, several = 'mean client test accuracy, %', len(setting.seeds) > 1
  lines, bands = {}, {}
  for label, (results, method) in found.items():
    x = study_measures.column(results[0].history, 'round')
    y = [100 * apple_measures.accuracy(r.history, method.measured) for r in results]
    mean = np.mean(y, 0)
    lines[label] = x, mean
    if several:
      spread = np.std(y, 0, ddof=1)
      bands[label] = mean - spread, mean + spread
  note = f'{panel.capitalize()}, over rounds; mean of the seeds ± deviation over seeds.'
  study_reports.draw(
    setting.folder,
    study,
    {panel: lines},
    setting.caption(note),
    xlabel='round',
    bands={panel: bands},
  )


def row(results: Results, method: Method) -> dict[str, str]:
  """BMCTA and what stands beside it.

  Args:
    results: A run for each seed.
    method: Which of its models.
  """
  histories = [result.history for result in results]
  best = [apple_measures.bmcta(history, method.measured) for history in histories]
  cells = {_BEST: _percent([b[0] for b in best]), 'its round': _joined([b[1] for b in best])}
  validated = [
    apple_measures.at_validated(history, method.measured, method.chosen_by) for history in histories
  ]
  if all(validated):
    cells['at the round chosen on validation data'] = _percent([v[0] for v in validated if v])
    cells['that round'] = _joined([v[1] for v in validated if v])

  def last(statistic: str) -> str:
    return _percent([h[-1][f'{method.measured}_accuracy_{statistic}'] for h in histories])

  return cells | {'last round': last('mean'), 'deviation over clients, last round': last('std')}


def ahead(results: Results, method: Method, others: Results, other: Method) -> dict[str, str]:
  """Since when a method is ahead of another one, seed by seed."""
  rounds = [
    apple_measures.ahead_from(
      result.history,
      apple_measures.accuracy(result.history, method.measured),
      apple_measures.accuracy(rival.history, other.measured),
    )
    for result, rival in zip(results, others, strict=True)
  ]
  same = results is others and method == other
  return {f'ahead of {REFERENCE} from round': '' if same else _joined(rounds)}


def communication(results: Results) -> dict[str, str]:
  """Models per client and round, and bytes of a round, up and down.

  Args:
    results: A run for each seed; they send alike, and all clients take part in every round.
  """
  summary = results[0].summary
  clients = summary['num_clients']
  return {
    **{f'models {way}': f'{summary[f"models_{way}_per_round"] / clients:.2f}' for way in _WAYS},
    **{f'bytes {way}': f'{summary[f"bytes_{way}_per_round"]:.0f}' for way in _WAYS},
  }


def _percent(values: Sequence[float]) -> str:
  spread = f' ± {100 * np.std(values, ddof=1):.2f}' if len(values) > 1 else ''
  return f'{100 * np.mean(values):.2f}{spread}'


def _joined(values: Sequence[int | None]) -> str:
  return ' / '.join('–' if value is None else str(value) for value in values)
