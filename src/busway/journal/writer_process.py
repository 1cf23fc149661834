"""The journal's writer as the server sees it: a child process with a pipe in each direction, neither of which is ever
waited for. It ends by itself when the server's end of its input goes, also when the server is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, Final

from busway.journal.writer import WriterSettings

_MODULE: Final = "busway.journal.writer"
_READ_BYTES: Final = 64 * 1024
#: What it tells on one line; it tells less.
_LINE_BYTES_MAX: Final = 64 * 1024
#: Columns are large and come and go every second or so: their memory is kept, not given back and asked for again.
_ALLOCATION: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


class WriterProcess:
    """Started when it is made. Raises OSError."""

    def __init__(self, settings: WriterSettings) -> None:
        self._process = subprocess.Popen(
            # -P: the folder that the server was started in is no place to import from.
            [sys.executable, "-P", "-m", _MODULE, settings.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ALLOCATION},
        )
        self.input = _unblocked(self._process.stdin)
        self.output = _unblocked(self._process.stdout)
        self._told = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: memoryview) -> int:
        """How many bytes it takes just now. Raises OSError when it is gone."""
        try:
            return os.write(self.input, data)
        except BlockingIOError:
            return 0

    def facts(self) -> list[dict[str, object]] | None:
        """What it has told since; None when it is gone."""
        try:
            data = os.read(self.output, _READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data or len(self._told) > _LINE_BYTES_MAX:
            return None
        *lines, self._told = (self._told + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def end_input(self) -> None:
        """No more frames: it finishes its file and goes."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """It is reaped by `is_gone`."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Our ends of the pipes."""
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def is_gone(self) -> bool:
        return self._process.poll() is not None


def _unblocked(end: IO[bytes] | None) -> int:
    assert end is not None
    os.set_blocking(end.fileno(), False)
    return end.fileno()
