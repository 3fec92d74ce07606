"""FederatedDataset: ids, border checks, grouping, TFF's ClientData, splitting."""

import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tffpers.datasets import FederatedDataset

ids = st.text(st.characters(exclude_categories=['Cs', 'Cc']), min_size=1, max_size=6)
quick = settings(deadline=None, max_examples=50)
sizes = st.dictionaries(ids, st.integers(0, 30), min_size=1, max_size=6)


def tagged(num_examples):
  """Every row of every client has a number of its own."""
  result, next_row = {}, 0
  for key, n in num_examples.items():
    rows = np.arange(next_row, next_row + n)
    result[key] = (rows.astype(np.float32)[:, None], rows.astype(np.int32))
    next_row += n
  return result


def example(n=2, x_dtype=np.float32, y_dtype=np.int32, width=3):
  return np.zeros([n, width], x_dtype), np.zeros([n], y_dtype)


class Clients:
  """What `from_client_data` needs of a TFF ClientData."""

  def __init__(self, datasets):
    self.client_ids = list(datasets)
    self.create_tf_dataset_for_client = datasets.__getitem__


def test_import_does_not_load_tff():
  code = (
    "import tffpers.datasets, sys; print(any('tensorflow_federated' in m for m in sys.modules))"
  )
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  assert done.stdout.strip() == 'False'


@pytest.mark.parametrize('keys', [[1, 2], ['1', '2'], np.array([1, 2]), np.array(['1', '2'])])
def test_d5_ids_of_any_type_become_the_same_strings(keys):
  data = FederatedDataset.from_arrays({key: example(n) for n, key in enumerate(keys)})
  assert data.client_ids == ['1', '2']
  assert all(type(key) is str for key in data.client_ids)
  assert data.num_examples('2') == data.num_examples(2) == 1


def test_d5_ids_that_collide_as_strings_are_refused():
  with pytest.raises(ValueError, match="1 and '1'"):
    FederatedDataset.from_arrays({1: example(), '1': example()})
  with pytest.raises(ValueError, match="1 and '1'"):
    FederatedDataset.from_grouped([1, '1'], *example())
  with pytest.raises(ValueError, match="'a' and 'a'"):
    FederatedDataset.from_arrays({'a': example()}).select(['a', 'a'])


@pytest.mark.parametrize(
  'key, error',
  [
    ('', ValueError),
    ('\ud800', ValueError),
    (1.0, TypeError),
    (True, TypeError),
    (b'a', TypeError),
  ],
)
def test_ids_that_are_no_text_are_refused(key, error):
  with pytest.raises(error, match='client_id='):
    FederatedDataset.from_arrays({key: example()})


@quick
@given(sizes)
def test_any_unicode_id_loads_its_own_rows(num_examples):
  arrays = tagged(num_examples)
  data = FederatedDataset.from_arrays(arrays)
  assert data.client_ids == list(num_examples) and len(data) == len(num_examples)
  for key, (x, y) in arrays.items():
    assert data.num_examples(key) == len(y)
    np.testing.assert_array_equal(data.load(key)[0], x)
    np.testing.assert_array_equal(data.load(key)[1], y)


@pytest.mark.parametrize(
  'other, words',
  [
    (example(x_dtype=np.float64), ['field x', 'float32', 'float64']),
    (example(y_dtype=np.int64), ['field y', 'int32', 'int64']),
    (example(width=4), ['field x', '[n, 3]', '[n, 4]']),
    (({'a': np.zeros([2, 3], np.float32)}, np.zeros([2], np.int32)), ["x['a']", 'x, y']),
  ],
)
def test_d6_clients_that_differ_are_refused_by_name(other, words):
  with pytest.raises(ValueError) as caught:
    FederatedDataset.from_arrays({'ann': example(), 'bob': other})
  assert all(word in str(caught.value) for word in [*words, "'ann'", "'bob'"])


def test_d6_order_of_features_is_the_first_clients():
  a, b = np.zeros([2], np.float32), np.zeros([2, 5], np.int32)
  y = np.zeros([2], np.int32)
  data = FederatedDataset.from_arrays({'ann': ({'a': a, 'b': b}, y), 'bob': ({'b': b, 'a': a}, y)})
  assert list(data.load('bob')[0]) == ['a', 'b']
  assert data.element_spec == (
    {'a': tf.TensorSpec([], tf.float32), 'b': tf.TensorSpec([5], tf.int32)},
    tf.TensorSpec([], tf.int32),
  )


@pytest.mark.parametrize(
  'value, words',
  [
    ((*example(), np.ones(2)), ['pair (x, y)', '3 elements']),
    (np.zeros([2, 2]), ['pair (x, y)', 'ndarray']),
    ((np.zeros([3, 1]), np.zeros([2])), ['field y', 'leading length, 3']),
    ((np.zeros([2, 1]), np.float32(1)), ['field y', 'leading axis']),
    ((np.array(['a', 'b']), np.zeros([2])), ['field x', '<U1']),
    (({}, np.zeros([2])), ['at least one array']),
  ],
)
def test_m9_what_is_no_pair_of_arrays_is_refused(value, words):
  with pytest.raises(ValueError) as caught:
    FederatedDataset.from_arrays({'ann': value})
  assert all(word in str(caught.value) for word in [*words, "'ann'"])


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_nonfinite_values_need_a_flag(bad):
  x, y = example()
  x[1, 2] = bad
  arrays = {'ann': example(), 'bob': (x, y)}
  with pytest.raises(ValueError, match="client 'bob', field x, NaN or infinity in row 1"):
    FederatedDataset.from_arrays(arrays)
  data = FederatedDataset.from_arrays(arrays, allow_nonfinite=True)
  np.testing.assert_array_equal(data.load('bob')[0], x)


def test_no_clients_is_refused():
  with pytest.raises(ValueError, match='at least one client'):
    FederatedDataset.from_arrays({})


def test_d1_empty_client_keeps_its_specification():
  data = FederatedDataset.from_arrays({'ann': example(), 'none': example(0)})
  x, y = data.load('none')
  assert data.num_examples('none') == 0 and x.shape == (0, 3) and y.shape == (0,)


def test_loaded_arrays_cannot_change_the_dataset():
  data = FederatedDataset.from_arrays({'ann': ({'a': np.zeros([2, 1])}, np.zeros([2]))})
  for part in (data, *data.split(1, 1), *data.split(1, 1, contiguous=True)):
    x, y = part.load('ann')
    with pytest.raises(ValueError, match='read-only'):
      x['a'][0] = 1
    with pytest.raises(ValueError, match='read-only'):
      y[0] = 1
    x.clear()
    assert list(part.load('ann')[0]) == ['a']


def test_unknown_client_is_a_key_error():
  data = FederatedDataset.from_arrays({'ann': example()})
  for call in (data.load, data.num_examples, lambda key: data.select([key])):
    with pytest.raises(KeyError, match='bob'):
      call('bob')


def test_select_keeps_the_asked_order():
  data = FederatedDataset.from_arrays(tagged({'a': 1, 'b': 2, 'c': 3}))
  chosen = data.select(['c', 'a'])
  assert chosen.client_ids == ['c', 'a'] and chosen.load('c')[1].tolist() == [3, 4, 5]


def test_repr_counts_clients_and_examples():
  text = repr(FederatedDataset.from_arrays(tagged({'a': 1, 'b': 2})))
  assert 'num_clients=2' in text and 'num_examples=3' in text and 'float32' in text


@quick
@given(st.lists(st.sampled_from(['b', 'a', "it's", 'c/d']), min_size=1, max_size=40))
def test_grouping_keeps_the_rows_of_each_client_in_order(keys):
  rows = np.arange(len(keys), dtype=np.int32)
  data = FederatedDataset.from_grouped(keys, {'r': rows}, rows)
  assert data.client_ids == list(dict.fromkeys(keys))
  for key in data.client_ids:
    expected = [row for row, other in enumerate(keys) if other == key]
    assert data.load(key)[0]['r'].tolist() == data.load(key)[1].tolist() == expected


def test_grouping_needs_an_id_for_each_row():
  with pytest.raises(ValueError, match='Received: 3 ids_per_row'):
    FederatedDataset.from_grouped(['a', 'a', 'b'], *example(2))


def test_p5_100k_rows_of_3500_clients_group_in_5_seconds():
  rng = np.random.default_rng(0)
  keys = rng.integers(0, 3500, 100_000)
  x, y = rng.normal(size=[100_000, 64]).astype(np.float32), np.arange(100_000)
  start = time.perf_counter()
  data = FederatedDataset.from_grouped(keys, x, y)
  assert time.perf_counter() - start < 5
  assert len(data) == 3500
  np.testing.assert_array_equal(data.load(17)[1], np.flatnonzero(keys == 17))


def test_loader_is_called_when_asked_and_checked():
  calls = []
  answers = {'a': example(2), 'b': example(3), 'c': example(1, x_dtype=np.float64)}

  def load(key):
    calls.append(key)
    return answers[key]

  data = FederatedDataset.from_loader({'a': 2, 'b': 4, 'c': 1}, load)
  assert set(calls) == {'a'} and data.num_examples('b') == 4
  np.testing.assert_array_equal(data.load('a')[0], answers['a'][0])
  with pytest.raises(ValueError, match=r"announced 4 examples for client 'b'. Received: 3"):
    data.load('b')
  with pytest.raises(ValueError, match="client 'c', field x, float64"):
    data.load('c')


def test_loader_refuses_nonfinite_values_of_the_first_client_at_once():
  def load(key):
    return np.full([1, 1], np.nan), np.zeros([1])

  with pytest.raises(ValueError, match="client 'a', field x"):
    FederatedDataset.from_loader({'a': 1}, load)
  assert len(FederatedDataset.from_loader({'a': 1}, load, allow_nonfinite=True)) == 1


def test_client_data_of_pairs_keys_and_functions():
  pixels, label = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, 2, 3], np.int32)
  keyed = Clients(
    {
      "it's": tf.data.Dataset.from_tensor_slices({'pixels': pixels, 'label': label}),
      'none': tf.data.Dataset.from_tensor_slices({'pixels': pixels[:0], 'label': label[:0]}),
    }
  )
  pairs = Clients({'a': tf.data.Dataset.from_tensor_slices((pixels, label))})
  by_key = FederatedDataset.from_client_data(keyed, x='pixels', y='label')
  by_call = FederatedDataset.from_client_data(keyed, x=lambda e: e['pixels'] / 2, y='label')
  assert by_key.num_examples('none') == 0
  np.testing.assert_array_equal(by_key.load("it's")[0], pixels)
  np.testing.assert_array_equal(by_call.load("it's")[0], pixels / 2)
  np.testing.assert_array_equal(FederatedDataset.from_client_data(pairs).load('a')[1], label)


def test_client_data_refuses_weights_repeated_ids_and_half_a_choice():
  weighted = tf.data.Dataset.from_tensor_slices((*example(), np.ones(2)))
  with pytest.raises(ValueError, match='3 elements'):
    FederatedDataset.from_client_data(Clients({'a': weighted}))
  repeated = Clients({'a': tf.data.Dataset.from_tensor_slices(example())})
  repeated.client_ids = ['a', 'a']
  with pytest.raises(ValueError, match="'a' and 'a'"):
    FederatedDataset.from_client_data(repeated)
  with pytest.raises(ValueError, match='Give both'):
    FederatedDataset.from_client_data(repeated, x='pixels')


def rows_of(part, key):
  return part.load(key)[1].tolist()


@quick
@given(
  sizes,
  st.sampled_from([(0.8, 0.2), (0.1, 0.7, 0.2), (0.5, None), (0, None), (0.3, 0.3, 0.4)]),
  st.integers(0, 5),
  st.booleans(),
)
def test_d10_split_is_disjoint_exhaustive_and_stable(num_examples, parts, seed, contiguous):
  data = FederatedDataset.from_arrays(tagged(num_examples))
  split = data.split(*parts, seed=seed, contiguous=contiguous)
  again = data.split(*parts, seed=seed, contiguous=contiguous)
  assert len(split) == len(parts)
  for key in data.client_ids:
    first = [rows_of(part, key) for part in split]
    for repeat in (split, split, again):
      assert [rows_of(part, key) for part in repeat] == first
    assert [part.num_examples(key) for part in split] == list(map(len, first))
    joined = [row for rows in first for row in rows]
    assert sorted(joined) == rows_of(data, key)
    assert not contiguous or joined == sorted(joined)


@quick
@given(sizes, st.randoms(use_true_random=False))
def test_d10_split_of_a_client_ignores_the_others_and_their_order(num_examples, random):
  arrays = tagged(num_examples)
  keys = list(arrays)
  random.shuffle(keys)
  whole = FederatedDataset.from_arrays(arrays).split(0.6, 0.4, seed=3)
  shuffled = FederatedDataset.from_arrays({key: arrays[key] for key in keys})
  alone = shuffled.select(keys[:1]).split(0.6, 0.4, seed=3)
  for part, other in zip(whole, alone, strict=True):
    assert rows_of(part, keys[0]) == rows_of(other, keys[0])


@quick
@given(st.integers(0, 2000))
def test_split_shares_are_exact_up_to_rounding(n):
  data = FederatedDataset.from_arrays({'a': example(n)})
  parts = data.split(0.1, 0.2, 0.7, contiguous=True)
  assert all(
    abs(part.num_examples('a') - share * n) <= 1
    for part, share in zip(parts, (0.1, 0.2, 0.7), strict=True)
  )


def test_split_depends_on_seed_and_client():
  data = FederatedDataset.from_arrays({key: (np.arange(50), np.arange(50)) for key in 'ab'})
  first, second = (data.split(25, 25, seed=seed)[0] for seed in (0, 1))
  assert rows_of(first, 'a') != rows_of(second, 'a')
  assert rows_of(first, 'a') != rows_of(first, 'b')


def test_d10_split_of_a_split_and_of_lazy_data_reads_through():
  x = np.arange(100)
  data = FederatedDataset.from_loader({'a': 100}, lambda key: (x, x))
  train, test = data.split(75, None)
  train, validation = train.split(0.9, 0.1)
  joined = [row for part in (train, validation, test) for row in rows_of(part, 'a')]
  assert sorted(joined) == x.tolist() and validation.num_examples('a') == 7


@pytest.mark.parametrize(
  'parts, seed, words',
  [
    ((0.5,), 0, 'two parts'),
    ((0.5, 0.6), 0, 'sum to 1'),
    ((0.5, 0.5, None), 0, 'sum to 1'),
    ((0.5, 3), 0, 'all shares'),
    ((None, None), 0, 'one None'),
    ((1.5, -0.5), 0, 'shares in'),
    ((-1, None), 0, 'sizes >= 0'),
    ((0.5, 0.5), -1, 'non-negative seed'),
    ((6, None), 0, "client 'a', parts"),
    ((2, 2), 0, "client 'a', parts"),
  ],
)
def test_split_refuses_parts_that_do_not_cover_a_client(parts, seed, words):
  with pytest.raises(ValueError, match=words):
    FederatedDataset.from_arrays({'a': example(5)}).split(*parts, seed=seed)
