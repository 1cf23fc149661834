"""What happened in one cell: what clients did (`Work`, for whether the cell was hit), what they saw (a history for
the checker), and what was wrong at once."""

from __future__ import annotations

from busway.model.errors import BrokerError, StoreOutcomeUnknown
from tests.chaos.history import FAIL, INFO, OK, History, Operation
from tests.chaos.stream_checker import Publication, Reading, Seen
from tests.simulator.virtual_time import VirtualClock

NEVER = float("inf")
#: When a number is given out later than the send is acknowledged, real time says nothing about it.
NOT_IN_REAL_TIME = 1e18


def result_of(error: BrokerError | None) -> str:
    if error is None:
        return OK
    return INFO if isinstance(error, StoreOutcomeUnknown) else FAIL


class Work:
    """Something that a client wanted to have done, from its first try to its good end."""

    __slots__ = ("done", "invoked", "kind")

    def __init__(self, kind: str, invoked: float) -> None:
        self.kind = kind
        self.invoked = invoked
        self.done = NEVER


class StepTime:
    """When a step of the change was made."""

    __slots__ = ("done", "invoked", "is_effective", "place")

    def __init__(self, place: int, invoked: float) -> None:
        self.place = place
        self.invoked = invoked
        self.done = NEVER
        #: Something is not as it was before.
        self.is_effective = False


class Record:
    def __init__(self, clock: VirtualClock, *, has_one_entity: bool) -> None:
        self._clock = clock
        #: Numbers of messages mean nothing where messages move from one entity to another.
        self._has_one_entity = has_one_entity
        self.history = History()
        self.works: list[Work] = []
        self.steps: list[StepTime] = []
        self.found: list[tuple[str, str]] = []
        self.trace: list[str] = []
        self.counts: dict[str, int] = {}
        #: Value → when it was first sent; → when it was first accepted; → when it is due (wall clock).
        self.first_sent: dict[str, float] = {}
        self.acknowledged: dict[str, float] = {}
        self.due_ms: dict[str, int] = {}
        #: Values that may go by themselves: they expire, and nobody keeps what is expired.
        self.mortal: set[str] = set()
        #: (path, value, when it was asked for) of everything that was shown.
        self.shown: list[tuple[str, str, float]] = []
        #: Of a hub; readings with the moment they began.
        self.publications: list[Publication] = []
        self.readings: list[tuple[float, Reading]] = []
        self.final: tuple[dict[str, list[Seen]], dict[str, int]] = ({}, {})
        #: Parts that are stored together or not at all.
        self.acts: list[tuple[list[str], str]] = []

    def now(self) -> float:
        return self._clock.monotonic()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now() - 1_000:.6f} {text}")

    def find(self, what: str, which: str) -> None:
        self.found.append((what, which))
        self.note(f"FOUND {what}: {which}")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- work

    def begin(self, kind: str) -> Work:
        work = Work(kind, self.now())
        self.works.append(work)
        return work

    def end(self, work: Work) -> None:
        work.done = self.now()

    def happened(self, kind: str, at: float) -> None:
        """Something that time brings."""
        work = Work(kind, at)
        work.done = at
        self.works.append(work)

    def ended(self, kind: str, since: float) -> int:
        """How much of it began after `since` and has gone well."""
        now = self.now()
        return sum(
            1 for work in self.works if work.kind == kind and work.invoked >= since and work.done <= now
        )

    # -- history

    def sent(self, value: str, invoked: float, error: BrokerError | None, due_ms: int) -> str:
        """One try to send it. What is scheduled gets its number when it is due."""
        result = result_of(error)
        if result == OK:
            self.acknowledged.setdefault(value, self.now())
        is_numbered_later = due_ms > 0 or not self._has_one_entity
        done = NOT_IN_REAL_TIME if is_numbered_later and result == OK else self.now()
        self.history.add(Operation("send", value, invoked, done, result))
        told = "" if error is None else type(error).__name__
        self.note(f"send {value} {result} {told}")
        self.count(f"send {result} {told}".strip())
        return result

    def received(
        self,
        how: str,
        path: str,
        value: str,
        number: int,
        *,
        token: str = "",
        locked_until: float = 0.0,
        hold: str = "",
        session: str | None = None,
        asked: float = NEVER,
    ) -> None:
        """`asked`: when it was asked for, where that has an answer of its own."""
        now = self.now()
        self.shown.append((path, value, min(asked, now)))
        due_ms = self.due_ms.get(value, 0)
        if due_ms and self._clock.wall_ms() < due_ms:
            self.find("before its time", f"{value} at {path}")
        self.history.add(
            Operation(
                "drain" if how == "drain" else "receive",
                value,
                now,
                now,
                OK,
                number if self._has_one_entity else int(value),
                session=session if self._has_one_entity else None,
                locked_until=locked_until,
                consumer=token,
                hold=hold,
            )
        )
        self.note(f"{how} {path} {value} #{number:x}")
        self.count(how)

    def settled(
        self, kind: str, value: str, invoked: float, error: BrokerError | None, token: str, hold: str = ""
    ) -> str:
        result = result_of(error)
        told = "" if error is None else type(error).__name__
        shown = "complete" if kind == "complete" else "abandon"
        if shown == "abandon" and result == FAIL and "LockLost" not in told:
            result = INFO  # whoever gives a lock back has given it back, whatever is said later
        self.history.add(Operation(shown, value, invoked, self.now(), result, consumer=token, hold=hold))
        self.note(f"{kind} {value} {result} {told}")
        self.count(f"{kind} {result} {told}".strip())
        return result
