"""Tests of partitions: values go to the shared or the personal side and back."""

import hypothesis
import pytest
from hypothesis import strategies

from tffpers.keras import Partition

masks = strategies.lists(strategies.booleans(), max_size=12)


def partition(trainable, non_trainable=()):
  count = len(trainable) + len(non_trainable)
  sizes, names = range(1, count + 1), map(str, range(count))
  return Partition(tuple(trainable), tuple(non_trainable), tuple(sizes), tuple(names))


@hypothesis.given(trainable=masks, non_trainable=masks)
def test_split_then_join_is_the_identity(trainable, non_trainable):
  split = partition(trainable, non_trainable)
  values, others = list(range(len(trainable))), list(range(len(non_trainable)))
  shared, personal = split.split(values)
  assert personal == [value for value in values if trainable[value]]
  assert shared == [value for value in values if not trainable[value]]
  assert split.join(shared, personal) == values
  assert split.join_non_trainable(*split.split_non_trainable(others)) == others


@hypothesis.given(trainable=masks, non_trainable=masks)
def test_p10_base_and_head_add_up_to_the_model(trainable, non_trainable):
  split = partition(trainable, non_trainable)
  assert split.num_shared + split.num_personal == sum(split.sizes)
  assert sorted(split.shared_names + split.personal_names) == sorted(split.names)


def test_counts_and_names_by_hand():
  split = partition([False, True, False], [True])  # Sizes 1, 2, 3 and 4.
  assert (split.num_shared, split.num_personal) == (4, 6)
  assert (split.shared_names, split.personal_names) == (['0', '2'], ['1', '3'])


def test_values_that_do_not_fit_are_refused():
  split = partition([False, True, False], [True])
  with pytest.raises(ValueError, match='each of 3 variables. Received: 2 values'):
    split.split([1, 2])
  with pytest.raises(ValueError, match='each of 1 variables. Received: 3 values'):
    split.split_non_trainable([1, 2, 3])
  with pytest.raises(ValueError, match='2 shared and 1 personal values. Received: 1 shared and 2'):
    split.join([1], [2, 3])
  with pytest.raises(ValueError, match='0 shared and 1 personal values. Received: 0 shared and 0'):
    split.join_non_trainable([], [])


def test_names_do_not_distinguish_partitions():
  assert Partition((True,), (), (3,), ('a',)) == Partition((True,), (), (3,), ('b',))
  assert Partition((True,), (), (3,), ('a',)) != Partition((True,), (), (4,), ('a',))
