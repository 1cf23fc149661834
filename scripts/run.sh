#!/bin/sh
# Serves as soon as what serving needs is there. The hot modules are compiled beside it; the next start runs them.
set -eu
cd "$(dirname "$0")/.."
scripts/install.sh serve
case "$(.venv/bin/busway --version)" in
*", compiled") ;;
*)
    if command -v "${CC:-cc}" >/dev/null 2>&1; then
        mkdir -p build
        echo "serving from the Python sources; the hot modules are compiled meanwhile and run from the next start on"
        # A grandchild, because the server takes this process over and waits for no child.
        (scripts/compile_beside.sh &)
    else
        echo "no C compiler found: Busway runs as pure Python"
    fi
    ;;
esac
exec .venv/bin/busway serve --data "${BUSWAY_DATA:-data}"
