#!/bin/sh
# The whole suite on the compiled modules, after the parts that concern compiled code on the Python sources.
set -eu
bin=.venv/bin
if $bin/busway --version | grep -q ", compiled$"; then
    echo "== pure Python: what concerns compiled modules"
    BUSWAY_PURE=1 $bin/python -m pytest -n 2 -q tests/unit/amqp tests/unit/broker tests/unit/gateway tests/unit/rules \
        tests/unit/store tests/unit/streams tests/wire tests/model
fi
echo "== the whole suite"
# Tests with real clients wait more than they work: more of them than cores.
$bin/python -m pytest -n 6 --dist worksteal -q tests --ignore tests/spark
echo "== Spark: formats and jobs against a real server, in one session"
$bin/python -m pytest -n 0 -q tests/spark
