"""Where the state of a client comes from."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tffpers.simulation import population as population_lib
from tffpers.simulation import store as store_lib


@dataclasses.dataclass(frozen=True)
class States:
  """The clients' states at one moment; read only.

  Attributes:
    population: All clients.
    store: States after the last committed round.
    server: The server's state.
    fresh: Newer states, by id, that are not committed yet.
  """

  population: population_lib.Population
  store: store_lib.Store
  server: Any
  fresh: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def of(self, client_ids: Sequence[str]) -> list[Any]:
    """States of these clients; one that never took part gets its initial one, not stored."""
    found = {
      key: self.fresh[key] if key in self.fresh else self.store.client_state(key)
      for key in client_ids
    }
    new = [key for key, state in found.items() if state is None]
    if new:
      infos = [self.population.info(key) for key in new]
      initial = self.population.process.initialize_client(self.server, infos)
      found.update(zip(new, initial, strict=True))
    return list(found.values())
