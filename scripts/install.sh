#!/bin/sh
# Installs what Busway needs into .venv, part by part: scripts/install.sh serve compile develop spark
#
#   serve     what `busway serve` imports, and byte code of Busway itself
#   compile   mypyc
#   develop   linters, test tools and the official SDKs; where Node exists those for JavaScript; where this is Debian
#             and we may, what some tests need of the system's
#   spark     PySpark, a Java for machines without one, and what the formats need (about 1 GB)
#
# A part that is there costs nothing. One that was broken off, by Ctrl-C, a full disk or a lost network, is installed
# anew, also over what looks complete. A .venv that does not work, or was made elsewhere or by another Python, is made anew.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"

fail() {
    echo "$*" >&2
    exit 1
}

check_python() {
    command -v "$python" >/dev/null 2>&1 || fail "Busway needs Python 3.11 or later, and there is no '$python' here." \
        "Install it, or name yours: make setup PYTHON=/path/to/python3.12"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Busway needs Python 3.11 or later, and" \
        "'$python' is $("$python" --version 2>&1). Name a later one: make setup PYTHON=/path/to/python3.12"
}

check_folder() {
    mkdir -p .venv 2>/dev/null && touch .venv/.writable 2>/dev/null || fail "Busway is installed into .venv in" \
        "$(pwd), and nothing can be written there (read-only, or the disk is full). Use a copy that you may write to."
    rm -f .venv/.writable
}

# Only one at a time, where the system can tell; the lock ends with the process.
lock() {
    if command -v flock >/dev/null 2>&1; then
        mkdir -p build
        exec 9>build/install.lock
        flock -n 9 || { echo "another installation is under way: waiting for it"; flock 9; }
    fi
}

# What .venv was made by and where: it cannot be moved, and does not follow another Python.
identity() {
    printf '%s %s\n' "$(pwd)" "$("$python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)')"
}

make_venv() {
    if [ "$(cat .venv/.made-by 2>/dev/null)" = "$(identity)" ] && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    echo "making .venv"
    rm -rf .venv
    "$python" -m venv .venv || { rm -rf .venv; fail "'$python -m venv' failed: see above. On Debian and Ubuntu the" \
        "package python3-venv may be missing."; }
    identity >.venv/.made-by
}

# install_packages PART WHAT PIP-ARGUMENTS...
install_packages() {
    part=$1 what=$2
    shift 2
    echo "installing $what"
    again=""
    [ ! -e ".venv/.$part-begun" ] || again="--force-reinstall"
    touch ".venv/.$part-begun" || fail "Nothing can be written to .venv: is the disk full?"
    # shellcheck disable=SC2086
    if ! said=$(.venv/bin/python -m pip --quiet --disable-pip-version-check --no-input install $again "$@" 2>&1); then
        printf '%s\n' "$said" | tail -n 5 >&2
        case "$said" in *"No space left"*)
            fail "The disk is full. Make room (about 200 MB; with Spark 1.5 GB), then run the same command again." ;;
        esac
        fail "pip could not install $what: see above. It needs a package index: without a network, fetch the packages" \
            "elsewhere with 'pip download', and set PIP_NO_INDEX=1 PIP_FIND_LINKS=THAT-FOLDER. Then run the same command again."
    fi
    rm -f ".venv/.$part-begun"
}

install_serve() {
    install_packages serve "what serving needs" --editable .
    .venv/bin/python -m compileall -q -j 0 src || true # byte code; without it every start is slower
}

install_compile() {
    install_packages compile "the compiler of the hot modules" "mypy>=2.4,<2.5" "setuptools>=70"
}

install_develop() {
    if command -v npm >/dev/null 2>&1; then
        npm install --prefix tests/conformance/node --no-audit --no-fund --silent >/dev/null 2>&1 &
        npm=$!
    fi
    install_packages pip "a pip that knows dependency groups" "pip>=25.1"
    install_packages develop "tools of development" --editable . --group dev
    # A foreign AMQP client for the tests. It has no wheel, so it needs a C compiler.
    .venv/bin/python -m pip --quiet --disable-pip-version-check install "python-qpid-proton>=0.39" 2>/dev/null ||
        echo "python-qpid-proton could not be built: its tests will be skipped"
    if [ -n "${npm:-}" ]; then
        wait "$npm" || echo "the JavaScript SDKs could not be installed: their tests will be skipped"
    fi
    install_from_debian faketime
    install_from_debian pgbouncer
    [ "${BUSWAY_NO_BROWSER:-}" = 1 ] || install_from_debian chromium
}

# What tests preload or start of the system's; without it these tests are skipped, and say so (without
# Chromium they fail).
install_from_debian() {
    command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 0
    dpkg-query --show "$@" >/dev/null 2>&1 && return 0
    { apt-get install --yes --quiet "$@" || { apt-get update --quiet && apt-get install --yes --quiet "$@"; }; } \
        >/dev/null 2>&1 || echo "$* could not be installed: its tests will be skipped"
}

install_spark() {
    install_packages spark "Spark and what its formats need (about 1 GB)" --editable ".[spark,spark-connect]"
}

[ $# -gt 0 ] || fail "scripts/install.sh serve|compile|develop|spark ..."
check_python
check_folder
lock
make_venv
for part in "$@"; do
    stamp=".venv/.$part-installed"
    if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ scripts/install.sh -nt "$stamp" ]; then
        rm -f "$stamp"
        "install_$part"
        touch "$stamp"
    fi
done
