"""Which rows of a data set become which client, and what sets the clients apart.

A partitioner returns a plan: what every client is like, drawn from a seed before any
row is seen. `plan.deal(labels)` says which rows of a split each client gets, and
`federate` makes the clients' training and test sets by one plan. It ends by
construction, draws from a generator of its own seed, and uses every row exactly once
unless it says otherwise. Three functions change what clients see instead: `rotate`,
`permute_pixels` and `permute_labels`.

Labels are class ids 0 … num_classes − 1; a class may be missing in a split.

| Partition | Function |
|---|---|
| random parts | `equal_sizes`, or `iid` at once |
| parts of unequal sizes | `dirichlet_sizes`, `power_law_sizes` |
| k classes per client, equal shares | `k_classes` |
| two classes per client, random shares | `pathological` |
| 80 %, 10 % and the rest of every class | `practical` |
| two majority classes | `majority_classes` |
| Dirichlet shares of every class | `dirichlet` |
| two shards of data sorted by label | `shards` |
| groups that each hold the whole set | `groups` |
| whom a column names | `natural` |
| shares of one's own | `SharePlan`, `SizePlan` |
"""

from tffpers.datasets.partition.class_subsets import k_classes, pathological
from tffpers.datasets.partition.columns import natural
from tffpers.datasets.partition.copies import GroupPlan, groups
from tffpers.datasets.partition.dirichlet_mix import dirichlet
from tffpers.datasets.partition.dominance import practical
from tffpers.datasets.partition.label_orders import permute_labels
from tffpers.datasets.partition.majorities import MajorityPlan, majority_classes
from tffpers.datasets.partition.pixels import permute_pixels
from tffpers.datasets.partition.plan import Plan, as_clients, federate
from tffpers.datasets.partition.rotation import rotate
from tffpers.datasets.partition.shares import SharePlan
from tffpers.datasets.partition.sizes import (
  SizePlan,
  dirichlet_sizes,
  equal_sizes,
  iid,
  power_law_sizes,
)
from tffpers.datasets.partition.sorted_shards import ShardPlan, shards

__all__ = [
  'GroupPlan',
  'MajorityPlan',
  'Plan',
  'ShardPlan',
  'SharePlan',
  'SizePlan',
  'as_clients',
  'dirichlet',
  'dirichlet_sizes',
  'equal_sizes',
  'federate',
  'groups',
  'iid',
  'k_classes',
  'majority_classes',
  'natural',
  'permute_labels',
  'permute_pixels',
  'pathological',
  'power_law_sizes',
  'practical',
  'rotate',
  'shards',
]
