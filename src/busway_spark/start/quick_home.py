"""A home of Spark whose Python workers start quickly.

Theory of operation. Every Python process that Spark starts has pyspark.zip first on its path, and Python keeps
nothing of what it compiles out of an archive: each of them compiles PySpark anew, two thirds of a second of work. A
session starts about ten of them, every stream one more. The same modules lie beside it as a package, compiled when it
was installed. So SPARK_HOME becomes a directory of ours that has all of the real one by links, and in place of each
archive a directory of its name with a link to the package.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from busway_spark.start.shipping import cache_folder

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
