#!/bin/sh
# Builds the locked environment in the folder $1. Says in one sentence what is missing.
set -eu
venv=$1

fail() { echo "tffpers: $1" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail \
  "found $(uname -s) on $(uname -m), but TensorFlow Federated 0.87 has wheels for Linux on x86-64 only; use such a machine or container."

python=
for candidate in python3.11 python3.10 python3 python; do
  version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  case $version in
    3.10 | 3.11) python=$candidate; break ;;
  esac
done
[ -n "$python" ] || fail \
  "found no Python 3.10 or 3.11 on the PATH (python3 is $(python3 --version 2>/dev/null || echo missing)); install one of them, for instance python3.11 with its venv module."

rm -rf "$venv"
"$python" -m venv "$venv" || fail \
  "$python cannot make a virtual environment; install its venv module (Debian: apt-get install ${python}-venv)."
pip="$venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps"
$pip --require-hashes -r requirements/lock.txt
# Old-style source packages are built with the locked setuptools, not with one fetched for the build.
$pip --require-hashes --no-build-isolation -r requirements/data.txt
$pip --no-build-isolation --editable .
