"""The durable side of capturing one partition: which file comes next, and what it holds.

Theory of operation. A file is *planned* before it is written: its range of numbers, its name and the beginning of the
next window go into a small state file, safely on the disk, then the file itself is written beside its place and moved
there whole. After a crash the plan says what to do: the file is there and the plan is done, or it is written again
with exactly the same events under the same name. So no event is captured twice and none is left out, whatever happens
between. Nobody ever sees half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

_STATE_FOLDER: Final = ".busway"


@dataclass(frozen=True)
class FilePlan:
    """A file to be written: events `first` to before `end`, of the window that began at `began_at_ms`."""

    first: int
    end: int
    began_at_ms: int
    #: Below the destination.
    name: str


@dataclass(frozen=True)
class CaptureState:
    #: The first event that no file has.
    next_number: int
    #: When the window that is open began.
    began_at_ms: int
    plan: FilePlan | None = None


class CaptureWindow:
    """Blocking: called in a thread."""

    def __init__(self, destination: Path, state_name: str) -> None:
        self._destination = destination
        self._state_file = destination / _STATE_FOLDER / f"{state_name}.json"

    def load(self) -> CaptureState | None:
        """None when this partition was never captured. Raises OSError, ValueError."""
        try:
            data = json.loads(self._state_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        plan = data.get("plan")
        return CaptureState(
            int(data["next_number"]), int(data["began_at_ms"]), None if plan is None else FilePlan(**plan)
        )

    def save(self, state: CaptureState) -> None:
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(state))
        _replace(self._state_file, lambda stream: stream.write(text.encode()))

    def free_name(self, wanted: Callable[[int], str], began_at_ms: int) -> str:
        """Windows that end by size may be shorter than the second that names tell: a later one is free."""
        at_ms = began_at_ms
        while (self._destination / wanted(at_ms)).exists():
            at_ms += 1_000
        return wanted(at_ms)

    def exists(self, name: str) -> bool:
        return (self._destination / name).exists()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> int:
        """The file as a whole or not at all. Returns its size."""
        path = self._destination / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, write)
        return path.stat().st_size


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def file_name(name_format: str, namespace: str, hub: str, partition: int, at_ms: int, suffix: str) -> str:
    """H-41: the name of a file, from the tokens of the format."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    tokens = {
        "{Namespace}": namespace,
        "{EventHub}": hub,
        "{PartitionId}": str(partition),
        "{Year}": f"{at.year:04}",
        "{Month}": f"{at.month:02}",
        "{Day}": f"{at.day:02}",
        "{Hour}": f"{at.hour:02}",
        "{Minute}": f"{at.minute:02}",
        "{Second}": f"{at.second:02}",
    }
    for token, text in tokens.items():
        name_format = name_format.replace(token, text)
    return name_format + suffix
