"""A command of `busway pipeline` as people run it, in processes of its own: its driver, the Java and Spark's Python
workers. All of them are one session of the operating system, so that all can be killed at once; the process group is
not enough, since Spark gives its Python workers one of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.harness.running_server import BUSWAY
from tests.spark.class_archive import java_options

#: A small Java that starts quickly.
_SETTINGS = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_WAIT_S_MAX = 240.0
_LOOK_EVERY_S = 0.02


class Job:
    """`with Job(folder, connection, "backfill", …) as job:`. What it leaves behind when it is killed is below the
    folder."""

    def __init__(
        self, folder: Path, connection: str, *arguments: str, settings: Mapping[str, str] = _SETTINGS
    ) -> None:
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        self._command = [str(BUSWAY), "pipeline", *arguments, "--master", "local[2]", *words]
        left = folder / "left"
        left.mkdir(parents=True, exist_ok=True)
        self._output = folder / "output"
        self._environment = {
            **os.environ,
            "BUSWAY_CONNECTION_STRING": connection,
            "TMPDIR": str(left),
            "SPARK_LOCAL_DIRS": str(left),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Job:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of its driver, and of the session of all its processes."""
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def end(self) -> str:
        """By itself, and well: what it said."""
        assert self._process is not None
        assert self._process.wait(_WAIT_S_MAX) == 0, self.said
        return self.said

    def kill_when(self, holds: Callable[[], bool]) -> set[str]:
        """Looks at the bus until something holds, then kills; the programs that died."""
        assert self._process is not None
        deadline = time.monotonic() + _WAIT_S_MAX
        while not holds():
            assert self._process.poll() is None, f"it ended by itself: {self.said}"
            assert time.monotonic() < deadline, f"it does not get on: {self.said}"
            time.sleep(_LOOK_EVERY_S)
        assert self._process.poll() is None, f"it ended by itself: {self.said}"
        return self.kill()

    def kill(self) -> set[str]:
        """kill -9 of every process, until there is none: one may have been started meanwhile."""
        assert self._process is not None
        died: set[str] = set()
        while members := _members(self._process.pid):
            for pid, program in members.items():
                died.add(program)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
        self._process.wait()
        return died


def _members(session: int) -> dict[int, str]:
    """Processes that live, and their programs."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, its_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(its_session) == session and state not in "ZX":
                found[int(folder.name)] = _program(folder)
    return found


def _program(process: Path) -> str:
    """`java`, or what a Python runs: a script or a module."""
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if not Path(words[0]).name.startswith("python"):
        return Path(words[0]).name
    return words[words.index("-m") + 1] if "-m" in words else Path(words[1]).name
