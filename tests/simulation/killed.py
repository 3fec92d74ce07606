"""`python killed.py <process> <when> <folder>`: a run that dies in its fourth round."""

import sys

import toy_process

toy_process.run_and_die(*sys.argv[1:])
