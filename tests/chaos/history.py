"""What clients did and saw: one `Operation` per call, written as JSON lines so that a failing run can be kept.

Results follow Jepsen's split, which makes the checks sound: `ok` (the server said yes), `fail` (it certainly did
not happen) and `info` (nobody knows: a cut connection, a time-out).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

OK, FAIL, INFO = "ok", "fail", "info"


@dataclass(frozen=True)
class Operation:
    kind: str  # send, receive, complete, abandon, drain
    value: str  # the unique body
    invoked: float  # monotonic seconds
    done: float
    result: str
    sequence: int = 0
    session: str | None = None
    delivery_count: int = 0
    locked_until: float = 0.0  # monotonic seconds, receives only
    consumer: str = ""


class History:
    """Appends operations in memory and, when given a file, on disk."""

    def __init__(self, file: Path | None = None) -> None:
        self.operations: list[Operation] = []
        self._file: IO[str] | None = file.open("a") if file is not None else None

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)
        if self._file is not None:
            self._file.write(json.dumps(asdict(operation)) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def of(self, *kinds: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind in kinds)


def merged(histories: Iterable[History]) -> History:
    together = History()
    together.operations = sorted(
        (operation for history in histories for operation in history.operations),
        key=lambda operation: operation.invoked,
    )
    return together
