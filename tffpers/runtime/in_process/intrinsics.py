"""TFF's federated and sequence operators, on runtime values.

Means, sums, extremes, the arithmetic operators and the secure operators do not occur
here: TFF rewrites them into those below before a computation is run.
"""

import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tffpers.runtime.in_process import clients as client_threads
from tffpers.runtime.in_process import values

Clients = client_threads.Clients


def build(uri: str, tff_type: tff.Type) -> Callable[[Clients], Any]:
  """The operator named `uri` as a function from a call's clients to its value.

  Raises:
    NotImplementedError: There is no such operator here.
  """
  if uri == 'generic_zero':
    return lambda clients: _zeros(tff_type)
  run = _OPERATORS.get(uri)
  if run is None:
    raise NotImplementedError(
      f'This TFF operator is not known to the in_process runtime; expected one of '
      f'{sorted(_OPERATORS)}. Received: {uri!r}'
    )
  return lambda clients: lambda arg: run(clients, tff_type, arg)


def _zeros(tff_type: tff.Type) -> Any:
  specs = values.tensor_specs(tff_type)
  return values.unflattener(tff_type)(values.zeros(spec) for spec in specs)


def _identity(clients, tff_type, arg):
  return arg


def _everywhere(clients, tff_type, arg):
  return values.Everywhere(arg)


def _eval_at_clients(clients, tff_type, fn):
  return clients.map(fn, [None] * clients.number)


def _eval_at_server(clients, tff_type, fn):
  return fn(None)


def _map(clients, tff_type, arg):
  fn, value = arg
  return clients.map(fn, value)


def _map_all_equal(clients, tff_type, arg):
  fn, value = arg
  return values.Everywhere(fn(value.value))


def _apply(clients, tff_type, arg):
  fn, value = arg
  return fn(value)


def _zip_at_clients(clients, tff_type, arg):
  if tff_type.result.all_equal:
    return values.Everywhere(_pick(arg, lambda value: value.value))
  spread = _pick(arg, clients.spread)
  return [_pick(spread, operator.itemgetter(i)) for i in range(clients.number)]


def _pick(arg: Any, pick: Callable[[Any], Any]) -> Any:
  """Applies `pick` to each placed value of a structure of them (structures are tuples)."""
  return tuple(_pick(item, pick) for item in arg) if isinstance(arg, tuple) else pick(arg)


def _aggregate(clients, tff_type, arg):
  value, total, accumulate, _, report = arg
  # One after another, in client order: floating-point sums depend on the order.
  for position, item in enumerate(clients.spread(value)):
    try:
      total = accumulate((total, item))
    except Exception as error:
      raise client_threads.ClientError(position, clients.number, error) from error
  return report(total)


def _select(clients, tff_type, arg):
  keys, max_key, server_value, fn = arg
  limit, element = int(max_key), tff_type.result.member.element
  slices: dict[int, Any] = {}

  def select(client_keys: tf.Tensor) -> values.Elements:
    for key in client_keys.numpy().tolist():
      if not 0 <= key < limit:
        raise ValueError(f'Keys must be at least 0 and below max_key={limit}. Received: key={key}')
      if key not in slices:
        slices[key] = fn((server_value, tf.constant(key, client_keys.dtype)))
    return values.Elements(element, items=[slices[k] for k in client_keys.numpy().tolist()])

  return clients.map(select, keys)


def _sequence_map(clients, tff_type, arg):
  fn, sequence = arg
  return values.Elements(tff_type.result.element, items=[fn(item) for item in sequence])


def _sequence_reduce(clients, tff_type, arg):
  sequence, total, fn = arg
  for item in sequence:
    total = fn((total, item))
  return total


def _sequence_sum(clients, tff_type, arg):
  flatten, unflatten = values.flattener(tff_type.result), values.unflattener(tff_type.result)
  total = flatten(_zeros(tff_type.result))
  for item in arg:
    total = [a + b for a, b in zip(total, flatten(item), strict=True)]
  return unflatten(iter(total))


_OPERATORS = {
  'federated_aggregate': _aggregate,
  'federated_apply': _apply,
  'federated_broadcast': _everywhere,
  'federated_eval_at_clients': _eval_at_clients,
  'federated_eval_at_server': _eval_at_server,
  'federated_map': _map,
  'federated_map_all_equal': _map_all_equal,
  'federated_select': _select,
  'federated_value_at_clients': _everywhere,
  'federated_value_at_server': _identity,
  'federated_zip_at_clients': _zip_at_clients,
  'federated_zip_at_server': _identity,
  'sequence_map': _sequence_map,
  'sequence_reduce': _sequence_reduce,
  'sequence_sum': _sequence_sum,
}
