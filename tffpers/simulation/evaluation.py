"""Every client's result, whether it ever took part or not."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tffpers.simulation import codec
from tffpers.simulation import states as states_lib

Results = dict[str, dict[str, int | float]]

_CHUNK_CLIENTS, _CHUNK_BYTES = 64, 256 << 20


def evaluate(states: states_lib.States, dataset: str, *, personalized: bool = False) -> Results:
  """Evaluates all clients that have data, chunk by chunk; changes nothing.

  Args:
    states: The clients and their states.
    dataset: `test` or `validation`.
    personalized: Whether the clients first run the process's `personalize`, for which
      they need training data.

  Returns:
    By client id: numbers by path, such as `client/accuracy`; those that `personalize` itself
    tells are `personalize/<name>`. The seed depends on the run's seed and the client only,
    so evaluating twice gives the same numbers.
  """
  process = states.population.process
  results: Results = {}
  for chunk in _chunks(states.population.with_data(dataset), process.client_state_type):
    data = states.population.data(process.evaluate, chunk, ('evaluate',), {'test': dataset})
    current = dict(zip(data, states.of(list(data)), strict=True))
    told: Results = {}
    if personalized:
      current, told = _personalize(states, current)
    if current:
      values = process.evaluate(
        states.server, list(current.values()), [data[key] for key in current]
      )
      results.update(
        (key, codec.scalars(value, process.evaluate.type_signature.result) | told.get(key, {}))
        for key, value in zip(current, values, strict=True)
      )
  return results


def _personalize(
  states: states_lib.States, current: dict[str, Any]
) -> tuple[dict[str, Any], Results]:
  """The clients' states after `personalize`, and what it tells of each."""
  population = states.population
  compute = population.process.personalize
  assert compute is not None, 'the process has no personalize'
  # Clients without training data too: the same clients as in the evaluation before it.
  data = population.data(compute, current, ('personalize',))
  if not data:
    return {}, {}
  new, metrics = compute(states.server, [current[key] for key in data], list(data.values()))
  metrics_type = compute.type_signature.result[1]
  told = {
    key: {f'personalize/{name}': n for name, n in codec.scalars(value, metrics_type).items()}
    for key, value in zip(data, metrics, strict=True)
  }
  return dict(zip(data, new, strict=True)), told


def _chunks(keys: list[str], state_type: tff.Type) -> Iterator[list[str]]:
  state_bytes = sum(
    leaf.dtype.itemsize * int(np.prod([size or 1 for size in leaf.shape or ()]))
    for leaf in codec.leaves(state_type)
  )
  size = max(1, min(_CHUNK_CLIENTS, _CHUNK_BYTES // max(state_bytes, 1)))
  for start in range(0, len(keys), size):
    yield keys[start : start + size]
