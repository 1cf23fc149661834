"""What a server remembers of the stores of a database: how far they were, and whose. By that it notices a database
that is older than what was acknowledged.

Theory of operation. In memory a `StoreMark` follows every commit that is reported. A file in the data directory
follows within SAVE_S, off the loop, so after a crash it may be a second behind. It is exact only when the server
was stopped in order; from the first opening on it says that it is not, before anything is committed. A loss that
was noticed stands in it until what follows from it is durable, so that a crash in between forgets nothing.

The file is written whole under another name and proves itself by a checksum. One that is damaged or missing, and a
folder that cannot be written, cost the server what it would notice, and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, Final
from zlib import crc32

log = logging.getLogger(__name__)

#: The file is never further behind than this while it can be written.
SAVE_S: Final = 1.0
_FILE_BYTES_MAX: Final = 1 << 20


class StoreMark:
    """How far one store was."""

    __slots__ = ("epoch", "is_exact", "keys_end", "lost", "number", "openings")

    def __init__(self) -> None:
        self.epoch = 0
        #: Random ids that we have left there: of the last opening, and of those behind it whose answer was lost.
        self.openings: list[bytes] = []
        #: Of the last commit that was reported.
        self.number = 0
        #: Of fragments: none that we were given is higher.
        self.keys_end = 0
        #: Commits that are known to be lost, while what follows from it is not durable.
        self.lost = 0
        #: Nothing can have been reported since that is not in here.
        self.is_exact = False

    def facts(self, *, is_final: bool) -> dict[str, object]:
        return {
            "epoch": self.epoch,
            "openings": [each.hex() for each in self.openings],
            "number": self.number,
            "keys_end": self.keys_end,
            "lost": self.lost,
            "exact": self.is_exact and is_final,
        }

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> StoreMark:
        mark = cls()
        mark.epoch, mark.number = int(facts["epoch"]), int(facts["number"])
        mark.keys_end, mark.lost = int(facts["keys_end"]), int(facts["lost"])
        mark.openings = [bytes.fromhex(each) for each in facts["openings"]]
        mark.is_exact = facts["exact"] is True
        return mark


class StoreMarks:
    """The marks of a database's stores. `path`: None keeps them in memory alone. `save` may block: call it off the
    loop."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._marks: dict[int, StoreMark] = {}
        self._lock = threading.Lock()
        self._is_read = False
        self._is_over = False
        self._has_failed = False

    def mark(self, store: int) -> StoreMark:
        return self._marks.setdefault(store, StoreMark())

    def begin(self) -> None:
        """Before anything is committed: reads what was left, and writes that it is behind from now on. Blocks."""
        if not self._is_read:
            self._is_read = True
            self._marks = self._read()
        self._is_over = False
        self.save()

    def save(self, *, is_final: bool = False) -> None:
        """Durable when it returns, unless the folder cannot be written, which is told once. `is_final`: nothing is
        committed any more."""
        if self._path is None:
            return
        with self._lock:
            if self._is_over:
                return  # one that was on its way when the last was written
            self._is_over = is_final
            marks = sorted(self._marks.items())
            text = json.dumps({str(store): mark.facts(is_final=is_final) for store, mark in marks})
            try:
                _write(self._path, f"{crc32(text.encode()):08x} {text}\n".encode())
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    log.warning("The high-water file %s cannot be written: %s.", self._path, error.strerror)
                self._has_failed = True

    def _read(self) -> dict[int, StoreMark]:
        if self._path is None:
            return {}
        try:
            with self._path.open("rb") as file:
                check, _, text = file.read(_FILE_BYTES_MAX).decode().partition(" ")
            if int(check, 16) != crc32(text.rstrip("\n").encode()):
                raise ValueError("its checksum does not fit")
            return {int(store): StoreMark.of_facts(facts) for store, facts in json.loads(text).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            log.warning("The high-water file %s is not used: %s.", self._path, error)
            return {}


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
