#!/bin/sh
# Builds two wheels: dist/busway-….whl with the compiled modules, for this version of Python on this platform, and
# dist/pure/busway-….whl for all others. Without a C compiler the pure one is the only one, and lies in dist.
set -eu
cd "$(dirname "$0")/.."
scripts/install.sh serve compile

build_wheel() {
    echo "building $1"
    .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input wheel --no-deps --wheel-dir "$2" .
}

rm -rf dist
mkdir -p dist
build_wheel "the wheel of the Python sources" dist/pure
.venv/bin/python scripts/compile_hot_modules.py
case "$(.venv/bin/busway --version)" in
*", compiled") BUSWAY_WHEEL=compiled build_wheel "the wheel with compiled modules" dist ;;
*) mv dist/pure/*.whl dist/ && rmdir dist/pure ;;
esac
ls -l dist/*.whl dist/pure/*.whl 2>/dev/null || true
