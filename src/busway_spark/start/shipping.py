"""Our code on machines that lack it: one archive of all that executors import, added to the session.

Theory of operation. Spark pickles readers and writers by reference, so an executor must be able to import them. In a
cluster nobody says that our packages are installed on the workers. They are Python alone, so they travel as an
archive that Spark hands to every executor and puts first on its path; what an executor runs is then always what the
driver runs. The archive lies in the user's cache under a name made of its content: made once, and never changed
while somebody serves it. Compiled modules cannot be loaded out of an archive; the same sources run uncompiled
instead, unless the worker has an installed copy that was compiled from them (`busway.compiled`).

Formats that Spark finds by itself run on executors under the driver's interpreter and without added files, so both
are registered by hand behind the archive. The process that plans a stream, on the driver, gets no added files at all:
it finds the archive by the path that Java hands down to it, which must be set before Java starts.

    python -m busway_spark        makes the archive and prints its path, for spark-submit --py-files
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cache_folder() -> Path:
    """Of the user alone: what lies there is run. Where the user has no home, one for this process."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(given) if given else Path.home() / ".cache") / "busway"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="busway-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="busway-"))


#: Ours, and of others what ours import on executors and what is Python alone.
PACKAGES: Final = ("busway", "busway_spark", "defusedxml")
MODULES: Final = ("pyspark_eventhubs", "pyspark_servicebus", "mypy_extensions")
_LEFT_OUT: Final = frozenset({"__pycache__", "_compiled", ".pyc", ".so", ".pyd"})
#: The same content gives the same bytes.
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_NAME_LENGTH: Final = 20


class CodeMissing(RuntimeError):
    """A module that executors need cannot be packed; the text says which."""


def ship_code(spark: SparkSession) -> Path | None:
    """Lets the executors of any session import our packages, and registers both formats with it. May be called again.
    None when our code came out of an archive itself, as with `spark-submit --py-files`: then Spark has shipped it."""
    archive = own_archive()
    if archive is not None:
        _add(spark, archive)
    from pyspark_eventhubs import DefaultSource as EventHubs
    from pyspark_servicebus import DefaultSource as ServiceBus

    for source in (EventHubs, ServiceBus):
        spark.dataSource.register(source)
    return archive


@cache
def own_archive() -> Path | None:
    """The archive of this process: asked for once, because a session that has it puts it on our own path, too."""
    return None if is_archived() else code_archive()


def is_archived() -> bool:
    """Whether our own code came out of an archive."""
    return not Path(__file__).is_file()


def lead_planners() -> None:
    """Puts the archive on the path of the Python processes that the driver's Java will start."""
    archive = own_archive()
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if archive is not None and str(archive) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(archive)])


def _add(spark: SparkSession, archive: Path) -> None:
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark.addArtifacts(str(archive), pyfile=True)
    elif archive.name not in _included(spark):
        spark.sparkContext.addPyFile(str(archive))


def _included(spark: SparkSession) -> list[str]:
    names: list[str] = list(getattr(spark.sparkContext, "_python_includes", []))
    return names


def code_archive(into: Path | None = None) -> Path:
    """The archive; made when there is none with this content. Raises CodeMissing."""
    files = dict(_files())
    folder = cache_folder() if into is None else into
    archive = folder / f"busway-{_digest(files)[:_NAME_LENGTH]}.zip"
    if not archive.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(archive, files)
    return archive


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _write(archive: Path, files: dict[str, bytes]) -> None:
    """In one step: another process may be about to use it."""
    handle, name = tempfile.mkstemp(dir=archive.parent, suffix=".part")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            packed.writestr(zipfile.ZipInfo(path, _MOMENT), content, zipfile.ZIP_DEFLATED)
    os.replace(name, archive)


def _files() -> Iterator[tuple[str, bytes]]:
    """Names in the archive and contents, in one order on every machine."""
    for name in PACKAGES:
        folder = _origin(name).parent
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not _LEFT_OUT.intersection((*inside.parts, path.suffix)):
                yield f"{name}/{inside.as_posix()}", path.read_bytes()
    for name in MODULES:
        yield f"{name}.py", _origin(name).read_bytes()


def _origin(name: str) -> Path:
    found = find_spec(name)
    origin = None if found is None else found.origin
    if origin is None or not Path(origin).is_file():
        raise CodeMissing(f"The module {name} is not installed as a file, so executors cannot get it.")
    return Path(origin)
