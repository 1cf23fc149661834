"""The driver's side of the nursery: started once in a process, for all sessions and jobs of it.

It ends with this process, however that ends: its standard input is a pipe of ours. Where there is none (our code in
an archive, Spark Connect, systems other than Linux, where a process must not fork with Arrow in it) formats are
registered as always, and Spark's processes are their own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from busway_spark.start.shipping import is_archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NURSERY: Final = "BUSWAY_PYTHON_NURSERY"
_PATH: Final = "PYTHONPATH"
_FOLDER: Final = Path(__file__).parent
_FOLDER_LETTERS_MAX: Final = 60
_START_S_MAX: Final = 60.0
_END_S_MAX: Final = 10.0


class LentPython:
    """A nursery that runs."""

    def __init__(self, environment: dict[str, str]) -> None:
        """Raises OSError."""
        self.pid = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="busway-python-", dir=_short_folder())
        self.address = f"{self._folder}/socket"
        command = [sys.executable, "-P", str(_FOLDER / "nursery.py"), self.address]
        # Arithmetic of NumPy is not done here: no threads for it, which a fork would not have.
        more = {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "YES", **environment}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **more})
        atexit.register(self.end)

    @property
    def is_running(self) -> bool:
        return self.pid == os.getpid() and self._process.poll() is None

    @property
    def process_id(self) -> int:
        return self._process.pid

    def wait(self) -> bool:
        """Until it can be asked; False when it cannot."""
        deadline = time.monotonic() + _START_S_MAX
        while self.is_running and time.monotonic() < deadline:
            if os.path.exists(self.address):
                return True
            time.sleep(0.01)
        return False

    def end(self) -> None:
        if self.pid == os.getpid():
            with suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S_MAX)
            shutil.rmtree(self._folder, ignore_errors=True)


def _short_folder() -> str:
    """For temporary files; the name of a socket has room for little more than a hundred letters."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _FOLDER_LETTERS_MAX else "/tmp"


_lent: LentPython | None = None


@contextmanager
def shared_python(spark: SparkSession) -> Iterator[None]:
    """Formats that are registered meanwhile are planned, read and committed by forks of one process."""
    if is_archived() or not hasattr(spark, "_jsc") or sys.platform != "linux":
        yield
        return
    context: Any = spark.sparkContext
    lent = _running(dict(context.environment))
    if lent is None:
        yield
        return
    before = dict(context.environment)
    java = int(context._jvm.java.lang.ProcessHandle.current().pid())
    paths = [str(_FOLDER / "entrance"), before.get(_PATH, "")]
    context.environment[NURSERY] = f"{java}:{lent.address}"
    context.environment[_PATH] = os.pathsep.join(path for path in paths if path)
    try:
        yield
    finally:
        context.environment.clear()
        context.environment.update(before)


def _running(environment: dict[str, str]) -> LentPython | None:
    global _lent
    if _lent is None or not _lent.is_running:
        try:
            _lent = LentPython(environment)
        except OSError:
            return None
    return _lent if _lent.wait() else None
