"""Reading what a study wrote; every study's caption ends with the command."""

import csv

import matplotlib.image


def table(folder, name):
  """Rows of a table whose caption, in both of its files, ends with the tests' command."""
  caption, *lines = (folder / f'{name}.csv').read_text(encoding='utf-8').splitlines()
  assert caption.endswith('Command: python x.py')
  assert (folder / f'{name}.md').read_text(encoding='utf-8').startswith(caption[2:])
  return list(csv.DictReader(lines))


def assert_picture(path):
  """Something is drawn."""
  assert matplotlib.image.imread(path).std() > 0.01
