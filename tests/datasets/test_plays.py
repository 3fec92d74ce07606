"""Who says what: every layout of speakers, directions and headings in the plays."""

import pytest

from tffpers.datasets import _plays

CAPITALS = """THE TITLE

PERSONS REPRESENTED.

ROSALIND, a Lady.
KING OF FRANCE.
ORLANDO,
SERVANTS and Lords

SCENE: France.

ACT I.

SCENE 1. A room
in the palace.

[Enter ROSALIND and ORLANDO.]

ROSALIND.
I pray thee,   sweet [Aside.] Orlando,
    now be gone.

ORLANDO. [To ROSALIND.]
I will.
[Exit ORLANDO,
running.]

The door is shut.

FIRST LORD.

[Aside.]

No faith.

BOTH.
We hear.

ROSALIND, ORLANDO.
We too.

FIRST LORD.
I am here.
ORLANDO.
And I.

ACT II. SCENE I.

The same. A wood.

ROSALIND. What, are there but three?

     SONG.
   Hey ho.

Orlando.
One line.

THE END
"""


def speeches(text, name='mini'):
  return _plays.parse(text, name).speeches


def test_capitals_speakers_directions_and_headings():
  assert speeches(CAPITALS) == [
    ('ROSALIND', 'I pray thee, sweet Orlando,\nnow be gone.'),
    ('ORLANDO', 'I will.\nThe door is shut.'),
    ('FIRST LORD', 'No faith.'),
    ('FIRST LORD', 'I am here.'),
    ('ORLANDO', 'And I.'),
    ('ROSALIND', 'What, are there but three?\nHey ho.'),
    ('ORLANDO', 'One line.'),
  ]


def test_speeches_of_several_and_of_nobody_are_counted():
  assert _plays.parse(CAPITALS, 'mini').left_out == len('We hear.') + len('We too.') + len(
    'The same. A wood.'
  )


def test_capitals_without_full_stop():
  text = 'ACT I\n\nSCENE I\n\nPUCK\nHow now, spirit.\n\nFIRST FAIRY\n      Over hill.\n\nPUCK\nI.\n'
  assert speeches(text) == [
    ('PUCK', 'How now, spirit.'),
    ('FIRST FAIRY', 'Over hill.'),
    ('PUCK', 'I.'),
  ]


ABBREVIATED = """PERSONS REPRESENTED.

Hamlet, Son to the former, and Nephew to Cordelia.
Guildenstern, Courtier.
Duke of Cornwall.
Cordelia, daughter.
Ghost of Hamlet's Father.

ACT I.

Scene I. A platform.

[Enter Ham.]

Ham.
Swear.

Hamlet.
Yes.
Nothing.

Guil. Ay, madam.

Guild.
No.

Guil.
What?

Cor.
I am nobody.

Corn.
I am the duke.

1 Clown.
A grave.

Ham. and Guil.
Both speak.

First Serv.
My lord.
"""


def test_abbreviations_stand_for_the_only_person_they_can_mean():
  assert speeches(ABBREVIATED) == [
    ('HAMLET', 'Swear.'),
    ('HAMLET', 'Yes.\nNothing.'),
    ('GUILDENSTERN', 'Ay, madam.'),
    ('GUILDENSTERN', 'No.'),
    ('GUILDENSTERN', 'What?'),
    ('COR', 'I am nobody.'),
    ('CORNWALL', 'I am the duke.'),
    ('1 CLOWN', 'A grave.'),
    ('FIRST SERV', 'My lord.'),
  ]


@pytest.mark.parametrize(
  'direction',
  [
    '[Exit.',
    '[Enter [all but] Bob.]',
    '[Enter Ann [and Bob.]',
    '{Exit.]',
    'Enter Ann, reading\nit.]',
    '[The Ghosts] vanish.]',
    '[Enter Ann,\nBob.',
    '[Exit.}',
    'Exeunt.',
    '[He goes\n\nout.]',
    '@@@',
  ],
)
def test_directions_left_open_or_nested_are_removed(direction):
  text = f'ACT I.\n\nANN.\nGo.\n\n{direction}\n\nBOB.\nStay.\n\nANN.\nWell.\n'
  assert speeches(text) == [('ANN', 'Go.'), ('BOB', 'Stay.'), ('ANN', 'Well.')]


@pytest.mark.parametrize(
  'line', ['Go.', 'Go. [Exit Boy.', 'Go. Exit', 'Go.Exit Boy', 'Go. [Going.]']
)
def test_directions_within_a_line_are_removed(line):
  assert speeches(f'ACT I.\n\nANN.\n{line}\nNow.\n') == [('ANN', 'Go.\nNow.')]


def test_words_of_speech_that_look_like_directions_stay():
  text = 'ACT I.\n\nANN.\nGo,\nEnter the city.\nScene by scene.\n\nBOB.\nAct well.\n'
  assert speeches(text) == [('ANN', 'Go,\nEnter the city.\nScene by scene.'), ('BOB', 'Act well.')]


def test_licence_and_typography_go():
  text = (
    'Licence of Project Gutenberg\n\nANN.\nNot yet.\n\nACT I.\r\n\r\n'
    'ANN.\r\n\u2018Tis\u2014\u201cso\u201d\u2026\r\n'
    '\r\n*** END OF THE PROJECT GUTENBERG EBOOK ***\n\nANN.\nLicence.\n'
  )
  assert speeches(text) == [('ANN', '\'Tis--"so"...')]


def test_one_person_under_two_names_is_one_role_where_the_play_says_so():
  text = 'ACT I.\n\nMARCIUS.\nI fought.\n\nCORIOLANUS.\nI won.\n'
  assert [role for role, _ in speeches(text, 'coriolanus')] == ['CORIOLANUS'] * 2
  assert [role for role, _ in speeches(text, 'mini')] == ['MARCIUS', 'CORIOLANUS']


def test_by_role_keeps_the_order_of_speeches():
  play = _plays.parse('ACT I.\n\nANN.\nOne.\n\nBOB.\nTwo.\n\nANN.\nThree.\n', 'mini')
  assert play.by_role() == {'ANN': ['One.', 'Three.'], 'BOB': ['Two.']}
