"""The processes of a driver and their memory, as Linux counts it: a page that several share counts in parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    #: The command.
    words: tuple[str, ...]
    mib: float

    @property
    def is_python(self) -> bool:
        return any("python" in Path(word).name for word in self.words[:1])


def processes_of_session(session: int) -> list[Process]:
    """Those of one session of the operating system."""
    return [process for process, its_session in _all() if its_session == session]


def processes_below(pid: int) -> list[Process]:
    """Its children, and theirs."""
    every = [process for process, _ in _all()]
    found, known = [], {pid}
    while more := [each for each in every if each.parent in known and each.pid not in known]:
        found += more
        known.update(each.pid for each in more)
    return found


def _all() -> Iterator[tuple[Process, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if state in "ZX":
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            yield Process(int(folder.name), int(parent), tuple(words), _mib(folder)), int(session)


def _mib(folder: Path) -> float:
    for line in (folder / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
