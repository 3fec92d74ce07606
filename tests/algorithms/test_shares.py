"""Shares of clients worked by hand."""

import json

import numpy as np
import pytest

from tffpers.algorithms import shares

SIZES = [1, 0, 3]


@pytest.mark.parametrize('given', [SIZES, dict(zip('abc', SIZES, strict=True)), tuple(SIZES)])
def test_shares_follow_the_order_of_the_clients(given):
  assert shares.by_size(given) == (0.25, 0, 0.75)
  assert shares.equal(given) == (1 / 3, 1 / 3, 1 / 3)


def test_plain_counts_keep_their_names_and_fit_json():
  named = shares.plain({'b': np.int64(2), 'a': 1})
  assert json.dumps(named) == '{"b": 2, "a": 1}'
  assert json.dumps(shares.plain((np.int32(2), 1))) == '[2, 1]'


@pytest.mark.parametrize('given', [[], {}, [3, -1], [1.5, 2], [float('nan'), 1], '12'])
@pytest.mark.parametrize('rule', [shares.equal, shares.by_size])
def test_counts_that_are_no_counts_are_refused(rule, given):
  with pytest.raises(ValueError, match='client_num_examples must give an integer.*Received'):
    rule(given)


@pytest.mark.parametrize('given', [None, 3, np.array([1, 2])])
def test_what_is_neither_sequence_nor_mapping_is_refused(given):
  with pytest.raises(TypeError, match='client_num_examples must be a sequence or a mapping'):
    shares.equal(given)


def test_shares_by_size_need_an_example():
  with pytest.raises(ValueError, match='client_num_examples must count at least one example'):
    shares.by_size([0, 0])
  assert shares.equal([0, 0]) == (0.5, 0.5)
