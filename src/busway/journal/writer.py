"""The journal's writer: a process of its own, `python -m busway.journal.writer SETTINGS`, that lives as long as the
server's end of its standard input is open.

Theory of operation. Frames come in on standard input and are gathered into row groups; a file is full after some
time, at some size, or with its hour. What became of rows is told on standard output, a JSON object on each line:

  {"ready": true}                     frames are being read
  {"written": ROWS}                   so many rows are in a finished file
  {"left_out": ROWS, "why": TEXT}     so many are not and will not be
  {"failed": TEXT}                    the writer cannot go on

A disk that refuses costs the rows of the open file. For a few seconds after that rows are left out without a try.

The end of the input, be it that the server stops or that it was killed, ends the writer: it finishes its file and
goes. Signals that a terminal or a supervisor sends to the whole group are the server's to answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from busway.clock import Clock, Entropy
from busway.journal.files import Folder, hours_before
from busway.journal.frame import HEAD_BYTES, Frame, length_of

if TYPE_CHECKING:
    from busway.journal.parquet_file import ParquetFile

#: Less urgent than the server, by so much.
NICENESS: Final = 10
GROUP_ROWS: Final = 131_072
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
#: After a disk has refused.
_PAUSE_S: Final = 5.0
_READ_BYTES: Final = 1024 * 1024
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class WriterSettings:
    folder: str
    #: A file is finished so long after its first row, and at this size.
    file_s: float = 60.0
    file_bytes: int = 128 * 1024 * 1024
    #: 0 = for ever.
    keep_days: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))


class Writer:
    """Gathers frames and writes files."""

    def __init__(self, settings: WriterSettings, clock: Clock, entropy: Entropy) -> None:
        # They need the `arrow` extra, and the server imports this module for its settings.
        from busway.journal.parquet_file import ParquetFile, RowGroup

        self._settings = settings
        self._clock = clock
        self._folder = Folder(Path(settings.folder), entropy)
        self._new_group = RowGroup
        self._new_file = ParquetFile
        self._group = RowGroup()
        self._file: ParquetFile | None = None
        self._file_rows = 0
        self._hour = -1
        self._begun_ms = 0
        #: When the open file is full; None while there are no rows.
        self.due: float | None = None
        self._refused_until = float("-inf")
        self._why = ""

    def tidy(self) -> None:
        """Before the first frame: what killed writers left, what is old."""
        self._folder.remove_leftovers()
        self._remove_old()

    def take(self, frame: Frame) -> None:
        now = self._clock.monotonic()
        if now < self._refused_until:
            tell(left_out=frame.rows, why=self._why)
            return
        if frame.hour != self._hour:
            self.roll()
            self._hour = frame.hour
            self._remove_old()
        if self.due is None:
            self.due = now + self._settings.file_s
            self._begun_ms = int.from_bytes(frame.columns[0].values[:8], sys.byteorder)
        self._group.add(frame)
        if self._group.rows >= GROUP_ROWS or self._group.size_bytes >= GROUP_BYTES_MAX:
            self._guarded(self._write_group)

    def roll(self) -> None:
        """What has gathered becomes a finished file."""
        if self.due is not None:
            self._guarded(self._finish)

    def _guarded(self, work: Callable[[], None]) -> None:
        """A disk that refuses, or rows that Arrow refuses, cost the open file and nothing else."""
        try:
            work()
        except Exception as error:
            self._why = f"{type(error).__name__}: {error}"
            tell(left_out=self._file_rows + self._group.rows, why=self._why)
            if self._file is not None:
                self._file.abandon()
            self._forget()
            self._refused_until = self._clock.monotonic() + _PAUSE_S

    def _write_group(self) -> None:
        if self._file is None:
            self._file = self._new_file(self._folder.new_file(self._hour, self._begun_ms))
        self._file.write(self._group)
        self._file_rows += self._group.rows
        self._group = self._new_group()
        if self._file.size_bytes() >= self._settings.file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._group.rows:
            self._write_group()
        if self._file is not None:
            self._file.finish()
            tell(written=self._file_rows)
        self._forget()

    def _forget(self) -> None:
        self._file = None
        self._file_rows = 0
        self._group = self._new_group()
        self.due = None

    def _remove_old(self) -> None:
        if self._settings.keep_days > 0:
            hour = self._clock.wall_ms() // _HOUR_MS
            self._folder.remove_before(hours_before(hour, self._settings.keep_days))


def tell(**fact: object) -> None:
    """Nobody may be there to hear it: then the end of the input follows."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fact).encode() + b"\n")


def run(writer: Writer, clock: Clock, source: int) -> None:
    """Until the end of the input."""
    gathered = bytearray()
    while True:
        wait_s = None if writer.due is None else max(0.0, writer.due - clock.monotonic())
        readable, _, _ = select.select([source], [], [], wait_s)
        if writer.due is not None and clock.monotonic() >= writer.due:
            writer.roll()
        if not readable:
            continue
        data = os.read(source, _READ_BYTES)
        if not data:
            break
        gathered += data
        while len(gathered) >= HEAD_BYTES:
            length = length_of(bytes(gathered[:HEAD_BYTES]))
            if len(gathered) < length:
                break
            writer.take(Frame(bytes(gathered[:length])))
            del gathered[:length]
    writer.roll()


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        import pyarrow

        pyarrow.set_cpu_count(1)
        clock = Clock()
        writer = Writer(WriterSettings(**json.loads(sys.argv[1])), clock, Entropy())
        os.nice(NICENESS)  # not before: its start should not take long on a busy machine
        writer.tidy()
        tell(ready=True)
        run(writer, clock, 0)
    except Exception as error:
        tell(failed=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(
        main()
    )  # everything is written and told: a server that stops need not wait for the interpreter's end
