"""Flags that presets of the scripts of adaptive expert models have in common."""

from collections.abc import Sequence
from typing import Any


def networks(cluster: Sequence[Any], local: Sequence[Any], gate: Sequence[Any]) -> dict[str, Any]:
  """Flags of the three networks: rate, filters, hidden units, dropout, decay of each."""
  preset: dict[str, Any] = {'client_learning_rate': cluster[0]}
  for name, (rate, filters, hidden, dropout, decay) in (
    ('cluster', cluster),
    ('local', local),
    ('gate', gate),
  ):
    if name != 'cluster':
      preset[f'{name}_learning_rate'] = rate
    preset |= {
      f'{name}_filters': [str(width) for width in filters],
      f'{name}_hidden': [str(width) for width in hidden],
      f'{name}_dropout': dropout,
      f'{name}_decay': decay,
    }
  return preset


QUICK = {
  'dataset': 'digits',
  'rounds': 10,
  'evaluate_every': 10,
  'num_seeds': 1,
  'num_models': 2,
  **{f'{part}_hidden': ['32'] for part in ('cluster', 'local', 'gate')},
}
ACCEPTANCE = {
  'dataset': 'fashion_mnist',
  'num_clients': 20,
  'client_fraction': 1.0,
  'num_train': 500,
  'num_test': 100,
  'rounds': 40,
  'epochs': 3,
  'batch_size': 50,
  'evaluate_every': 10,
  'num_models': 2,
  'personal_epochs': 30,
  **networks(
    cluster=(0.2, (16, 32), (128,), 0.42, 2.6e-4),
    local=(3e-3, (16, 32), (128,), 0.75, 0.0136),
    gate=(3e-4, (16, 32), (128,), 0.5, 4.9e-4),
  ),
}
