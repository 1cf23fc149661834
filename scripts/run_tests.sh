#!/bin/sh
# The whole suite on the compiled modules, after the parts that concern compiled code on the Python sources.
set -eu
bin=.venv/bin
if $bin/busway --version | grep -q ", compiled$"; then
    echo "== pure Python: unit, wire, model"
    BUSWAY_PURE=1 $bin/python -m pytest -n 2 -q tests/unit tests/wire tests/model
fi
echo "== the whole suite"
exec $bin/python -m pytest -n 2 -q tests
