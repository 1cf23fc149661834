#!/bin/sh
# The whole suite. While the hot modules are compiled, what concerns them is tested as plain Python; then everything
# runs on the compiled ones, Spark's tests beside the others, because neither keeps two cores busy by itself.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # without byte code every process compiles every test and every module anew
python=.venv/bin/python
#: Tests of what is compiled: they run both ways.
both_ways="tests/unit/amqp tests/unit/broker tests/unit/gateway tests/unit/rules tests/unit/store tests/unit/streams
    tests/wire tests/model"
#: But for these: HTTP and WebSocket are not compiled, and what a stranger may hold is measured once.
cannot_differ="--ignore-glob=*test_sas_matrix* --ignore-glob=*test_http_* --ignore-glob=*test_websocket*
    --ignore-glob=*test_amqp_strangers*"

scripts/install.sh serve compile
compiler_says=build/compile.log
spark_says=build/test-spark.log
mkdir -p build
$python scripts/compile_hot_modules.py >$compiler_says 2>&1 &
compiler=$!
spark= collector=
trap 'kill $compiler $collector $spark 2>/dev/null || true' EXIT
scripts/install.sh develop spark
# Beside the first part: the byte code of all tests, so that not every process makes it, and Spark's class archive.
$python -m pytest --collect-only -q tests >/dev/null 2>&1 &
collector=$!

echo "== pure Python: what concerns compiled modules"
# shellcheck disable=SC2086
BUSWAY_PURE=1 $python -m pytest -n 2 -q $both_ways $cannot_differ
wait $collector || true # what cannot be collected is told by the tests themselves
wait $compiler || { cat $compiler_says >&2; exit 1; }

echo "== the whole suite, and Spark's formats and jobs beside it ($spark_says)"
.venv/bin/busway --version
# A file stays in one process, whose session is warm. Those that start Spark many times over: make test-spark, make chaos.
$python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m "not long" --durations 50 tests/spark \
    >$spark_says 2>&1 &
spark=$!
failed=0
# Tests with real clients wait more than they work: more of them than cores.
$python -m pytest -n 4 --dist worksteal -q --durations 50 tests --ignore tests/spark || failed=$?
wait $spark || failed=$?
cat $spark_says
exit $failed
