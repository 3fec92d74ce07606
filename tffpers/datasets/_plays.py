"""Reads plays in Project Gutenberg's plain-text layouts: who says what.

All are paragraphs between blank lines, the first line of a speech being its
speaker: `ROSALIND.`, `LYSANDER`, `Ham.`, `First Serv.`, or, now and then, the
speaker and the speech on one line. Directions stand in brackets, a few of them
opened and never closed or the reverse.
"""

import re
from typing import NamedTuple

from tffpers.datasets import _roles

_TYPOGRAPHY = str.maketrans(
  {
    '\u2018': "'",
    '\u2019': "'",
    '\u201c': '"',
    '\u201d': '"',
    '\u2013': '--',
    '\u2014': '--',
    '\u2026': '...',
    '\u00a0': ' ',
    '\ufeff': None,
  }
)
_CAPITALS = re.compile(r"[A-Z0-9][A-Z'&.,]*(?: (?:and|&|[A-Z][A-Z'&.,]*))*")
_MIXED = re.compile(r'(?:[0-9I] )?[A-Z][a-z]*\.?(?: (?:and|[A-Z][a-z]*\.?))*')
_HEADING = re.compile(
  r'(?:ACT|SCENE)\b[\s.:-]*(?:[IVX]+|\d+|FIRST|SECOND|THIRD|FOURTH|FIFTH)\b', re.I
)
_START = re.compile(
  r'^[ \t]*(?:THE )?(?:PROLOGUE|INDUCTION|ACT (?:1|I|FIRST))\.?[ \t]*$', re.I | re.M
)
_END = re.compile(r'^.*END OF (?:THE |THIS )?PROJECT GUTENBERG', re.I | re.M)
_BARE_DIRECTION = re.compile(r'(?:Re-)?[Ee]nter(?: [A-Z]| a |, from )|Exit\b|Exeunt\b')
_TRAILING_EXIT = re.compile(r'(?<=[.!?])\s*(?:Exit|Exeunt)(?: [A-Z]\w+)?\.?$')
_INNER_HEADING = re.compile(r'\s+[A-Z]+\.?\s*|@+')
_SAME_LINE = re.compile(r"((?:[A-Z][A-Za-z']*\.? ?){1,4})[.]\s+(\S.*)")


class Play(NamedTuple):
  """Speeches of one play, and how much text had no single speaker.

  Attributes:
    speeches: `(role, text)` in the play's order.
    left_out: Characters spoken by several at once or under no name.
  """

  speeches: list[tuple[str, str]]
  left_out: int

  def by_role(self) -> dict[str, list[str]]:
    """Each role's speeches in order; roles in order of their first speech."""
    result: dict[str, list[str]] = {}
    for role, text in self.speeches:
      result.setdefault(role, []).append(text)
    return result


def parse(text: str, name: str) -> Play:
  """The speeches of a play, without names, directions, headings and licence.

  Args:
    text: The whole file.
    name: The play's name, the file's without its ending; picks the aliases.
  """
  text = text.translate(_TYPOGRAPHY).replace('\r\n', '\n')
  start = _START.search(text)
  end = _END.search(text)
  persons = text[: start.start()] if start else ''
  body = text[start.start() if start else 0 : end.start() if end else len(text)]
  paragraphs = [_strip_directions(part) for part in re.split(r'\n[ \t]*\n', body)]
  lines = [[line.rstrip() for line in part.split('\n') if line.strip()] for part in paragraphs]
  return _collect([part for part in lines if part], _Labels(lines, persons, name))


def _strip_directions(paragraph: str) -> str:
  """Removes what stands in brackets, however they are nested or left open."""
  paragraph = paragraph.replace('{', '[').replace('}', ']')
  inner = re.compile(r'\[[^\[\]]*\]')
  while inner.search(paragraph):
    paragraph = inner.sub('', paragraph)
  before, orphan, after = paragraph.partition(']')
  if orphan:
    paragraph = before + after if _CAPITALS.fullmatch(before.strip()) else after
  if paragraph.lstrip().startswith('[') or _BARE_DIRECTION.match(paragraph.lstrip()):
    return ''
  return re.sub(r'\[.*', '', paragraph)


class _Labels:
  """Recognises speakers: names that head a paragraph with text right below."""

  def __init__(self, paragraphs: list[list[str]], persons: str, play: str):
    heads = [part[0] for part in paragraphs if len(part) > 1]
    capitals = [head for head in heads if _is_capitals(head)]
    mixed = [head for head in heads if _MIXED.fullmatch(head) and head.endswith('.')]
    self._capitals = len(capitals) >= len(mixed)
    self._known = {_key(head) for head in (capitals if self._capitals else mixed)}
    self._roles = _roles.Roles(persons, play)

  def read(self, line: str, first: bool) -> tuple[str, str] | None:
    """`(role, rest of the line)`, or `None` if the line is speech; role '' is nobody."""
    if self._capitals and _is_capitals(line):
      if _key(line) in self._known:
        return self._roles.role(_key(line)), ''
      return ('', '') if first else None
    if not first:
      return None
    if line.endswith('.') and _key(line) in self._known:
      return self._roles.role(_key(line)), ''
    match = _SAME_LINE.fullmatch(line)
    if match and _key(match[1]) in self._known:
      return self._roles.role(_key(match[1])), match[2]
    return None


def _is_capitals(line: str) -> bool:
  return len(line) > 2 and not line.endswith(',') and _CAPITALS.fullmatch(line) is not None


def _key(label: str) -> str:
  return ' '.join(label.rstrip('.:- ').upper().split())


def _collect(paragraphs: list[list[str]], labels: _Labels) -> Play:
  speeches: list[tuple[str, list[str]]] = []
  for part in paragraphs:
    if _HEADING.match(part[0]):
      speeches.append(('', []))
      continue
    for i, line in enumerate(part):
      label = labels.read(line, first=i == 0)
      if label:
        speeches.append((label[0], []))
        line = label[1]
      line = _clean(line)
      if line and speeches:
        speeches[-1][1].append(line)
  texts = [(role, '\n'.join(lines)) for role, lines in speeches if lines]
  left_out = sum(len(text) for role, text in texts if not role)
  return Play([(role, text) for role, text in texts if role], left_out)


def _clean(line: str) -> str:
  if _INNER_HEADING.fullmatch(line):
    return ''
  return ' '.join(_TRAILING_EXIT.sub('', line).split())
