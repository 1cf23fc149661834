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


#: What happened to the server or to a connection, not what a client did; without a value.
RESTART, CUT = "restart", "cut"
#: The error of a settlement that the server refused because its lock was over. `fail`, unless the settlement was
#: under way during a restart or cut: then the SDK has asked twice and shows the second answer only.
LOCK_LOST = "lock lost"


@dataclass(frozen=True)
class Operation:
    kind: str  # send, receive, complete, abandon, drain; accept (of a session); restart, cut
    value: str  # the unique body; for accept a name for this one hold of the session
    invoked: (
        float  # monotonic seconds; a prefetched message may have come at any time since its session's accept
    )
    done: float
    result: str
    sequence: int = 0
    session: str | None = None
    delivery_count: int = 0
    locked_until: float = 0.0  # monotonic seconds, receives and accepts only
    consumer: str = ""
    hold: str = ""  # the accept that a receive or settlement belongs to
    alone: bool = False  # a receive with no other message of its session on the way
    error: str = ""
    key: str = ""  # of a send with a partition key; `consumer` is its producer then


class History:
    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def note_restart(self, began: float, ended: float) -> None:
        """The server lost its memory within this time, and with it every lock."""
        self.add(Operation(RESTART, "", began, ended, OK))

    def note_cut(self, moment: float) -> None:
        """A connection broke; locks live on."""
        self.add(Operation(CUT, "", moment, moment, OK))

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
