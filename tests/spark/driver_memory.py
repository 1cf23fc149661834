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
    #: That no other process has.
    own_mib: float


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
            pages = (folder / "smaps_rollup").read_text()
            its, own = _mib(pages, "Pss"), _mib(pages, "Private_Clean") + _mib(pages, "Private_Dirty")
            yield Process(int(folder.name), int(parent), tuple(words), its, own), int(session)


def _mib(pages: str, kind: str) -> float:
    lines = [line.split() for line in pages.splitlines()]
    return sum(int(words[1]) for words in lines if words[0] == f"{kind}:") / 1024
