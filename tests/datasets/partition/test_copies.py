"""Groups of clients that each hold the whole set."""

import numpy as np
import pytest

from tffpers.datasets import partition
from tffpers.datasets.partition import groups


def test_each_half_of_the_clients_partitions_the_whole_set():
  plan = groups(num_clients=200, num_groups=2, seed=0)
  parts = plan.deal(np.zeros([50_000]))
  assert {len(part) for part in parts} == {500}
  halves = [np.concatenate(parts[:100]), np.concatenate(parts[100:])]
  for half in halves:
    assert sorted(half.tolist()) == list(range(50_000))
  assert halves[0].tolist() != halves[1].tolist()


def test_one_half_sees_the_set_upright_and_one_upside_down():
  rng = np.random.default_rng(0)
  images, labels = rng.integers(0, 256, [40, 3, 3, 1]), np.arange(40)
  plan = groups(num_clients=4, num_groups=2, seed=0)
  angles = plan.by_client([0, 180])
  train, test = (
    partition.rotate(data, angles)
    for data in partition.federate(plan, images, labels, images[:8], labels[:8])
  )
  assert angles == {'0': 0, '1': 0, '2': 180, '3': 180}
  for data, n in ((train, 40), (test, 8)):
    for half, step in ((['0', '1'], 1), (['2', '3'], -1)):
      pairs = [pair for key in half for pair in zip(*data.load(key), strict=True)]
      assert sorted(y for _, y in pairs) == list(range(n))
      for x, y in pairs:
        np.testing.assert_array_equal(x, images[y, ::step, ::step])


def test_groups_of_unequal_size_and_their_values():
  plan = groups(num_clients=5, num_groups=3, seed=0)
  assert plan.num_clients == 5
  assert list(plan.by_client('abc').values()) == list('aabbc')
  with pytest.raises(ValueError, match='There are 3 groups. Received: 2 values'):
    plan.by_client('ab')
  with pytest.raises(ValueError, match='num_clients must be an integer ≥ 3'):
    groups(num_clients=2, num_groups=3, seed=0)
