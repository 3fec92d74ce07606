"""Characters as ids and texts as sequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tffpers.datasets import _text

quick = settings(deadline=None, max_examples=100)
spoken = st.text(st.sampled_from(_text.VOCABULARY))


def test_vocabulary_is_the_86_characters_with_ids_from_1():
  assert len(set(_text.VOCABULARY)) == 86
  assert _text.encode(_text.VOCABULARY).tolist() == list(range(1, 87))
  assert (_text.VOCABULARY[0], _text.VOCABULARY[13], _text.VOCABULARY[-1]) == ('d', ' ', '\r')


@quick
@given(st.text(st.characters(), max_size=50))
def test_characters_outside_the_vocabulary_become_0(text):
  ids = _text.encode(text)
  assert ids.dtype == np.int32 and ids.shape == (len(text),)
  assert ids.tolist() == [_text.VOCABULARY.find(character) + 1 for character in text]
  assert _text.decode(ids) == ''.join(c for c in text if c in _text.VOCABULARY)


@pytest.mark.parametrize('ids', [[1, 87], [-1]])
def test_d9_ids_out_of_range_are_refused(ids):
  with pytest.raises(ValueError, match='lie in'):
    _text.decode(np.array(ids))


@quick
@given(spoken, st.integers(1, 9))
def test_every_character_but_the_first_is_predicted_once(text, length):
  x, y = _text.sequences(text, length)
  assert x.shape == y.shape == (-(-max(len(text) - 1, 0) // length), length)
  assert x.dtype == y.dtype == np.int32
  assert _text.decode(y.ravel()) == text[1:]
  assert np.count_nonzero(y) == max(len(text) - 1, 0)
  # What a target is predicted from is the character before it.
  np.testing.assert_array_equal(x.ravel()[1:], y.ravel()[:-1])


def test_padding_is_on_the_right_of_the_last_sequence():
  x, y = _text.sequences('abcdef', 4)
  assert [_text.decode(row) for row in x] == ['abcd', 'ef']
  assert [_text.decode(row) for row in y] == ['bcde', 'f']
  assert (y[1] > 0).tolist() == [True, False, False, False]
