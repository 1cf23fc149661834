#!/bin/sh
# The whole suite on the compiled modules. They are compiled, which takes minutes on one core, while what concerns
# them is tested as plain Python.
set -eu
bin=.venv/bin
if command -v "${CC:-cc}" >/dev/null; then
    compiler_says=$(mktemp)
    $bin/python scripts/compile_hot_modules.py >"$compiler_says" 2>&1 &
    compiler=$!
    echo "== pure Python: what concerns compiled modules"
    BUSWAY_PURE=1 $bin/python -m pytest -n 2 -q tests/unit/amqp tests/unit/broker tests/unit/gateway tests/unit/rules \
        tests/unit/store tests/unit/streams tests/wire tests/model --ignore-glob="*test_sas_matrix*"
    wait $compiler || { cat "$compiler_says" >&2; exit 1; }
    rm "$compiler_says"
fi
echo "== the whole suite"
$bin/busway --version
# Tests with real clients wait more than they work: more of them than cores.
$bin/python -m pytest -n 6 --dist worksteal -q tests --ignore tests/spark
echo "== Spark: formats and jobs against real servers"
# A file stays in one process, whose session is warm. Those that start Spark many times over: make test-spark, make chaos.
$bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -q -m "not long" tests/spark
