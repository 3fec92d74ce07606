"""Characters as ids and texts as sequences for next-character prediction."""

import numpy as np

VOCABULARY = (
  'dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#\'/37;?bfjnrvzBFJNRVZ"&*.26:\naeimquyAEIMQUY]!%)-159\r'
)
"""The 86 characters, in the order of TFF's Shakespeare tutorial; the first has id 1."""

_ASCII = 128
_IDS = np.zeros(_ASCII, np.int32)
_IDS[[ord(character) for character in VOCABULARY]] = np.arange(1, len(VOCABULARY) + 1)
_CHARACTERS = np.array(['', *VOCABULARY])


def encode(text: str) -> np.ndarray:
  """Character ids.

  Args:
    text: Any text.

  Returns:
    int32 [len(text)]; 1–86 for the vocabulary's characters, 0 for any other.

  >>> encode("dh~").tolist()
  [1, 2, 0]
  """
  points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), '<u4')
  return np.where(points < _ASCII, _IDS[np.minimum(points, _ASCII - 1)], 0).astype(np.int32)


def decode(ids: np.ndarray) -> str:
  """The text of character ids; 0, padding or unknown, gives nothing.

  Args:
    ids: Integers 0–86, one axis.

  Raises:
    ValueError: If an id is out of range.

  >>> decode(encode("To be?"))
  'To be?'
  """
  ids = np.asarray(ids)
  if ids.size and not 0 <= ids.min() <= ids.max() <= len(VOCABULARY):
    raise ValueError(
      f'Character ids lie in [0, {len(VOCABULARY)}]. Received: ids from {ids.min()} to {ids.max()}'
    )
  return ''.join(_CHARACTERS[ids])


def sequences(text: str, length: int) -> tuple[np.ndarray, np.ndarray]:
  """Cuts a text so that every character but the first is predicted exactly once.

  Window k holds the characters from k·length to (k + 1)·length, one more than the
  stride, so that each window's last target is the next one's first input.

  Args:
    text: One client's whole text.
    length: Characters of a sequence.

  Returns:
    `(x, y)`, int32 [n, length] each: ids and the ids that follow. The last sequence
    is padded with 0 on the right; n = ceil((len(text) − 1) / length), or 0 if the
    text has fewer than two characters.
  """
  ids = encode(text)
  n = -(-max(len(ids) - 1, 0) // length)
  padded = np.zeros(n * length + 1, np.int32)
  if n:
    padded[: len(ids)] = ids
  return padded[:-1].reshape(n, length), padded[1:].reshape(n, length)
