"""An archive of Spark's Java classes, parsed and verified: with it a Java of the tests starts with half the work.

Theory of operation. Java can write the classes that it has loaded into a file (class-data sharing) and map that file
in later lives instead of unpacking, parsing and verifying thousands of classes again. The file is made by one session
(`class_training`), when there is none for this Java and this Spark, and stays with the interpreter, so that later
runs find it. It is written under another name and then renamed, behind a lock: whoever comes meanwhile waits. Java
looks at it by itself and goes on without it when it is damaged or was written by another Java or of other jars; where
it cannot be made a note is left, and tests run without one. It is never a reason for a test to fail.

    python -m tests.spark.class_archive        makes it, if there is none, and prints the options for Java
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from busway_spark.start.session import SPARK_HOME, JavaMissing, java_home, quick_home

#: Many short lives of Java, two cores: compiling well costs more than it gives.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: A few rows in each test: to compile and to re-plan every query costs more than it gives. For drivers: Spark takes
#: what Java was told of it for its own settings.
FEW_ROWS = " ".join(
    (
        "-Dspark.sql.codegen.wholeStage=false",
        "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
        "-Dspark.sql.adaptive.enabled=false",
    )
)
#: Archives made by one kind of collector are mapped by the same kind.
_COLLECTOR = "-XX:+UseSerialGC"
_ROOT = Path(__file__).parents[2]
_FOLDER = Path(sys.prefix) / "var" / "spark-classes"
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_ASK_S_MAX = 60.0
_MAKE_S_MAX = 300.0
#: Handed on to processes of this run, which need not look again.
_DECIDED = "BUSWAY_TESTS_JAVA_OPTIONS"


@cache
def java_options() -> str:
    """For every Java of the tests. Makes the archive if there is none."""
    if _DECIDED not in os.environ:
        shared = _shared()
        os.environ[_DECIDED] = SHORT_LIFE if shared is None else f"{SHORT_LIFE} {shared}"
    return os.environ[_DECIDED]


def _shared() -> str | None:
    """The option that names the archive; None where there can be none."""
    try:
        program = _java()
        asked = [program, "-XshowSettings:properties", "-version"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_S_MAX, check=True).stderr
        found = _HOME.search(told)
        if found is None:
            return None
        name = hashlib.sha256(f"{_version(told)}\n{found.group(1)}\n{_jars()}".encode()).hexdigest()[:20]
        _FOLDER.mkdir(parents=True, exist_ok=True)
        return _kept(_FOLDER / name, program, Path(found.group(1)))
    except (OSError, subprocess.SubprocessError, JavaMissing):
        return None


def _java() -> str:
    """The one that sessions of this process get."""
    home = java_home() or os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def _version(told: str) -> str:
    """What differs between two builds of Java, and not between two calls."""
    return "\n".join(line for line in told.splitlines() if "version" in line or "(build" in line)


def _jars() -> str:
    """Java takes an archive only with the jars that it was made of, unchanged and at the same place."""
    home = os.environ.get(SPARK_HOME) or quick_home() or Path(pyspark.__file__).parent
    jars = Path(home) / "jars"
    return "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in sorted(jars.glob("spark-*.jar")))


def _kept(stem: Path, program: str, java_home: Path) -> str | None:
    archive, base, note = (stem.with_suffix(suffix) for suffix in (".jsa", ".base.jsa", ".none"))
    with stem.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists() and not note.exists():
            is_bare = not any((java_home / "lib").rglob("classes.jsa"))
            try:
                _make(archive, _base(base, program) if is_bare else None)
            except (OSError, subprocess.SubprocessError) as error:
                note.write_text(f"{error}\n{getattr(error, 'stderr', None) or ''}")
    if not archive.exists():
        return None
    return f"-XX:SharedArchiveFile={base}:{archive}" if base.exists() else f"-XX:SharedArchiveFile={archive}"


def _base(base: Path, program: str) -> Path:
    """Of Java's own classes, for a Java that was delivered without one."""
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        made = Path(folder) / base.name
        command = [program, "-Xshare:dump", _COLLECTOR, f"-XX:SharedArchiveFile={made}"]
        subprocess.run(command, capture_output=True, text=True, timeout=_MAKE_S_MAX, check=True)
        os.replace(made, base)
    return base


def _make(archive: Path, base: Path | None) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        options = [SHORT_LIFE, FEW_ROWS, "-Xlog:disable", f"-XX:ArchiveClassesAtExit={made}"]
        if base is not None:
            options.append(f"-XX:SharedArchiveFile={base}")
        environment = {
            **os.environ,
            "SPARK_LAUNCHER_OPTS": SHORT_LIFE,
            "SPARK_SUBMIT_OPTS": " ".join(options),
        }
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.class_training"],
            capture_output=True, text=True, timeout=_MAKE_S_MAX, check=True, cwd=_ROOT, env=environment,
        )  # fmt: skip
        os.replace(made, archive)


if __name__ == "__main__":
    print(java_options())
