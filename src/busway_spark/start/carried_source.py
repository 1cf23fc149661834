"""A source that brings the way to its own code along when Spark pickles it.

Theory of operation. Spark makes a source in one process beside the driver and plans its stream in another, to which
it hands the pickled source but none of the files that were added to the session. Where our packages are installed
that is no matter. Where they came out of an archive, as on a server of Spark Connect that knows nothing of us, or a
driver that spark-submit started, the second process could not import what the pickle names. So a source out of an
archive is pickled as a function, by value, that puts the archive on the path and only then opens the rest. Both
processes run on the driver's machine; elsewhere there is no such file, and Spark's own copy of the archive is on the
path.

Executors are another matter. A session of Spark Connect keeps what its client sent in a folder of its own, and Spark
fetches that for batches, not for streams: tasks of streams look for a file of the same name among those of the
server. When it is not there, no task could be run, and the stream is refused with a sentence that tells what to do.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource

from busway_spark.start.shipping import is_archived

#: The folder of a session, beside the files of the server.
_SESSION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ServerLacksCode(RuntimeError):
    """A stream on a server of Spark Connect that was started without our archive; the text says how to start it."""


class CarriedSource(DataSource):
    def __reduce_ex__(self, protocol: Any) -> Any:
        if not is_archived():
            return super().__reduce_ex__(protocol)
        return _opened, (_Way(), type(self), self.__dict__)

    def require_code(self) -> None:
        """For streams. Raises ServerLacksCode."""
        archive = _archive()
        if not is_archived() or _SESSION.fullmatch(archive.parent.name) is None:
            return
        if (archive.parent.parent / archive.name).is_file() or _is_installed_beside(archive):
            return
        raise ServerLacksCode(
            "This server of Spark Connect runs batches of Busway's formats but no streams: Spark does not hand what a"
            " session brings along to the tasks of a stream. Start the server with --py-files and the path of"
            f" {archive.name}, which `python -m busway_spark` makes where this client runs, or install busway[spark]"
            " on the server and all workers."
        )


def _archive() -> Path:
    """Where the package lies, wherever in it this file does."""
    return Path(sys.modules["busway_spark"].__path__[0]).parent


def _is_installed_beside(archive: Path) -> bool:
    others = [path for path in sys.path if Path(path).name != archive.name or _SESSION.search(path) is None]
    return PathFinder.find_spec("busway_spark", others) is not None


class _Way:
    """Stands before the class and its contents in the pickle, so that it is open when they are imported."""

    def __reduce__(self) -> Any:
        return _lead, (str(_archive()),)


# Both run where nothing of ours can be imported yet: they may name nothing outside of themselves.


def _lead(archive: str) -> None:
    import os
    import sys

    if archive not in sys.path and os.path.isfile(archive):
        sys.path.insert(1, archive)


def _opened(_: None, kind: type[CarriedSource], state: dict[str, Any]) -> CarriedSource:
    source = kind.__new__(kind)
    source.__dict__.update(state)
    return source


#: Spark's pickler takes what belongs to a program by value, not by name.
_lead.__module__ = _opened.__module__ = "__main__"
