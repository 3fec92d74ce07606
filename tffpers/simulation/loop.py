"""The loop of a run: start or continue, train, evaluate, commit, report."""

import contextlib
import dataclasses
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import tqdm

from tffpers import metrics, seeds
from tffpers.simulation import evaluation, reports, sampling, settings
from tffpers.simulation import history as history_lib
from tffpers.simulation import population as population_lib
from tffpers.simulation import records as records_lib
from tffpers.simulation import result as result_lib
from tffpers.simulation import rounds as rounds_lib
from tffpers.simulation import states as states_lib
from tffpers.simulation import store as store_lib
from tffpers.simulation import summary as summary_lib


class _Position(NamedTuple):
  """Where a run is: what was measured, the server's state, and whether the run is to end."""

  progress: store_lib.Progress
  server: Any
  ended: bool


@dataclasses.dataclass(frozen=True)
class Run:
  """One run.

  Attributes:
    population: The clients and the process.
    store: Open; states and progress.
    folder: For reports; None writes none.
    config: From `settings.describe`.
    sample_fn: From the number of a round to its clients.
    client_history: Names of the clients' training metrics to keep for every round.
  """

  population: population_lib.Population
  store: store_lib.Store
  folder: pathlib.Path | None
  config: dict[str, Any]
  sample_fn: sampling.SampleFn
  client_history: tuple[str, ...] = ()

  def finish(self, progress_bar: bool) -> result_lib.Result:
    """Plays the rounds that are missing; reports also if that is interrupted."""
    position = self._start()
    if self._needs_work(position):
      self._describe()
      try:
        for latest in self._rounds(position, progress_bar):
          position = latest
      except BaseException:
        with contextlib.suppress(OSError):  # Such as the full disk that caused it.
          self._report(position.progress)
        raise
      self._report(position.progress)
    return result_lib.Result(
      position.progress.history,
      self._table(position.progress),
      position.server,
      self._summary(position.progress),
      self.store,
      {
        key: record['history']
        for key, record in position.progress.records.items()
        if 'history' in record
      },
    )

  def _start(self) -> _Position:
    """The position to continue from: the store's, or a new one that is put there."""
    before, last = self.store.config(), self.config['rounds']
    if before is None:
      server = self.population.process.initialize(seeds.derive(self.population.seed, 'server'))
      self.store.create(self.config, server)
    else:
      settings.check_same(before, self.config)
    # Read back even when new: a resumed run must not differ from this one in anything.
    progress, server = self.store.progress(), self.store.server_state()
    if progress.round > last:
      raise ValueError(f'The run has {progress.round} rounds already. Received: rounds={last}')
    ended = self._ends(progress.round, server)
    if not ended:
      # An earlier, shorter run evaluated its own last round.
      self.store.drop_rows(r['round'] for r in progress.history if r['round'] % self._every)
      progress = self.store.progress()
    return _Position(progress, server, ended)

  def _needs_work(self, position: _Position) -> bool:
    if not position.ended:
      return True
    finished = position.progress.round
    return self.folder is not None and reports.finished_rounds(self.folder) != finished

  def _ends(self, number: int, server: Any) -> bool:
    finished = self.population.process.finished
    return number == self.config['rounds'] or (finished is not None and bool(finished(server)))

  @property
  def _every(self) -> int:
    return self.config['evaluate_every']

  def _describe(self) -> None:
    self.store.put_config(self.config)
    if self.folder:
      reports.write_json(self.folder / 'config.json', self.config)

  def _rounds(self, position: _Position, progress_bar: bool) -> Iterator[_Position]:
    last = self.config['rounds']
    events = self.folder and reports.Events(self.folder, position.progress.history)
    with tqdm.tqdm(
      total=last,
      initial=position.progress.round,
      unit='round',
      file=sys.stderr,
      disable=not progress_bar,
    ) as bar:
      while not position.ended:
        rows = len(position.progress.history)
        position = self._round(position)
        yield position
        for row in position.progress.history[rows:]:
          bar.set_postfix_str(_postfix(row), refresh=False)
          if events:
            events.release(row)
          if not position.ended:
            self._write(position.progress)
        bar.update()

  def _personalizes_often(self, number: int) -> bool:
    """Whether the round's row has the columns, whether or not it is the last: a run that is
    continued later would have them in the middle."""
    every = self.config['personalize_every']
    return every is not None and number % every == 0

  def _round(self, position: _Position) -> _Position:
    before, server, _ = position
    number = before.round + 1
    started = time.perf_counter()
    outcome = rounds_lib.play(
      states_lib.States(self.population, self.store, server), list(self.sample_fn(number)), number
    )
    seconds = time.perf_counter() - started
    progress = records_lib.after_round(before, outcome, seconds, self.client_history)
    ended = self._ends(number, outcome.server)
    if ended or number % self._every == 0:
      progress = self._evaluated(progress, outcome, ended)
    self.store.commit(progress, before, outcome.server, outcome.client_states)
    return _Position(progress, outcome.server, ended)

  def _evaluated(
    self, progress: store_lib.Progress, outcome: rounds_lib.Outcome, ended: bool
  ) -> store_lib.Progress:
    """With the round's row of the history and the clients' results in their records."""
    process, datasets = self.population.process, self.population.datasets
    # Nothing is committed before it is measured: one transaction holds both.
    states = states_lib.States(self.population, self.store, outcome.server, outcome.client_states)
    row: history_lib.Row = {'round': progress.round}
    results: evaluation.Results = {}
    personalized: evaluation.Results = {}
    if 'test' in datasets:
      results = evaluation.evaluate(states, 'test')
      row |= history_lib.evaluated(results, process)
      often = self._personalizes_often(progress.round)
      if process.personalize is not None and (ended or often):
        personalized = evaluation.evaluate(states, 'test', personalized=True)
        if often:
          columns = history_lib.evaluated(personalized, process)
          row |= {f'personalized_{name}': value for name, value in columns.items()}
    if 'validation' in datasets:
      validated = history_lib.evaluated(evaluation.evaluate(states, 'validation'), process)
      row |= {f'validation_{name}': value for name, value in validated.items()}
    row |= history_lib.trained(process, outcome.client_metrics, outcome.server_metrics)
    row |= {f'total_{name}': progress.totals[name] for name in ('nonfinite', 'skipped')}
    row |= history_lib.reported(process.report, outcome.server)
    records = records_lib.with_results(self.population, progress.records, results, personalized)
    return progress._replace(history=(*progress.history, row), records=records)

  def _report(self, progress: store_lib.Progress) -> None:
    """All files; the summary last, which marks them as complete."""
    if self.folder and progress.history:
      rows = list(self._table(progress).values())
      reports.draw(self.folder, self.config['method'] or 'run', progress.history, rows)
      self._write(progress)

  def _write(self, progress: store_lib.Progress) -> None:
    if self.folder:
      reports.write_tables(
        self.folder, progress.history, self._table(progress).values(), self._summary(progress)
      )

  def _table(self, progress: store_lib.Progress) -> dict[str, history_lib.Row]:
    return result_lib.client_table(self.population, progress)

  def _summary(self, progress: store_lib.Progress) -> dict[str, Any]:
    return summary_lib.summarize(self.config, progress, self.population.process)


def _postfix(row: history_lib.Row) -> str:
  accuracy = metrics.history_accuracy(row)
  columns = {
    'S loss': 'server_loss',
    'S acc': f'server_{accuracy}',
    'MT loss': 'clients_loss_weighted',
    'MT acc': f'clients_{accuracy}_weighted',
  }
  return ', '.join(f'{label} {row[name]:.4f}' for label, name in columns.items() if name in row)
