"""From the recorder to the writer, without ever waiting.

Theory of operation. Sealed frames stand in a line with a bound and go through a pipe as fast as the writer takes
them. Every row has one of three fates, and all are counted: it is written (the writer says so when its file is
finished), it was left out, or it is under way. Left out are frames that find the line full, rows that the writer
could not write, and whatever a writer that dies had taken. A dead writer is started again, after a pause that
grows while it keeps dying; meanwhile the line fills up.

The writer is a process of its own, so that it shares no lock with the loop. `WriterProcess` is how the server sees
it: a child with a pipe in each direction, neither of which is ever waited for. It ends by itself when the server's
end of its input goes, also when the server is killed.

A time of losses is told once when it begins and once when rows are written again, with their number.

The server's own work never fails because of any of this: everything here runs beside it, in callbacks of the loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import IO, Final

from busway.clock import Clock
from busway.event_loop import LOOP
from busway.journal.recorder import Recorder
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


_log = logging.getLogger("busway.journal")

#: Frames that wait for the writer.
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
#: What has gathered is sealed at least so often.
_SEAL_EVERY_S: Final = 1.0
_RESTART_S: Final = 1.0
_RESTART_S_MAX: Final = 30.0
#: How long a server that stops waits for the last file; then for the process to be gone.
_STOP_S: Final = 10.0
_REAP_S: Final = 0.01
_REAP_TRIES: Final = 100


class JournalUnavailable(Exception):
    """It cannot be kept at all; the text is one sentence for the user."""


def check(folder: Path) -> None:
    """Before anything starts. Raises JournalUnavailable."""
    if importlib.util.find_spec("pyarrow") is None:
        raise JournalUnavailable(
            "--journal writes Parquet files and needs pyarrow: pip install 'busway[arrow]'."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise JournalUnavailable(
            f"--journal: nothing can be written to {folder}: {error.strerror}. Give a folder that can be written to."
        ) from error


class Feed:
    """See the head of this file."""

    def __init__(self, settings: WriterSettings, clock: Clock, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self.recorder = Recorder(clock, self._sealed)
        #: In finished files, and left out, since the start.
        self.rows = 0
        self.rows_left_out = 0
        self._settings = settings
        self._line_bytes_max = line_bytes_max
        #: Frames that wait, with their rows; of the first some bytes may have gone already.
        self._line: deque[tuple[memoryview, int]] = deque()
        self._line_bytes = 0
        self._first_left: memoryview | None = None
        #: Rows that the writer has taken and has not told about.
        self._under_way = 0
        self.writer: WriterProcess | None = None
        self._gone: list[WriterProcess] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_writing = False
        self._pause_s = _RESTART_S
        self._tick_handle: asyncio.TimerHandle | None = None
        self._start_handle: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None
        #: What was left out when the present time of losses began; None outside of one.
        self._losing_from: int | None = None

    # -- life

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start_writer()
        self._tick()

    async def stop(self) -> None:
        """Everything that was told so far is written, if the writer can."""
        loop = self._loop
        if loop is None:
            return
        self.recorder.seal()
        self._loop = None
        self._cancel(self._tick_handle)
        self._cancel(self._start_handle)
        if self.writer is not None:
            self._ended = loop.create_future()
            if not self._is_writing:
                self._write(loop)
            try:
                await asyncio.wait_for(self._ended, _STOP_S)
            except TimeoutError:
                self._leave_writer(loop)
        self._leave_out(sum(rows for _, rows in self._line), "the server stops")
        self._line.clear()
        for _ in range(_REAP_TRIES):
            if all([writer.is_gone() for writer in self._gone]):
                return
            await asyncio.sleep(_REAP_S)

    def _leave_writer(self, loop: asyncio.AbstractEventLoop) -> None:
        """The server will not wait any longer. The writer learns that its input has ended and does what it can."""
        writer, self.writer = self.writer, None
        if writer is not None:
            self._unwatch_input(loop, writer)
            loop.remove_reader(writer.output)
            writer.close()
            _log.warning("the journal's writer is left alone with %d rows of its last file", self._under_way)

    @staticmethod
    def _cancel(handle: asyncio.TimerHandle | None) -> None:
        if handle is not None:
            handle.cancel()

    def _tick(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._tick_handle = loop.call_later(_SEAL_EVERY_S, self._tick)
        began_s = LOOP.now()
        self._gone = [writer for writer in self._gone if not writer.is_gone()]
        self.recorder.seal()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, "rows of the journal")

    # -- frames

    def _sealed(self, frame: bytes, rows: int) -> None:
        if self._line_bytes + len(frame) > self._line_bytes_max:
            self._leave_out(rows, "the writer does not keep up")
            return
        self._line.append((memoryview(frame), rows))
        self._line_bytes += len(frame)
        if self._loop is not None and not self._is_writing:
            self._write(self._loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """As much as the pipe takes; the loop tells when it takes more."""
        writer = self.writer
        if writer is None:
            return
        try:
            while self._line and self._write_first(writer):
                pass
        except OSError:
            # It is dying; the end of its output says so, and counts what it had.
            self._unwatch_input(loop, writer)
            return
        if not self._line:
            self._unwatch_input(loop, writer)
            if self._ended is not None:
                writer.end_input()
        elif not self._is_writing:
            self._is_writing = True
            loop.add_writer(writer.input, self._write, loop)

    def _write_first(self, writer: WriterProcess) -> bool:
        """False when the pipe is full."""
        frame, rows = self._line[0]
        left = frame if self._first_left is None else self._first_left
        taken = writer.write(left)
        if taken < len(left):
            self._first_left = left[taken:] if taken or self._first_left is not None else None
            return False
        self._pop_first()
        self._under_way += rows
        return True

    def _pop_first(self) -> int:
        frame, rows = self._line.popleft()
        self._line_bytes -= len(frame)
        self._first_left = None
        return rows

    def _unwatch_input(self, loop: asyncio.AbstractEventLoop, writer: WriterProcess) -> None:
        if self._is_writing:
            self._is_writing = False
            loop.remove_writer(writer.input)

    # -- the writer

    def _start_writer(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._start_handle = None
        try:
            self.writer = WriterProcess(self._settings)
        except OSError as error:
            self._again(loop, f"the writer cannot be started: {error}")
            return
        loop.add_reader(self.writer.output, self._read, loop)
        self._write(loop)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        writer = self.writer
        if writer is None:
            return
        facts = writer.facts()
        if facts is None:
            self._writer_gone(loop, "the writer has ended")
            return
        for fact in facts:
            self._learn(fact)

    def _learn(self, fact: dict[str, object]) -> None:
        written, left_out = fact.get("written"), fact.get("left_out")
        if isinstance(written, int):
            self._under_way -= written
            self.rows += written
            self._losses_over()
            self._pause_s = _RESTART_S
        elif isinstance(left_out, int):
            self._under_way -= left_out
            self._leave_out(left_out, str(fact.get("why")))
        elif "failed" in fact:
            _log.warning("the journal's writer gives up: %s", fact["failed"])

    def _writer_gone(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        writer, self.writer = self.writer, None
        if writer is None:
            return
        self._unwatch_input(loop, writer)
        loop.remove_reader(writer.output)
        writer.kill()
        if not writer.is_gone():
            self._gone.append(writer)
        lost, self._under_way = self._under_way, 0
        if self._first_left is not None:  # half of it is with the one that is gone
            lost += self._pop_first()
        self._leave_out(lost, why)
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
            return
        self._again(loop, why)

    def _again(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        _log.warning("%s; another one starts in %g seconds", why, self._pause_s)
        self._start_handle = loop.call_later(self._pause_s, self._start_writer)
        self._pause_s = min(2 * self._pause_s, _RESTART_S_MAX)

    # -- losses

    def _leave_out(self, rows: int, why: str) -> None:
        if rows == 0:
            return
        if self._losing_from is None:
            self._losing_from = self.rows_left_out
            _log.warning("the journal leaves rows out: %s", why)
        self.rows_left_out += rows

    def _losses_over(self) -> None:
        if self._losing_from is not None:
            lost = self.rows_left_out - self._losing_from
            self._losing_from = None
            _log.warning("the journal is being written again; %d rows were left out", lost)
