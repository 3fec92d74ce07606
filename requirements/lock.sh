#!/bin/sh
# Remakes the locks with hashes, for Python 3.10 and 3.11 on Linux x86-64.
set -eu
cd "$(dirname "$0")"
command -v uv >/dev/null || { echo "tffpers: remaking the locks needs uv; install it with pip." >&2; exit 1; }
export UV_CUSTOM_COMPILE_COMMAND="make lock"
compile="uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate"
$compile dev.in --override overrides.in --output-file lock.txt
$compile data.in --no-deps --output-file data.txt
$compile gpu.in --no-deps --output-file gpu.txt
