"""What clients did and saw: one `Operation` per call. The history of a failing run is kept as JSON lines.

Results follow Jepsen's split, which makes the checks sound: `ok` (the server said yes), `fail` (it certainly did
not happen) and `info` (nobody knows: a cut connection, a time-out).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

OK, FAIL, INFO = "ok", "fail", "info"


@dataclass(frozen=True)
class Operation:
    kind: str  # send, receive, complete, abandon, drain; restart (of the server, without a value)
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
    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def note_restart(self, moment: float) -> None:
        """The server lost its memory at this moment, and with it every lock."""
        self.add(Operation("restart", "", moment, moment, OK))

    def save(self, file: Path) -> None:
        """One JSON object a line, for whoever looks for the cause."""
        with file.open("w") as out:
            for operation in self.operations:
                out.write(json.dumps(asdict(operation)) + "\n")

    def of(self, *kinds: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind in kinds)


def merged(histories: Iterable[History]) -> History:
    together = History()
    together.operations = sorted(
        (operation for history in histories for operation in history.operations),
        key=lambda operation: operation.invoked,
    )
    return together
