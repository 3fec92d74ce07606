"""Says in one sentence what the federated half of tffpers lacks on this machine."""

import importlib.metadata
import platform
import sys

WANTED = {'tensorflow-federated': '0.87.0', 'tensorflow': '2.14.1'}
_HELP = 'Run `make run` or `make test` in the repository: both build the locked environment.'


def problem() -> str | None:
  """One sentence on what was found and what to do, or None if all is well."""
  if sys.version_info[:2] not in ((3, 10), (3, 11)):
    return (
      f'Found Python {platform.python_version()}, but TensorFlow Federated 0.87 runs on '
      f'Python 3.10 and 3.11 only. {_HELP}'
    )
  if (platform.system(), platform.machine()) != ('Linux', 'x86_64'):
    return (
      f'Found {platform.system()} on {platform.machine()}, but TensorFlow Federated 0.87 '
      'has wheels for Linux on x86-64 only; use such a machine or container.'
    )
  for package, wanted in WANTED.items():
    try:
      found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found = 'none'
    if found != wanted:
      return f'Found {package} {found}, but tffpers needs {package} {wanted}. {_HELP}'
  return None


def check() -> None:
  """Raises ImportError with `problem`'s sentence, if there is one."""
  sentence = problem()
  if sentence:
    raise ImportError(sentence)


def exit_if_unmet() -> None:
  """Ends a script with `problem`'s sentence and no traceback, if there is one."""
  sentence = problem()
  if sentence:
    sys.exit(f'tffpers: {sentence}')
