"""One round of training."""

import warnings
from typing import Any, NamedTuple

from tffpers.simulation import codec, history
from tffpers.simulation import population as population_lib
from tffpers.simulation import states as states_lib


class Outcome(NamedTuple):
  """What a round changed and measured.

  Attributes:
    server: The server's next state.
    client_states: Next states of the clients that took part, by id.
    client_metrics: Their numbers by id.
    server_metrics: The server's numbers; None if no client took part.
    skipped: Ids of the clients that were sampled and failed.
  """

  server: Any
  client_states: dict[str, Any]
  client_metrics: dict[str, dict[str, int | float]]
  server_metrics: dict[str, int | float] | None
  skipped: list[str]


def play(before: states_lib.States, client_ids: list[str], round_number: int) -> Outcome:
  """Trains the sampled clients; reads their states and writes nothing.

  Args:
    before: The clients and all states.
    client_ids: The round's clients.
    round_number: Counted from 1.

  Raises:
    ClientError: A client failed and failures are not skipped. Only a runtime that
      says which client's work failed lets that client be skipped.
  """
  population, server = before.population, before.server
  data = population.data(population.process.next, client_ids, ('train', round_number))
  outcome = None
  while data and outcome is None:
    states = before.of(list(data))
    try:
      outcome = population.process.next(server, states, list(data.values()))
    except Exception as error:
      if not hasattr(error, 'position'):
        raise
      _drop(population, data, list(data)[error.position], error)
  skipped = [key for key in client_ids if key not in data]
  if outcome is None:
    result = Outcome(server, {}, {}, None, skipped)
  else:
    result = _outcome(population, outcome, list(data), skipped)
  _warn(result, round_number)
  return result


def _drop(population, data: dict[str, Any], client_id: str, error: Exception) -> None:
  named = population_lib.ClientError(f'The training of client {client_id!r} failed: {error}')
  if not population.skip_failures:
    raise named from error
  warnings.warn(f'Left out: {named}', RuntimeWarning, stacklevel=3)
  del data[client_id]


def _outcome(population, outcome: Any, client_ids: list[str], skipped: list[str]) -> Outcome:
  server, states, server_metrics, client_metrics = outcome
  result_type = population.process.next.type_signature.result
  numbers = [codec.scalars(value, result_type[3]) for value in client_metrics]
  return Outcome(
    server,
    dict(zip(client_ids, states, strict=True)),
    dict(zip(client_ids, numbers, strict=True)),
    codec.scalars(server_metrics, result_type[2]),
    skipped,
  )


def _warn(outcome: Outcome, round_number: int) -> None:
  nonfinite = [key for key, numbers in outcome.client_metrics.items() if numbers.get('nonfinite')]
  if nonfinite:
    warnings.warn(
      f'Round {round_number}: results that are not finite were left out, of clients {nonfinite}',
      RuntimeWarning,
      stacklevel=3,
    )
  if not any(map(history.example_weight, outcome.client_metrics.values())):
    warnings.warn(
      f'Round {round_number}: no client had a result that counts, so it changed nothing',
      RuntimeWarning,
      stacklevel=3,
    )
