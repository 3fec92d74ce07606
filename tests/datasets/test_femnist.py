"""FEMNIST from TFF's and from LEAF's files."""

import json
import os
import pathlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf

from tffpers.datasets import load_femnist

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)


def character(label):
  """As published, white 1 and ink 0: an L, upright, one pixel dim by the label."""
  image = np.ones([28, 28], np.float32)
  image[4:24, 6] = image[23, 6:18] = 0.0
  image[0, 0] = label / 100
  return image


def write_tff(folder, splits):
  """A database from `{split: {client id: labels}}`."""
  with sqlite3.connect(folder / 'emnist_all.sqlite') as connection:
    connection.execute('CREATE TABLE examples (split_name, client_id, serialized_example_proto)')
    connection.execute('CREATE TABLE client_metadata (client_id, split_name, num_examples)')
    for split, clients in splits.items():
      for key, labels in clients.items():
        connection.execute(
          'INSERT INTO client_metadata VALUES (?, ?, ?)', (key, split, len(labels))
        )
        connection.executemany(
          'INSERT INTO examples VALUES (?, ?, ?)',
          [(split, key, serialized(label)) for label in labels],
        )
  connection.close()


def serialized(label):
  pixels = tf.train.FloatList(value=character(label).ravel())
  feature = {
    'pixels': tf.train.Feature(float_list=pixels),
    'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
  }
  return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write_leaf(path, clients, image=lambda label: character(label).ravel().tolist()):
  path.write_text(
    json.dumps(
      {
        'users': list(clients),
        'num_samples': [len(labels) for labels in clients.values()],
        'user_data': {
          key: {'x': [image(label) for label in labels], 'y': labels}
          for key, labels in clients.items()
        },
      }
    )
  )


def write(folder, layout, train, test):
  if layout == 'leaf':
    write_leaf(folder / 'train.json', train)
    write_leaf(folder / 'test.json', test)
    return

  def digits(part):
    return {key: [y for y in labels if y < 10] for key, labels in part.items()}

  splits = {'all_train': train, 'all_test': test}
  write_tff(folder, splits | {'digits_only_train': digits(train), 'digits_only_test': digits(test)})


both = pytest.mark.parametrize('layout', ['tff', 'leaf'])


@both
def test_d14_ink_is_1_and_the_image_upright(tmp_path, layout):
  write(tmp_path, layout, {'ann': [3, 7]}, {'ann': [0]})
  train, test = load_femnist(tmp_path, num_clients=1)
  x, y = train.load('ann')
  assert (x.dtype, y.dtype, x.shape) == (np.float32, np.int32, (2, 28, 28, 1))
  np.testing.assert_array_equal(x[1, ..., 0], 1 - character(7))
  assert x[0, 5, 6, 0] == x[0, 23, 17, 0] == 1 and x[0, 5, 17, 0] == 0
  assert y.tolist() == [3, 7] and test.load('ann')[1].tolist() == [0]


@both
def test_digits_only_keeps_labels_below_10(tmp_path, layout):
  write(tmp_path, layout, {'a': [9, 10, 61, 0], 'letters': [30]}, {'a': [61, 5], 'letters': [3]})
  train, test = load_femnist(tmp_path, num_clients=1)
  assert train.client_ids == test.client_ids == ['a']
  assert (train.load('a')[1].tolist(), test.load('a')[1].tolist()) == ([9, 0], [5])
  np.testing.assert_array_equal(train.load('a')[0][:, 0, 0, 0], 1 - np.float32([0.09, 0]))
  train, test = load_femnist(tmp_path, num_clients=2, digits_only=False)
  assert train.load('a')[1].tolist() == [9, 10, 61, 0]
  assert test.load('letters')[1].tolist() == [3]


@both
def test_v19_as_many_writers_as_asked_for_drawn_by_the_seed(tmp_path, layout):
  ids = [f"w'{k}/ü" for k in range(12)]
  write(tmp_path, layout, {key: [k % 10] for k, key in enumerate(ids)}, {key: [1] for key in ids})
  draws = {}
  for seed in (0, 1, 2):
    train, test = load_femnist(tmp_path, num_clients=5, seed=seed)
    assert train.client_ids == test.client_ids and len(train) == 5
    draws[seed] = train.client_ids
    assert load_femnist(tmp_path, num_clients=5, seed=seed)[0].client_ids == draws[seed]
    for key in train.client_ids:
      assert train.load(key)[1].tolist() == [ids.index(key) % 10]
  assert len(set(map(tuple, draws.values()))) > 1
  assert len(load_femnist(tmp_path, num_clients=12)[0]) == 12
  with pytest.raises(ValueError, match='Only 12 writers have training data. Received: num_cl'):
    load_femnist(tmp_path, num_clients=13)


def test_the_draw_does_not_depend_on_the_order_of_writers(tmp_path):
  clients = {f'w{k}': [1] for k in range(9)}
  drawn = []
  for name, part in (('a', clients), ('b', dict(reversed(clients.items())))):
    (tmp_path / name).mkdir()
    write(tmp_path / name, 'leaf', part, part)
    drawn.append(load_femnist(tmp_path / name, num_clients=4)[0].client_ids)
  assert drawn[0] == drawn[1]


@both
def test_d12_writers_without_test_data_and_writers_in_test_only(tmp_path, layout):
  train, test = {'a': [1], 'b': [2], 'none': []}, {'b': [3], 'c': [4], 'none': [5]}
  write(tmp_path, layout, train, test)
  train, test = load_femnist(tmp_path, num_clients=2)
  assert (train.client_ids, test.client_ids) == (['a', 'b'], ['b', 'c'])


def test_no_test_data_is_an_error(tmp_path):
  write(tmp_path, 'leaf', {'a': [1]}, {'a': []})
  with pytest.raises(ValueError, match=r"None of the drawn .* Received: \['a'\]"):
    load_femnist(tmp_path, num_clients=1)


def test_d17_leaf_shards_merge_and_a_user_twice_is_refused(tmp_path):
  for split in ('train', 'test'):
    (tmp_path / split).mkdir()
    write_leaf(tmp_path / split / '1.json', {'a': [1]})
    write_leaf(tmp_path / split / '2.json', {'b': [2]})
  assert load_femnist(tmp_path, num_clients=2)[0].client_ids == ['a', 'b']
  write_leaf(tmp_path / 'train' / '3.json', {'a': [3]})
  with pytest.raises(ValueError, match="'a' again in 3.json"):
    load_femnist(tmp_path, num_clients=2)


@pytest.mark.parametrize(
  'image, words',
  [
    (lambda label: 'some text', "client 'a' in train.json, 9 pixels"),
    (lambda label: [255.0] * 784, r"client 'a', pixels in \[255"),
  ],
)
def test_what_is_no_image_is_refused(tmp_path, image, words):
  for split in ('train', 'test'):
    write_leaf(tmp_path / f'{split}.json', {'a': [1]}, image)
  with pytest.raises(ValueError, match=words):
    load_femnist(tmp_path, num_clients=1)


def test_d8_labels_out_of_range_name_the_client(tmp_path):
  write(tmp_path, 'tff', {'ann': [62]}, {'ann': [1]})
  with pytest.raises(ValueError, match=r"\[0, 61\]. Received: client 'ann', labels in \[62, 62\]"):
    load_femnist(tmp_path, num_clients=1, digits_only=False)


def test_missing_data_name_the_folder_and_how_to_get_them(tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    load_femnist(tmp_path)
  message = str(caught.value)
  assert all(word in message for word in [str(tmp_path), 'emnist.load_data', 'leaf'])


@pytest.mark.parametrize('argument', [{'num_clients': 0}, {'seed': -1}])
def test_arguments_are_checked(tmp_path, argument):
  with pytest.raises(ValueError, match='='.join(map(str, *argument.items()))):
    load_femnist(tmp_path, **argument)


@needs_data
def test_d14_both_development_files_show_the_same_images():
  train, _ = load_femnist(DATA / 'formats' / 'tff_sqlite', num_clients=10)
  leaf, _ = load_femnist(DATA / 'formats' / 'leaf', num_clients=3)
  assert len(train) == 10 and len(leaf) == 3
  for data in (train, leaf):
    x = np.concatenate([data.load(key)[0] for key in data.client_ids])
    assert x.min() == 0 and x.max() == 1 and x.mean() < 0.2
    assert not x[:, [0, 0, 27, 27], [0, 27, 0, 27]].any()
  # LEAF's pixels are text of four decimals.
  same = train.load('f0000_00')[0][0]
  np.testing.assert_allclose(leaf.load('f0000_00')[0][0], same, rtol=0, atol=0.5e-4 + 1e-7)
