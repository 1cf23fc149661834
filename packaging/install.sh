#!/bin/sh
# Installs Busway from a wheel into a folder of its own, or another version of it over the one that is there:
#
#   packaging/install.sh /opt/busway dist/busway-*.whl
#
# Nothing else of the system is changed. The folder can be removed, not moved.
set -eu
python="${PYTHON:-python3}"

[ $# -eq 2 ] || { echo "packaging/install.sh FOLDER WHEEL (one wheel: make dist builds it)" >&2; exit 2; }
prefix=$1 wheel=$2
[ -f "$wheel" ] || { echo "There is no wheel $wheel: make dist builds it." >&2; exit 1; }
"$python" -m venv "$prefix"
pip() { "$prefix/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }
pip install "$wheel"
pip install --force-reinstall --no-deps "$wheel" # also where a wheel of the same version was there before
"$prefix/bin/busway" --version
