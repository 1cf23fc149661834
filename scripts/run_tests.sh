#!/bin/sh
# The whole suite, but for tests/sdk, which wants Go, Java and Rust (make test-sdk). While the hot modules are compiled, what
# concerns them is tested as plain Python; then everything runs on the compiled ones, in three parts beside each other: one
# works, one waits for real clients, one is Spark's.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # without byte code every process compiles every test and every module anew
python=.venv/bin/python
# More processes than cores, and none is waited for by a human: longer turns on a core leave caches warm.
chrt --batch --pid 0 $$ 2>/dev/null || true
#: Tests of what is compiled: they run both ways.
both_ways="tests/unit/amqp tests/unit/broker tests/unit/gateway tests/unit/rules tests/unit/staging tests/unit/store
    tests/unit/streams tests/wire tests/model"
#: And these once, as plain Python: the same changes on compiled modules are a row of make chaos; and bugs are planted
#: in the sources that compiled modules would not notice.
pure_only="tests/changes tests/unit/simulator/test_planted_changes.py"
#: But for these: HTTP, WebSocket and PostgreSQL are not compiled, and what a stranger may hold is measured once.
cannot_differ="--ignore-glob=*unit/store/test_postgres_* --ignore-glob=*test_sas_matrix* --ignore-glob=*test_http_* --ignore-glob=*test_websocket*
    --ignore-glob=*test_amqp_strangers*"
#: Tests with real clients and servers wait more than they work: more of them than cores. What is prepared once for a
#: file comes first: processes without work take tests from the end.
waiting="tests/setup tests/docs tests/fault tests/conformance tests/server tests/console"
ignoring_waiting="--ignore=tests/conformance --ignore=tests/console --ignore=tests/docs --ignore=tests/fault --ignore=tests/setup
    --ignore=tests/server"

export BUSWAY_TESTS_RUN_BOTH_BUILDS=1 # random examples are shared between the two runs

# Files of tests lie in memory where there is room: they are synced all the time, and no test needs a disk for that.
room_kb=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1 || true)
[ "${room_kb:-0}" -gt 4000000 ] && files=$(mktemp -d /dev/shm/busway-tests.XXXXXX) || files=$(mktemp -d)
compiler= collector= spark= waiters=
cleanup() {
    # shellcheck disable=SC2086
    kill $compiler $collector $spark $waiters 2>/dev/null || true
    rm -rf "$files"
}
trap cleanup EXIT

scripts/install.sh serve compile
mkdir -p build
$python scripts/compile_hot_modules.py >build/compile.log 2>&1 &
compiler=$!
scripts/install.sh develop spark
# Beside the first part: the byte code of all other tests, so that not every process makes it, and Spark's class archive.
# shellcheck disable=SC2046,SC2086
$python -m pytest --collect-only -q tests --ignore tests/sdk $(printf -- '--ignore %s ' $both_ways) >/dev/null 2>&1 &
collector=$!

echo "== pure Python: what concerns compiled modules"
# shellcheck disable=SC2086
BUSWAY_PURE=1 $python -m pytest -n 2 -q --basetemp "$files/pure" $both_ways $pure_only $cannot_differ
rm -rf "$files/pure"
wait $collector || true # what cannot be collected is told by the tests themselves
wait $compiler || { cat build/compile.log >&2; exit 1; }

echo "== the whole suite: with real clients (build/test-clients.log), on Spark (build/test-spark.log), and the rest"
.venv/bin/busway --version
# A file of Spark's stays in one process, whose session is warm. What is marked `long` is left to make chaos.
$python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m "not long" --durations 50 \
    --basetemp "$files/spark" tests/spark >build/test-spark.log 2>&1 &
spark=$!
# shellcheck disable=SC2086
$python -m pytest -n 4 --dist worksteal -q -m "not long" --durations 50 --basetemp "$files/clients" $waiting \
    >build/test-clients.log 2>&1 &
waiters=$!
failed=0
# shellcheck disable=SC2086
$python -m pytest -n 2 --dist worksteal -q -m "not long" --durations 50 --basetemp "$files/rest" tests $ignoring_waiting \
    --ignore tests/spark --ignore tests/sdk --ignore tests/changes --ignore tests/unit/simulator/test_planted_changes.py \
    || failed=$?
wait $waiters || failed=$?
cat build/test-clients.log
wait $spark || failed=$?
cat build/test-spark.log
exit $failed
