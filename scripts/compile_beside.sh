#!/bin/sh
# Compiles the hot modules while a server runs from their sources; ends with Ctrl-C as the server does.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build
if nice -n 10 scripts/install.sh compile >build/compile.log 2>&1 &&
    nice -n 10 .venv/bin/python scripts/compile_hot_modules.py >>build/compile.log 2>&1; then
    echo "the hot modules are compiled: the next start is faster"
else
    echo "the hot modules are not compiled: build/compile.log says why; the next make run tries again"
fi
