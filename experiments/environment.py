"""Import this first in a script: what is missing is said in one sentence, without a traceback."""

import sys

try:
  from tffpers import requirements
except ImportError:
  sys.exit('tffpers is not installed for this Python. Run `make run`, or .venv/bin/python.')
requirements.exit_if_unmet()
