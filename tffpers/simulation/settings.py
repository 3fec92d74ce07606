"""What a run is made of, for `config.json` and for refusing to resume something else."""

import hashlib
import platform
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import numpy as np
import tensorflow as tf

from tffpers.simulation import population as population_lib

_FINGERPRINT_CLIENTS = 16
_FREE = ('rounds', 'versions', 'settings')  # May differ when a run is resumed.


def describe(population: population_lib.Population, **settings: Any) -> dict[str, Any]:
  """Every setting of a run as plain JSON values.

  Args:
    population: The clients.
    **settings: The driver's arguments.

  Raises:
    TypeError: A hyper-parameter or setting is not made of numbers, strings, lists
      and mappings.
  """
  return {
    **_plain(settings, 'config'),
    'seed': population.seed,
    'num_clients': len(population.datasets['train'].client_ids),
    'evaluation_point': population.process.evaluation_point,
    'hyper_parameters': _plain(population.process.hyper_parameters, 'hyper_parameters'),
    'data': {name: _fingerprint(name, population) for name in population.datasets},
    'versions': _versions(),
  }


def check_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
  """Refuses to resume a run with other settings than it was started with.

  Raises:
    ValueError: The first setting that differs, by name, and both values.
  """
  first, second = dict(_flat(before)), dict(_flat(now))
  for key in [*first, *second]:
    # A setting that an older version did not know is one that was left at None.
    was, is_now = first.get(key), second.get(key)
    if repr(was) != repr(is_now) and key.split('.')[0] not in _FREE:
      raise ValueError(
        'A run is resumed with the settings it was started with, except for more rounds of the '
        f'simulation; use another output_dir for another run. Expected: {key}={was!r}. '
        f'Received: {key}={is_now!r}'
      )
  if before['versions'] != now['versions']:
    warnings.warn(
      'The run was started with other versions and may not continue bit for bit: '
      f'{before["versions"]}, now {now["versions"]}',
      RuntimeWarning,
      stacklevel=3,
    )


def _flat(value: Any, path: str = '') -> Iterator[tuple[str, Any]]:
  if isinstance(value, Mapping) and value:
    for key, item in value.items():
      yield from _flat(item, f'{path}.{key}' if path else key)
  else:
    yield path, value


def _plain(value: Any, path: str) -> Any:
  if isinstance(value, Mapping):
    return {str(key): _plain(item, f'{path}.{key}') for key, item in value.items()}
  if isinstance(value, np.ndarray):
    value = value.tolist()
  if isinstance(value, (list, tuple)):
    return [_plain(item, f'{path}[{i}]') for i, item in enumerate(value)]
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise TypeError(
    'Settings must be numbers, strings, lists or mappings, to be written and compared. '
    f'Received: {path}={value!r}'
  )


def _fingerprint(name: str, population: population_lib.Population) -> dict[str, Any]:
  """Ids in order, sizes, fields, and the content of a few clients spread over the ids."""
  data = population.datasets[name]
  keys = sorted(data.client_ids)
  sizes = [data.num_examples(key) for key in keys]
  chosen = [
    keys[i] for i in np.unique(np.linspace(0, len(keys) - 1, _FINGERPRINT_CLIENTS).astype(int))
  ]
  contents = hashlib.sha256()
  for key in chosen:
    try:
      arrays = tf.nest.flatten(population.load(name, key))
    except population_lib.ClientError:
      if not population.skip_failures:
        raise
      arrays = []
    for array in arrays:
      contents.update(np.ascontiguousarray(array).data)
  return {
    'clients': len(keys),
    'examples': sum(sizes),
    'client_ids': _digest(list(data.client_ids)),
    'sizes': _digest(sizes),
    'fields': repr(data.element_spec),
    'contents': contents.hexdigest()[:16],
  }


def _digest(value: Any) -> str:
  return hashlib.sha256(repr(value).encode('utf-8')).hexdigest()[:16]


def _versions() -> dict[str, str]:
  versions = {'python': platform.python_version()}
  for package in ('tensorflow', 'tensorflow-probability', 'tensorflow-federated', 'tffpers'):
    try:
      versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:  # Run from a checkout.
      versions[package] = 'unknown'
  return versions
