"""The one interface that every algorithm of tffpers returns."""

import dataclasses

import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True)
class PersonalizedProcess:
  """A personalised federated algorithm as TFF computations.

  Client state is an argument and a result at CLIENTS. It is never SERVER-placed:
  whoever drives the process stores it, client by client.

  Attributes:
    initialize: `seed@SERVER -> server_state@SERVER`; seed is int32[2].
    initialize_client: `(server_state@SERVER, client_info@CLIENTS) ->
      client_state@CLIENTS`; client_info is `ClientInfo`. The result is the same
      whenever it is called: a client that enters late gets what it would have had
      at the start.
    next: `(server_state@SERVER, client_states@CLIENTS, client_data@CLIENTS) ->
      (server_state@SERVER, client_states@CLIENTS, metrics@SERVER,
      client_metrics@CLIENTS)`. metrics@SERVER are functions of what clients
      declare to send; losses and accuracies stay in client_metrics.
    evaluate: `(server_state@SERVER, client_states@CLIENTS, client_data@CLIENTS) ->
      client_metrics@CLIENTS`, a mapping with `server` (the server's model on the
      client's data; absent where the server has no whole model) and `client` (the
      client's own model). Changes no state.
    personalize: Optional `(server_state@SERVER, client_states@CLIENTS,
      client_data@CLIENTS) -> (client_states@CLIENTS, client_metrics@CLIENTS)`:
      fine-tuning and the like.
    report: Optional `server_state@SERVER -> metrics@SERVER` for evaluated rounds.
    finished: Optional `server_state@SERVER -> bool@SERVER`: further rounds would change
      nothing, so a run ends.
    evaluation_point: Whether `evaluate` measures a client's model `before` or
      `after` the local training of its last round.
    hyper_parameters: What the builder was given, for `config.json`.
  """

  initialize: tff.Computation
  initialize_client: tff.Computation
  next: tff.Computation
  evaluate: tff.Computation
  personalize: tff.Computation | None = None
  report: tff.Computation | None = None
  finished: tff.Computation | None = None
  evaluation_point: str = 'after'
  hyper_parameters: dict[str, object] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    server, client = self.server_state_type, self.client_state_type
    if server.placement is not tff.SERVER or client.placement is not tff.CLIENTS:
      raise TypeError(
        'A process needs server state at SERVER and client state at CLIENTS. '
        f'Received: server state {server}, client state {client}'
      )
    self._check_next(server, client)
    states = self.evaluate.type_signature.parameter
    server.check_assignable_from(states[0])
    client.check_assignable_from(states[1])

  def _check_next(self, server: tff.FederatedType, client: tff.FederatedType) -> None:
    parameter, result = self.next.type_signature.parameter, self.next.type_signature.result
    placements = [x.placement for x in result]
    if placements != [tff.SERVER, tff.CLIENTS, tff.SERVER, tff.CLIENTS]:
      raise TypeError(
        'next must return (server state, client states, metrics, client metrics) placed at '
        f'server, clients, server, clients. Received: placements={placements}'
      )
    for name, state, before, after in (
      ('server', server, parameter[0], result[0]),
      ('client', client, parameter[1], result[1]),
    ):
      if not (before.is_assignable_from(state) and before.is_assignable_from(after)):
        raise TypeError(
          f'next must map the {name} state to its own type, the one that initialisation gives. '
          f'Expected {state}. Received: before={before}, after={after}'
        )

  @property
  def server_state_type(self) -> tff.FederatedType:
    """Type of the server's state, placed at SERVER."""
    return self.initialize.type_signature.result

  @property
  def client_state_type(self) -> tff.FederatedType:
    """Type of one client's state, placed at CLIENTS."""
    return self.initialize_client.type_signature.result
