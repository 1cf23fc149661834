#!/bin/sh
# Everything for work on Busway but Spark. The hot modules are compiled while the tools of development are installed.
set -eu
cd "$(dirname "$0")/.."
scripts/install.sh serve compile
.venv/bin/python scripts/compile_hot_modules.py &
compiler=$!
trap 'kill $compiler 2>/dev/null || true' EXIT
scripts/install.sh develop
wait $compiler
