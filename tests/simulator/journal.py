"""What clients did and saw in one run, and what happened to the broker: everything the checks need.

Results follow Jepsen's split: `ok`, `fail` (certainly did not happen), `info` (nobody knows). A call begins as `info`
without an end; one that is never answered, though the broker lived, stays so and is found at the end.
"""

from __future__ import annotations

from busway.model.descriptions import Description
from busway.model.errors import BrokerError, StoreOutcomeUnknown
from busway.rules.rule import Rule
from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.topology import Traits
from tests.simulator.virtual_time import VirtualClock

NEVER = float("inf")
_TAKE_OVER_S = 2.0


def result_of(error: BrokerError | None) -> str:
    if error is None:
        return OK
    return INFO if isinstance(error, StoreOutcomeUnknown) else FAIL


class Call:
    """Anything that a client asked for and that has an end."""

    __slots__ = ("done", "error", "invoked", "life", "result")

    def __init__(self, invoked: float, life: int) -> None:
        self.invoked = invoked
        self.done = NEVER
        self.result = INFO
        #: The class of what it was told, if not the best.
        self.error = ""
        #: Of the broker: which of its lives the call was made in.
        self.life = life

    def is_answered(self) -> bool:
        return self.done < NEVER


class Sent(Call):
    """One message that was sent."""

    __slots__ = ("bare", "due_ms", "is_cancelled", "key", "made", "number", "path", "traits", "value")

    def __init__(
        self, invoked: float, life: int, value: str, path: str, key: str | None, traits: Traits, bare: bytes
    ) -> None:
        super().__init__(invoked, life)
        self.value = value
        self.path = path
        #: Its session or partition key.
        self.key = key
        self.traits = traits
        self.bare = bare
        #: When it is scheduled for; 0 when it is not.
        self.due_ms = 0
        #: Told by the broker, for an accepted one.
        self.number = 0
        #: Cancellation was tried.
        self.is_cancelled = False
        #: When it was given to the broker; in a transaction that is before the commit.
        self.made = invoked


class Seen:
    """One message that somebody was shown. `how`: receive, delete (receive-and-delete), deferred, peek, drain."""

    __slots__ = (
        *("at", "bare", "count", "enqueued_ms", "has_changes", "high_ms", "hold", "how", "invoked"),
        *("is_dead", "key", "locked_until", "number", "path", "token", "value"),
    )

    def __init__(self, value: str, path: str, is_dead: bool, how: str, at: float, number: int) -> None:
        self.value = value
        self.path = path
        self.is_dead = is_dead
        self.how = how
        #: When whoever saw it had asked.
        self.invoked = at
        self.at = at
        self.number = number
        self.count = 0
        self.enqueued_ms = 0
        self.key: str | None = None
        self.bare = b""
        self.has_changes = False
        self.token = b""
        #: The session hold it came under; None without.
        self.hold: Hold | None = None
        self.locked_until = 0.0
        #: The latest wall time there had been.
        self.high_ms = 0


class Ended(Call):
    """One attempt to end a lock, to cancel or to delete. `verb`: complete, abandon, defer, dead-letter, release."""

    __slots__ = ("group", "seen", "value", "verb")

    def __init__(
        self, invoked: float, life: int, verb: str, group: str, value: str, seen: Seen | None
    ) -> None:
        super().__init__(invoked, life)
        self.verb = verb
        self.group = group
        self.value = value
        self.seen = seen


class Hold(Call):
    """A session that somebody accepted."""

    __slots__ = ("locked_until", "name", "path", "session_id")

    def __init__(self, invoked: float, life: int, name: str, path: str) -> None:
        super().__init__(invoked, life)
        self.name = name
        self.path = path
        self.session_id = ""
        self.locked_until = 0.0


class StateWrite(Call):
    """A session's state that somebody set."""

    __slots__ = ("path", "session_id", "state")

    def __init__(self, invoked: float, life: int, path: str, session_id: str, state: bytes | None) -> None:
        super().__init__(invoked, life)
        self.path = path
        self.session_id = session_id
        self.state = state


class Act(Call):
    """Things that happen together or not at all: a transaction, a batch."""

    __slots__ = ("endings", "kind", "sends")

    def __init__(self, invoked: float, life: int, kind: str) -> None:
        super().__init__(invoked, life)
        self.kind = kind
        self.sends: list[Sent] = []
        self.endings: list[Ended] = []


class Changed(Call):
    """What an operator did to one entity. `verb`: update, create, delete, add-rule, replace-rule, remove-rule; and
    look: what is there for certain, after nobody knew. All of them leave what is already so."""

    __slots__ = ("description", "name", "path", "rules", "verb")

    def __init__(self, invoked: float, life: int, verb: str, path: str) -> None:
        super().__init__(invoked, life)
        self.verb = verb
        self.path = path
        #: As it is afterwards: of an update, a creation, a look that found something.
        self.description: Description | None = None
        #: Of a creation or a look all of them, else the one it is about.
        self.rules: tuple[Rule, ...] = ()
        #: Of the rule that was removed.
        self.name = ""


class Outage:
    """A store was out of service, or (with no name) the whole broker dead."""

    __slots__ = ("down", "store", "up")

    def __init__(self, store: str, down: float) -> None:
        self.store = store
        self.down = down
        self.up = NEVER


class Journal:
    """See the head of this file."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.life = 0
        #: The broker is closed as it should be: nothing that it does now excuses anything.
        self.is_over = False
        self.trace: list[str] = []
        self.sends: list[Sent] = []
        self.seen: list[Seen] = []
        self.endings: list[Ended] = []
        self.holds: list[Hold] = []
        self.states: list[StateWrite] = []
        self.acts: list[Act] = []
        #: In order of invocation, and no two at the same time.
        self.changes: list[Changed] = []
        self.outages: list[Outage] = []
        #: (path, index) → the store that fragment lies in.
        self.homes: dict[tuple[str, int], str] = {}
        #: Calls that leave nothing else behind.
        self.others: list[Call] = []
        #: Found while it happened: (what, which).
        self.found: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}

    def now(self) -> float:
        return self._clock.monotonic()

    def note(self, text: str) -> None:
        self.trace.append(f"{self._clock.monotonic():.6f} {text}")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def find(self, what: str, which: str) -> None:
        self.found.append((what, which))
        self.note(f"FOUND {what}: {which}")

    def end(self, call: Call, error: BrokerError | None, what: str) -> None:
        """The answer has come."""
        if call.is_answered():
            self.find("answered twice", what)
            return
        call.done = self.now()
        call.result = result_of(error)
        call.error = "" if error is None else type(error).__name__
        self.count(f"{what.split()[0]} {call.result}")
        self.note(f"{what} {call.result} {call.error}")

    # -- what happened to the broker

    def store_changed(self, store: str, is_up: bool) -> None:
        self.note(f"store {store} {'up' if is_up else 'down'}")
        if self.is_over:
            return
        if not is_up:
            self.outages.append(Outage(store, self.now()))
            return
        for outage in self.outages:
            if outage.store == store and outage.up == NEVER:
                outage.up = self.now()

    def crashed(self) -> None:
        self.outages.append(Outage("", self.now()))
        self.life += 1
        self.note("CRASH")

    def restarted(self) -> None:
        for outage in self.outages:
            if not outage.store and outage.up == NEVER:
                outage.up = self.now()
        self.note("restarted")


def on_a_copy(outages: list[Outage], home: str) -> list[tuple[float, float]]:
    """Times in which the broker may have run on a copy of the catalogue: it began without the home, whose last
    changes no copy may have had, and some time passes until what the home says has been taken over."""
    deaths = [outage for outage in outages if not outage.store]
    return [
        (death.down, away.up + _TAKE_OVER_S)
        for death in deaths
        for away in outages
        if away.store == home and away.down <= death.up <= away.up
    ]
