"""Who is meant by a speaker's name in a play."""

import re

# What the persons of a play and its spelling do not tell: one person under two names
# (a title gained, a cover dropped), abbreviations of a second name, misprints, and
# names side by side without an "and" (an empty role: several at once).
_ALIASES: dict[str, dict[str, str]] = {
  'coriolanus': {'MARCIUS': 'CORIOLANUS', 'TITUS LARTIUS': 'LARTIUS'},
  'hamlet': {
    'I PLAY': 'FIRST PLAYER',
    'I PLAYER': 'FIRST PLAYER',
    'I SAILOR': 'FIRST SAILOR',
    'LUC': 'LUCIANUS',
    'PRO': 'PROLOGUE',
  },
  'henry_iv_part_1': {
    'ARCH': 'ARCHBISHOP',
    'CAR': 'CARRIER',
    'CHAM': 'CHAMBERLAIN',
    'DOUG': 'DOUGLAS',
    'FRAN': 'FRANCIS',
    'HOST': 'HOSTESS',
    'HOT': 'HOTSPUR',
    'LADY': 'LADY PERCY',
    'LADY P': 'LADY PERCY',
    'NORTH': 'NORTHUMBERLAND',
    'WOR': 'WORCESTER',
  },
  'henry_v': {'KING': 'KING HENRY'},
  'henry_vi_part_1': {'CARDINAL': 'WINCHESTER', 'PLANTAGENET': 'YORK'},
  'henry_vi_part_2': {'KING HENRY': 'KING'},
  'henry_vi_part_3': {
    'EDWARD': 'KING EDWARD',
    'GEORGE': 'CLARENCE',
    'LADY GREY': 'QUEEN ELIZABETH',
    'LEWIS': 'KING LEWIS',
    'RICHARD': 'GLOSTER',
  },
  'henry_viii': {'KATHERINE': 'QUEEN KATHERINE'},
  'julius_caesar': {'VARRO. CLAUDIUS': '', 'TITINIUS. MESSALA': ''},
  'lear': {'COR': 'CORDELIA', 'DOCT': 'PHYSICIAN', 'GLOU': 'GLOSTER'},
  'merchant_of_venice': {'DUKE OF VENICE': 'DUKE'},
  'midsummer_nights_dream': {'MOON': 'MOONSHINE'},
  'pericles': {
    'BARD': 'BAWD',
    'HELCANUS': 'HELICANUS',
    'HELICANE': 'HELICANUS',
    'PERACLES': 'PERICLES',
  },
  'richard_ii': {'HENRY PERCY': 'PERCY'},
  'richard_iii': {'GLOSTER': 'KING RICHARD'},
  'romeo_and_juliet': {'FRIAR': 'FRIAR LAWRENCE'},
  'timon_of_athens': {'LUCULLIUS': 'LUCULLUS'},
  'tragedy_of_titus_andronicus': {'BOY': 'YOUNG LUCIUS'},
  'troilus_and_cressida': {'ANDARUS': 'PANDARUS'},
}

_SEVERAL = re.compile(r' AND |[,&]|^(?:ALL|BOTH)\b')


class Roles:
  """One role for each person of a play.

  An abbreviation stands for the one person in the play's list whose name begins
  with it: `Ham.` is HAMLET, but `Cor.` is neither Cordelia nor Cornwall.
  """

  def __init__(self, persons: str, play: str):
    # What follows a comma tells who somebody is, with the names of others in it.
    heads = [line.split(',')[0] for line in persons.splitlines()]
    words = re.findall(r"[A-Z']+", ' '.join(heads).upper())
    self._names = {word.removesuffix("'S") for word in words}
    self._aliases = _ALIASES.get(play, {})

  def role(self, label: str) -> str:
    """The role of a label in capitals without its full stop; '' if several speak."""
    if label in self._aliases:
      return self._aliases[label]
    if _SEVERAL.search(label):
      return ''
    if label in self._names or not label.isalpha():
      return label
    longer = [name for name in self._names if name.startswith(label) and name != label + 'S']
    return longer[0] if len(longer) == 1 else label
