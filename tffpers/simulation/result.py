"""What a run gives back."""

import dataclasses
from typing import Any

from tffpers.simulation import codec
from tffpers.simulation import history as history_lib
from tffpers.simulation import population as population_lib
from tffpers.simulation import store as store_lib


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
  """What a run gives back.

  Attributes:
    history: One row of numbers by name per evaluated round, as in `metrics.csv`.
    clients: One row per client by id, as in `clients.csv`.
    server_state: The server's last state.
    summary: As in `summary.json`.
    store: Where the clients' states are.
    client_history: By client id a row for each of its rounds, with `round` and the metrics
      that `simulation.run(client_history=…)` names; vectors as `name/0`, `name/1`, ….
  """

  history: tuple[history_lib.Row, ...]
  clients: dict[str, history_lib.Row]
  server_state: Any
  summary: dict[str, Any]
  store: store_lib.Store
  client_history: dict[str, list[history_lib.Row]] = dataclasses.field(default_factory=dict)

  @property
  def trained_clients(self) -> list[str]:
    """Ids of the clients that took part in a round, sorted."""
    return self.store.client_ids()

  def client_state(self, client_id: str) -> Any:
    """A client's state after its last round.

    Raises:
      KeyError: The client never took part, so there is nothing to remember.
    """
    state = self.store.client_state(client_id)
    if state is None:
      raise KeyError(f'The client never took part. Received: client_id={client_id!r}')
    return state


def client_table(
  population: population_lib.Population, progress: store_lib.Progress
) -> dict[str, history_lib.Row]:
  """One row per client, by id.

  Args:
    population: The clients.
    progress: With what is known of each.

  Returns:
    Rows of `client_id`, `num_train`, `num_test`, the numbers of `rounds` it took part
    in, in which its result was not finite (`nonfinite`) and in which it failed
    (`skipped`), `majority_share` of its test targets (None where they are no classes),
    and its results at the last evaluated round, NaN where it has no test data.
  """
  names = [x.path for x in codec.leaves(population.process.evaluate.type_signature.result)]
  records = progress.records.values()
  told: dict[str, Any] = next((r['personalized'] for r in records if r.get('personalized')), {})
  table = {}
  for key in population.client_ids:
    record = progress.records.get(key, {})
    measured = record.get('evaluation', {})
    personalized = record.get('personalized', {})
    table[key] = {
      'client_id': key,
      'num_train': population.size('train', key),
      'num_test': population.size('test', key),
      **{name: record.get(name, 0) for name in ('rounds', 'nonfinite', 'skipped')},
      'majority_share': record.get('majority_share'),
      **{_column(name): measured.get(name, float('nan')) for name in names},
      **{_personalized_column(name): personalized.get(name, float('nan')) for name in told},
    }
  return table


def _personalized_column(path: str) -> str:
  own = path.startswith('personalize/')
  return _column(path if own else f'personalized/{path}')


def _column(path: str) -> str:
  return path.replace('/', '_')
