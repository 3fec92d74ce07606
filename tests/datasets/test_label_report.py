"""Counts of classes by client, as numbers and tables."""

import csv
import math

import numpy as np
import pytest

from tffpers.datasets import (
  FederatedDataset,
  label_counts,
  label_csv,
  label_markdown,
  majority_accuracy,
)


def dataset(**labels):
  arrays = {key: (np.zeros([len(y), 1]), np.array(y, np.int32)) for key, y in labels.items()}
  return FederatedDataset.from_arrays(arrays)


def test_counts_cover_all_classes_of_the_data_in_order():
  counts = label_counts(dataset(a=[3, 0, 3], b=[], c=[7]))
  assert counts == {'a': {0: 1, 3: 2, 7: 0}, 'b': {0: 0, 3: 0, 7: 0}, 'c': {0: 0, 3: 0, 7: 1}}
  assert list(counts['c']) == [0, 3, 7]


def test_counts_of_booleans_and_bytes():
  for dtype in (bool, np.uint8):
    data = FederatedDataset.from_arrays({'a': (np.zeros([3]), np.array([1, 0, 1], dtype))})
    assert label_counts(data) == {'a': {0: 1, 1: 2}}


def test_d7_labels_that_are_no_classes_are_refused():
  for y in (np.zeros([2, 14], np.int32), np.zeros([2])):
    with pytest.raises(ValueError, match=r'one class id for each example, \[n\]. Received: Fed'):
      label_counts(FederatedDataset.from_arrays({'a': (np.zeros([2]), y)}))


def test_e7_always_guessing_the_commonest_training_class():
  train = label_counts(dataset(a=[0, 1, 1], b=[2, 0], c=[2], d=[], e=[0]))
  test = label_counts(dataset(a=[1, 0, 0, 0], b=[0, 2], c=[1, 1], d=[0], f=[0]))
  received = majority_accuracy(train, test)
  assert list(received) == ['a', 'b', 'c', 'd', 'e']
  # b: 0 and 2 are equally common, the lowest is guessed. c: its class is not tested.
  assert [received[key] for key in 'abc'] == [0.25, 0.5, 0.0]
  assert math.isnan(received['d']) and math.isnan(received['e'])
  assert majority_accuracy({'a': {2: 1, 0: 1}}, {'a': {0: 1}}) == {'a': 1.0}


def test_csv_reads_back():
  counts = label_counts(dataset(**{'a,"b|': [3, 0, 3], 'c': []}))
  rows = list(csv.DictReader(label_csv(counts).splitlines()))
  assert rows[0] == {
    'client_id': 'a,"b|',
    'num_examples': '3',
    'majority_share': str(2 / 3),
    'class_0': '1',
    'class_3': '2',
  }
  assert rows[1]['num_examples'] == '0' and rows[1]['majority_share'] == ''


def test_markdown_has_a_row_for_each_client():
  lines = label_markdown(label_counts(dataset(**{'a|b': [3, 0, 3], 'c': []}))).splitlines()
  assert lines == [
    '| client | examples | majority | 0 | 3 |',
    '|---|---:|---:|---:|---:|',
    r'| a\|b | 3 | 0.6667 | 1 | 2 |',
    '| c | 0 |  | 0 | 0 |',
  ]
