"""Messages of one send, from admission until they are durable: one object and one callback, however many they are.

A run is the write of a fragment (`write`) that somebody waits for. Which messages it takes is decided before
(`intake`, `duplicates`, a topic's `distribution`); it then enters the open batch in one step.

Only a message that expires before one that came earlier gets an expiry entry of its own. All others expire at
the head in order, so the sweep may stop at the first that has not (M-44). `Counters.expiry_high_ms` is the
latest expiry among those in order. After the clock was set back that is every message, for as long as those from
before are there: each pays an entry, and nothing else grows.

What a publish brings for one subscription is `Copies`: they are gathered, and become a run when they join.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.journal import DUPLICATE, SCHEDULE, SEND
from busway.broker.fragment.message_states import SESSION_ID_IS_NULL
from busway.broker.fragment.runtime import broker_error
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import LAST_INSTANT_MS, NEVER_MS, PLACE_ACTIVE, PLACE_SCHEDULED, Message
from busway.model.errors import BrokerError
from busway.model.settlement import RunDone
from busway.store.contract import CommitBatch, FragmentKey, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Origin

#: What a copy adds to a batch besides the bytes that it shares.
_ROW_BYTES: Final = 100


def nobody_waits(refused: list[tuple[int, BrokerError]]) -> None:
    """Of a run or a settlement of our own: somebody else tells of it, or nobody asks."""


def expiry_ms(wall_ms: int, ttl_ms: int) -> int:
    """M-41; a time that no client could write is never."""
    expires_ms = wall_ms + ttl_ms
    return NEVER_MS if expires_ms > LAST_INSTANT_MS else expires_ms


class PreparedRows:
    """Rows of a run that were made before it joins, by whoever has more of them than one turn has room for."""

    __slots__ = (
        "enqueued_ms",
        "expiry_entries",
        "first_entry_ms",
        "first_in_order_ms",
        "high_ms",
        "last_number",
        "puts",
        "session_entries",
    )

    def __init__(self, enqueued_ms: int, high_ms: int) -> None:
        self.enqueued_ms = enqueued_ms
        self.puts: list[tuple[FragmentKey, int, Message]] = []
        self.session_entries: list[tuple[FragmentKey, str, int]] = []
        self.expiry_entries: list[tuple[FragmentKey, int, int]] = []
        #: Of the entries, and of those that expire in order; the latest of those, too.
        self.first_entry_ms = NEVER_MS
        self.first_in_order_ms = NEVER_MS
        self.high_ms = high_ms
        self.last_number = 0


class SentRun(FragmentWrite):
    """Messages of one send, from admission until they are durable."""

    __slots__ = (
        "active",
        "active_bytes",
        "admitted_at",
        "admitted_bytes",
        "bytes",
        "count",
        "done",
        "dropped",
        "hand_over",
        "ids",
        "is_admitted",
        "is_atomic",
        "is_part",
        "may_join",
        "messages",
        "origin",
        "places",
        "refused",
    )

    def __init__(
        self,
        fragment: Fragment,
        messages: list[Message],
        message_bytes: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
        is_atomic: bool,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(fragment)
        #: Whom to tell when it joins a batch: it comes from another place.
        self.origin = origin
        #: Of a transaction, which joins as a whole: whether it still may, and what takes the run over then.
        self.may_join: Callable[[], bool] | None = None
        self.hand_over: Callable[[SentRun], None] | None = None
        #: Those that were admitted.
        self.messages = messages
        self.bytes = message_bytes
        #: Duplicates that were among them; None when there were none.
        self.dropped: list[Message] | None = None
        #: What is to be remembered of them where duplicates are detected; None elsewhere.
        self.ids: list[str] | None = None
        #: Where `messages` stood in the send; None: they are all those that were not refused.
        self.places: list[int] | None = None
        #: How many the sender handed over.
        self.count = count
        self.refused = refused
        self.done = done
        self.is_atomic = is_atomic
        #: It was accepted before: no topic refuses it for what it has become.
        self.is_admitted = False
        #: A part of a send, whose places are those in the whole.
        self.is_part = False
        #: For the entity's counts: when it came, and its bytes with the duplicates that are dropped later.
        self.admitted_at = fragment.runtime.clock.monotonic()
        self.admitted_bytes = message_bytes
        # Filled when the run joins a batch: what becomes receivable at its commit.
        self.active: list[Message] = messages
        self.active_bytes = message_bytes

    def refuse(self, faults: list[tuple[Message, BrokerError]]) -> None:
        """Some of the admitted messages are refused after all."""
        places = self.message_places()
        place = {id(message): index for message, index in zip(self.messages, places, strict=True)}
        gone = {id(message) for message, _ in faults}
        self.refused += [(place[id(message)], error) for message, error in faults]
        if self.dropped is not None and faults:  # perhaps for the sake of one that is refused now
            self.refused += [(index, faults[0][1]) for index in self.dropped_places()]
            self.dropped = None
        if self.places is not None:
            self.places = [place[id(message)] for message in self.messages if id(message) not in gone]
        if self.ids is not None:
            named = [message for message in self.messages if message.message_id is not None]
            pairs = zip(named, self.ids, strict=True)
            self.ids = [identity for message, identity in pairs if id(message) not in gone] or None
        self.messages = self.active = [message for message in self.messages if id(message) not in gone]
        self.bytes = self.active_bytes = sum(message.size() for message in self.messages)
        self.admitted_bytes -= sum(message.size() for message, _ in faults)

    def message_places(self) -> list[int]:
        """Where each of the messages stood in the send."""
        if self.places is not None:
            return self.places
        refused = {index for index, _ in self.refused}
        return [index for index in range(self.count) if index not in refused]

    def dropped_places(self) -> list[int]:
        """The same of the duplicates."""
        if self.dropped is None or self.places is None:
            return []
        others = {index for index, _ in self.refused}
        others.update(self.places)
        return [index for index in range(self.count) if index not in others]

    # -- into a batch

    def enter(self, batch: CommitBatch, wall_ms: int, enqueued_ms: int) -> None:
        """The hot path: numbers, times, rows, counters."""
        self.batch = batch
        fragment = self.fragment
        counters, key = fragment.counters, fragment.key
        default_ttl_ms = fragment.settings.default_ttl_ms
        default_expiry_ms = expiry_ms(wall_ms, default_ttl_ms)
        number, high_ms = counters.last_counter, counters.expiry_high_ms
        first_in_order_ms = NEVER_MS
        scheduled: list[Message] = []
        puts = batch.puts
        for message in self.messages:
            number += 1
            message.sequence_number = number
            message.enqueued_at_ms = enqueued_ms
            if message.scheduled_at_ms > wall_ms:
                scheduled.append(message)
                continue
            ttl_ms = message.ttl_ms
            expires_ms = default_expiry_ms
            if 0 <= ttl_ms < default_ttl_ms:
                expires_ms = expiry_ms(wall_ms, ttl_ms)
            message.expires_at_ms = expires_ms
            if expires_ms >= high_ms:
                high_ms = expires_ms
                if expires_ms < first_in_order_ms:
                    first_in_order_ms = expires_ms
            else:
                batch.expiry_entries.append((key, expires_ms, number))
                self.expires_out_of_order(expires_ms)
            puts.append((key, PLACE_ACTIVE, message))
        counters.last_counter = self.last_number = number
        counters.expiry_high_ms = high_ms
        counters.active += len(self.messages) - len(scheduled)
        counters.bytes += self.bytes
        batch.bytes += self.bytes
        if scheduled:
            self._enter_scheduled(scheduled)
        if fragment.settings.requires_session:
            batch.session_entries.extend([(key, m.session_id or "", m.sequence_number) for m in self.active])
        self._entered(enqueued_ms)
        if first_in_order_ms < NEVER_MS:
            fragment.head_expiry.joined(first_in_order_ms)

    def _enter_scheduled(self, scheduled: list[Message]) -> None:
        self.put_scheduled(scheduled)
        self.active = [message for message in self.messages if message.state == PLACE_ACTIVE]
        self.active_bytes = sum(message.size() for message in self.active)

    def enter_prepared(self, batch: CommitBatch, prepared: PreparedRows) -> None:
        """The same for copies that have their rows already: they are as many as there may be, and this takes no
        longer for it."""
        self.batch = batch
        fragment = self.fragment
        counters = fragment.counters
        self.last_number = counters.last_counter = prepared.last_number
        if len(prepared.expiry_entries) < len(self.messages):
            counters.expiry_high_ms = prepared.high_ms
        counters.active += len(self.messages)
        counters.bytes += self.bytes
        batch.puts.extend(prepared.puts)
        batch.session_entries.extend(prepared.session_entries)
        if prepared.expiry_entries:
            batch.expiry_entries.extend(prepared.expiry_entries)
            self.expires_out_of_order(prepared.first_entry_ms)
        self._entered(prepared.enqueued_ms)
        if prepared.first_in_order_ms < NEVER_MS:
            fragment.head_expiry.joined(prepared.first_in_order_ms)

    def enter_published(self, batch: CommitBatch, later: list[Message], enqueued_ms: int) -> None:
        """A topic's own part: its numbers, and rows for what is for later."""
        self.batch = batch
        fragment = self.fragment
        number = fragment.counters.last_counter
        for message in self.messages:
            number += 1
            message.sequence_number = number
            message.enqueued_at_ms = enqueued_ms
        fragment.counters.last_counter = self.last_number = number
        if later:
            fragment.counters.bytes += sum(message.size() for message in later)
            self.put_scheduled(later)
        self.active, self.active_bytes = [], 0
        fragment.touch(enqueued_ms)
        self._entered(enqueued_ms)

    def _entered(self, enqueued_ms: int) -> None:
        fragment, batch = self.fragment, self.batch
        self.count_arrival(enqueued_ms)
        batch.counters[fragment.key] = fragment.counters
        if fragment.runtime.journal is not None:
            self._note_all()
            batch.callbacks.append(self._told_first)

    def _note_all(self) -> None:
        if self.dropped is not None:
            self.note(DUPLICATE, self.dropped)
        self.note(SCHEDULE, [message for message in self.messages if message.state == PLACE_SCHEDULED])
        self.note(SEND, [message for message in self.messages if message.state != PLACE_SCHEDULED])

    def _told_first(self, error: StoreError | None) -> None:
        """Before what a topic has made of it can be received."""
        if error is None:
            self.tell_journal()

    def join(self) -> None:
        """It is in the batch: whatever goes with it joins in the same step."""
        batch = self.batch
        if self.ids is not None:
            self.fragment.duplicates.remember(self, self.ids)
        if self.origin is not None:
            self.origin.joined(batch, self.messages, self.fragment.store.name)
        batch.callbacks.append(self.committed)

    # -- the end

    def fail(self, error: BrokerError) -> None:
        """Nothing of it is stored (or nobody knows)."""
        if self.is_atomic:
            self.done([(0, error)])
            return
        if self.is_part:
            self.done(self.refused + [(index, error) for index in self.message_places()])
            return
        refused = dict(self.refused)
        self.done([(index, refused.get(index, error)) for index in range(self.count)])

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            self.fail(broker_error(error))
            fragment.commit_failed(error)
            return
        self.landed()
        waited_s = fragment.runtime.clock.monotonic() - self.admitted_at
        fragment.flow.taken_in(self.count - len(self.refused), self.admitted_bytes, waited_s)
        self.done(self.refused)

    def landed(self) -> None:
        """It is durable: receivers may have it."""
        fragment = self.fragment
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        if self.active:
            fragment.sent(self.active, self.active_bytes)


class Copies:
    """What one run brings for one subscription."""

    __slots__ = ("bytes", "dead", "main", "messages", "needs_session_id", "shared_bytes")

    def __init__(self, main: Fragment) -> None:
        self.main = main
        self.needs_session_id = main.settings.requires_session
        self.messages: list[Message] = []
        #: Copies that go to the dead-letter queue at once, with the properties that say why.
        self.dead: list[tuple[Message, dict[str, object]]] = []
        #: Of `messages`; and how many of these are the published message's own, shared by all plain copies.
        self.bytes = 0
        self.shared_bytes = 0

    def add(self, copy: Message) -> int:
        """The bytes that it adds."""
        if self.needs_session_id and copy.session_id is None:
            self.dead.append((copy, SESSION_ID_IS_NULL))
            return 0
        assert copy.state == PLACE_ACTIVE
        self.messages.append(copy)
        size = copy.size()
        self.bytes += size
        return size

    def count(self) -> int:
        return len(self.messages) + len(self.dead)

    def run(self) -> SentRun:
        """Of `messages`."""
        return SentRun(self.main, self.messages, self.bytes, len(self.messages), [], nobody_waits, True)

    def batch_bytes(self) -> int:
        """What they add to a batch: what they share weighs once there, with the publish itself."""
        return self.bytes + len(self.messages) * _ROW_BYTES - self.shared_bytes
