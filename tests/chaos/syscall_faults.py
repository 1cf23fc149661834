"""strace as a saboteur: system calls of a running server are delayed or fail on purpose."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import which


class SyscallFault:
    """`with SyscallFault(pid, "fdatasync:error=EIO:when=3", folder):` holds until the block ends.

    strace counts `when` for each thread by itself. `files`: only calls on these are hit. With `follows=False`
    only the thread with that id is hit.
    """

    def __init__(
        self, pid: int, injection: str, folder: Path, *, files: Sequence[Path] = (), follows: bool = True
    ) -> None:
        self._log = folder / "strace.log"
        calls = injection.partition(":")[0]
        self._command = [
            *("strace", *(["-f"] if follows else []), "-p", str(pid), "-o", str(self._log)),
            *("-e", f"trace={calls}", "-e", f"inject={injection}"),
            *[option for file in files for option in ("-P", str(file))],
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> SyscallFault:
        self._log.unlink(missing_ok=True)
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        while line := self._process.stderr.readline():
            if "attached" in line:
                return self
        self._process.wait()
        raise RuntimeError(f"strace could not attach: {' '.join(self._command)}")

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()

    def injected(self) -> int:
        """How many calls were hit so far."""
        said = self._log.read_text() if self._log.exists() else ""
        return said.count("(INJECTED)") + said.count("(DELAYED)")


def why_not_here(folder: Path) -> str | None:
    """None where strace may attach; else the reason."""
    if which("strace") is None:
        return "strace is not installed"
    sleeper = subprocess.Popen(["sleep", "20"])
    try:
        with SyscallFault(sleeper.pid, "fdatasync:delay_enter=1", folder):
            time.sleep(0.05)
    except RuntimeError:
        return "strace may not attach to processes here"
    finally:
        sleeper.kill()
        sleeper.wait()
    return None
