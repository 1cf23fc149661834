"""How receivers' locks end: by what they ask for, by time, with their session (R-5, R-10…R-18, R-30, X-10, X-11).

Whoever takes a lock out of the table owns its outcome: a message that is completed on one connection and whose
lock ends at the same instant has exactly one fate. The usual end, completion, is done by `Settling` in one pass.

What all other ends lead to is decided by `Outcomes`: a delivery that was the last one, an expiry that has waited
for it. Its caller takes locks out of the table (which makes it their owner), tells what happened to each, joins
the write and serves.

Receive-and-delete has no locks: its messages are deleted first and delivered then. `Consumption` knows those that
are between the two, and puts back what was not delivered (R-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.fragment.journal import UNKNOWN
from busway.broker.fragment.locks import Lock, SessionLock
from busway.broker.fragment.message_states import (
    EXPIRED,
    HEADER_SIZE_EXCEEDED,
    INPUT_OF_VERB,
    MessageInput,
    MessageState,
    deliveries_used_up,
    step_of,
)
from busway.broker.fragment.property_changes import dead_letter_properties, merge_changes
from busway.broker.fragment.runtime import broker_error
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import PLACE_ACTIVE, Message
from busway.model.errors import (
    BadArgument,
    BrokerError,
    InvalidOperation,
    MessageLockLost,
    ServerBusy,
    SessionLockLost,
)
from busway.model.settlement import RunDone, Settlement, Verb
from busway.store.contract import StoreError
from busway.timers import Timer

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: Inputs that end a delivery as failed, and so may be its last (R-40, R-41).
_FAILURES = (MessageInput.ABANDONED, MessageInput.LOCK_ENDED)
#: Inputs after which the message would be available again, so that its expiry takes effect (M-43).
_RETURNS = (MessageInput.ABANDONED, MessageInput.LOCK_ENDED, MessageInput.RELEASED)


class Outcomes:
    """The ends of some locks of one fragment, in one commit batch."""

    __slots__ = (
        "_first_changes",
        "_first_settlement",
        "_gives_back",
        "_header_bytes_max",
        "_lane",
        "_now_ms",
        "_sessions",
        "_settings",
        "_write",
        "has_written",
    )

    def __init__(self, write: FragmentWrite) -> None:
        fragment = write.fragment
        self._write = write
        self._settings = fragment.settings
        self._header_bytes_max = fragment.runtime.limits.header_bytes_max
        #: Where a message lies that is in no session.
        self._lane = fragment.lane
        self._now_ms = fragment.runtime.clock.wall_ms()
        #: What messages have returned to.
        self._gives_back = False
        self._sessions: dict[SessionLock, None] = {}
        #: The settlement that was checked last, and what it makes of a message without earlier changes, as most are.
        self._first_settlement: Settlement | None = None
        self._first_changes: bytes | None = None
        #: False as long as only memory has changed: then there is no commit to wait for.
        self.has_written = False

    def check(self, lock: Lock, settlement: Settlement) -> bytes | None:
        if lock.changes is not None:
            return self._checked_changes(lock, settlement)
        if self._first_settlement is not settlement:
            self._first_changes = self._checked_changes(lock, settlement)
            self._first_settlement = settlement
        return self._first_changes

    def _checked_changes(self, lock: Lock, settlement: Settlement) -> bytes | None:
        return checked_changes(self._settings, self._header_bytes_max, lock, settlement)

    def settle(
        self, lock: Lock, happened: MessageInput, settlement: Settlement, changed: bytes | None
    ) -> None:
        """What a client asked for. `changed` comes from `check`."""
        if happened is MessageInput.DEAD_LETTERED:
            properties = dead_letter_properties(
                settlement.dead_letter_reason, settlement.dead_letter_description, settlement.properties
            )
            self._apply(lock, happened, lock.changes, properties)
        elif changed is not None and len(changed) > self._header_bytes_max:
            self._apply(lock, MessageInput.DEAD_LETTERED, lock.changes, HEADER_SIZE_EXCEEDED)
        else:
            self.end(lock, happened, changed)

    def end(self, lock: Lock, happened: MessageInput, changed: bytes | None) -> None:
        """The lock ends by `happened`, unless that was the last delivery, or the message has expired."""
        settings = self._settings
        operation = step_of(MessageState.LOCKED, happened).operation
        if operation != UNKNOWN:
            self._write.note_lock(operation, lock)
        if not settings.is_dead_letter:
            if happened in _FAILURES and lock.delivery_count + 1 >= settings.max_delivery_count:
                properties = deliveries_used_up(lock.delivery_count + 1)
                self._apply(lock, MessageInput.DELIVERIES_USED_UP, changed, properties)
                return
            if happened in _RETURNS and lock.place == PLACE_ACTIVE and lock.expires_at_ms <= self._now_ms:
                if happened in _FAILURES:  # it expires after a failed delivery, which counts
                    lock.delivery_count += 1
                if settings.dead_letters_expired:
                    self._apply(lock, MessageInput.EXPIRED_TO_DEAD_LETTER, changed, EXPIRED)
                else:
                    self._apply(lock, MessageInput.EXPIRED, changed, None)
                return
        self._apply(lock, happened, changed, None)

    def serve(self) -> None:
        """After the write has joined: whoever waits for what came back is served."""
        if self._gives_back:
            self._lane.serve()
        for session in self._sessions:
            session.serve()

    def _apply(
        self, lock: Lock, happened: MessageInput, changed: bytes | None, properties: dict[str, object] | None
    ) -> None:
        step = step_of(
            MessageState.LOCKED if lock.place == PLACE_ACTIVE else MessageState.LOCKED_DEFERRED, happened
        )
        if self._write.end(step, lock, changed, properties):
            self.has_written = True
        if step.after is MessageState.ACTIVE:
            session = lock.session
            if session is None:
                self._lane.window.give_number_back(lock.number)
                self._gives_back = True
            else:
                session.give_back(lock.number)
                self._sessions[session] = None


def checked_changes(
    settings: FragmentSettings, header_bytes_max: int, lock: Lock, settlement: Settlement
) -> bytes | None:
    """The property changes that the settlement leads to, before anything happens. Raises BadArgument."""
    changed = merge_changes(lock.changes, settlement.properties)
    if changed is not None and len(changed) > header_bytes_max and settings.is_dead_letter:
        raise BadArgument(f"The changed properties are larger than {header_bytes_max} bytes.")
    return changed


_RETRY_S: Final = 1.0


class SettledRun(FragmentWrite):
    """Settlements of one call, until they are durable."""

    __slots__ = ("count", "done", "refused", "verb")

    def __init__(
        self,
        fragment: Fragment,
        verb: Verb,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
    ) -> None:
        """Raises ServerBusy."""
        super().__init__(fragment)
        self.batch = fragment.batch()
        self.verb = verb
        self.count = count
        self.refused = refused
        self.done = done

    def committed(self, error: StoreError | None) -> None:
        if error is None:
            self.tell_journal()
            self.fragment.flow.settled(self.verb, self.count - len(self.refused))
            self.done(self.refused)
            return
        refused = dict(self.refused)
        failure = broker_error(error)
        self.done([(index, refused.get(index, failure)) for index in range(self.count)])
        self.fragment.commit_failed(error)


class Settling:
    """Of one fragment."""

    __slots__ = (
        "_clock", "_ended_max", "_flow", "_fragment", "_lanes", "_locks", "_runtime", "_sessions", "_timer", "_timers"
    )  # fmt: skip

    def __init__(self, fragment: Fragment) -> None:
        #: For its writes, its settings of the moment, and whether it is in use.
        self._fragment = fragment
        self._locks = fragment.locks
        self._lanes = fragment.lanes
        self._sessions = fragment.sessions
        self._flow = fragment.flow
        self._runtime = fragment.runtime
        self._clock = fragment.runtime.clock
        self._timers = fragment.runtime.timers
        self._ended_max = fragment.runtime.limits.sweep_rows_max
        #: For the first lock that ends.
        self._timer: Timer | None = None

    def stop(self) -> None:
        self._timers.cancel(self._timer)

    def settle(
        self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None = None
    ) -> None:
        """Pops the locks by token; whoever pops one owns its outcome (R-10…R-18)."""
        refused: list[tuple[int, BrokerError]] = []
        try:
            run = SettledRun(self._fragment, settlement.verb, len(tokens), refused, done)
        except ServerBusy as error:
            done([(index, error) for index in range(len(tokens))])
            return
        was_full = self._locks.free() <= 0
        if settlement.verb is Verb.COMPLETE:
            self._complete(run, tokens, session_id, refused)
            has_written = len(refused) < len(tokens)
            if has_written:
                run.join()
        else:
            has_written = self._settle_otherwise(run, tokens, settlement, session_id, refused)
        if not has_written:
            self._flow.settled(settlement.verb, len(tokens) - len(refused))
            done(refused)
        if was_full:
            self._lanes.serve_all()

    def complete(
        self, tokens: list[bytes], session_id: str | None, refused: list[tuple[int, BrokerError]]
    ) -> FragmentWrite:
        """R-10 for whoever waits for the commit by itself, and joins the write. Raises ServerBusy."""
        write = self._fragment.write()
        was_full = self._locks.free() <= 0
        self._complete(write, tokens, session_id, refused)
        if was_full:
            self._lanes.serve_all()
        return write

    def _complete(
        self,
        write: FragmentWrite,
        tokens: list[bytes],
        session_id: str | None,
        refused: list[tuple[int, BrokerError]],
    ) -> None:
        pop = self._locks.pop
        now = self._clock.monotonic()
        noted: list[Lock] | None = None if self._runtime.journal is None else []
        active: list[int] = []
        size_bytes = 0
        for index, token in enumerate(tokens):
            lock = pop(token, now)
            if lock is None:
                refused.append((index, self.lock_lost(session_id)))
                continue
            if noted is not None:
                noted.append(lock)
            if lock.place == PLACE_ACTIVE:
                active.append(lock.number)
                size_bytes += lock.size
            else:
                write.complete_deferred(lock)
        if active:
            write.complete(active, size_bytes)
        if noted is not None:
            write.note_completed(noted)

    def fault(self, settlement: Settlement) -> BrokerError | None:
        """Why no message here can be settled so."""
        if settlement.verb is Verb.DEAD_LETTER and self._fragment.settings.is_dead_letter:
            return InvalidOperation("A message in a dead-letter queue cannot be dead-lettered again.")
        return None

    def _settle_otherwise(
        self,
        write: FragmentWrite,
        tokens: list[bytes],
        settlement: Settlement,
        session_id: str | None,
        refused: list[tuple[int, BrokerError]],
    ) -> bool:
        """True when the write has joined; else there is no commit to wait for."""
        fault = self.fault(settlement)
        if fault is not None:
            refused.extend([(index, fault) for index in range(len(tokens))])
            return False
        happened = INPUT_OF_VERB[settlement.verb]
        outcomes = Outcomes(write)
        now = self._clock.monotonic()
        for index, token in enumerate(tokens):
            lock = self._locks.get(token, now)
            if lock is None:
                refused.append((index, self.lock_lost(session_id)))
                continue
            try:
                changed = outcomes.check(lock, settlement)
            except BrokerError as error:
                refused.append((index, error))
                continue
            self._locks.pop(token, now)
            outcomes.settle(lock, happened, settlement, changed)
        if outcomes.has_written:
            write.join()
        outcomes.serve()
        return outcomes.has_written

    def lock_lost(self, session_id: str | None) -> BrokerError:
        """R-17; on a session entity the session's lock decides (X-10)."""
        if self._fragment.settings.requires_session and not self._sessions.is_held(session_id):
            return SessionLockLost()
        return MessageLockLost()

    def renew(self, tokens: list[bytes]) -> list[int]:
        """R-30: from now on, one whole duration. All of them or none."""
        settings = self._fragment.settings
        if settings.requires_session:
            raise InvalidOperation(
                "Locks of single messages cannot be renewed on an entity that requires sessions:"
                " renew the session's lock."
            )
        if self._fragment.is_failed:
            raise ServerBusy
        self._fragment.check_lease()
        now = self._clock.monotonic()
        for token in tokens:
            if not self._locks.renewable(token, now):
                raise MessageLockLost
        duration_ms = settings.lock_duration_ms
        deadline = now + duration_ms / 1000
        self._locks.renew(tokens, deadline)
        self.watch(deadline)
        return [self._clock.wall_ms() + duration_ms] * len(tokens)

    # -- the end of locks

    def watch(self, deadline: float) -> None:
        timer = self._timer
        if timer is None or timer.deadline > deadline:
            self._timers.cancel(timer)
            self._timer = self._timers.at(deadline, self._locks_ended)

    def _locks_ended(self) -> None:
        """R-5, R-40: available again, one failed delivery more."""
        self._timer = None
        now = self._clock.monotonic()
        try:
            write = self._fragment.write()
        except ServerBusy:
            self.watch(now + _RETRY_S)
            return
        was_full = self._locks.free() <= 0
        ended = self._locks.take_ended(now, self._ended_max)
        if ended:
            outcomes = Outcomes(write)
            for lock in ended:
                outcomes.end(lock, MessageInput.LOCK_ENDED, lock.changes)
            write.join()
            outcomes.serve()
        deadline = self._locks.next_deadline()
        if deadline is not None:
            self.watch(deadline)
        if was_full:
            self._lanes.serve_all()

    def session_ended(self, session: SessionLock, happened: MessageInput) -> None:
        """All locks of a session end with it: with a count (X-10) or without (X-11)."""
        locks = self._locks.pop_session(session)
        if not locks or not self._fragment.is_usable():
            return
        write = self._fragment.write()
        outcomes = Outcomes(write)
        for lock in locks:
            outcomes.end(lock, happened, lock.changes)
        if outcomes.has_written:
            write.join()
        outcomes.serve()


class Consumption:
    """Messages of one fragment that are deleted for receive-and-delete and not delivered yet: they may come back."""

    __slots__ = ("_fragment", "count")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self.count = 0

    def over(self, count: int) -> None:
        """The deletion is durable and the messages are delivered, or put back."""
        self.count -= count
        counters = self._fragment.counters
        if self.count == 0 and counters.active == 0:
            counters.expiry_high_ms = 0

    def put_back(self, messages: list[Message]) -> None:
        """Deleted, but never sent: back under their numbers, by its successor when the fragment is no longer in
        use."""
        fragment = self._fragment
        try:
            write = fragment.write()
        except ServerBusy:
            fragment.runtime.undelivered.add(fragment.id, messages)
            return
        write.put_back(messages)
        write.join()

    def put_undelivered_back(self) -> None:
        """The fragment was loaded, or messages of its own wait for it."""
        messages = self._fragment.runtime.undelivered.take(self._fragment.id)
        if messages:
            self.put_back(messages)
