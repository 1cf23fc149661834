#!/bin/sh
# Creates .venv and installs Busway with its development tools. Idempotent.
set -eu
python="$1"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Busway needs Python 3.11 or later" >&2; exit 1; }
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
pip install "pip>=25.1"
pip install --editable . --group dev
# A foreign AMQP client for the tests. It has no wheel, so it needs a C compiler; its tests say so when it is missing.
pip install "python-qpid-proton>=0.39" 2>/dev/null || echo "python-qpid-proton could not be built: its tests will be skipped"
# The JavaScript SDKs for the tests, where Node exists.
if command -v npm >/dev/null 2>&1; then
    npm install --prefix tests/conformance/node --no-audit --no-fund --silent \
        || echo "the JavaScript SDKs could not be installed: their tests will be skipped"
fi
