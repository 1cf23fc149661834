"""How locks end, other than by the plain completion that `fragment` does itself.

The caller takes locks out of the table (which makes it their owner), tells what happened to each, and joins.
What an input leads to stands in `message_states`; here is only how each effect is written down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import BadArgument
from busway.broker.fragment.dead_letter import (
    EXPIRED,
    HEADER_SIZE_EXCEEDED,
    DeadLetterRun,
    deliveries_used_up,
)
from busway.broker.fragment.journal import ABANDON, DEFER, EXPIRE, LOCK_LOST, note_locks
from busway.broker.fragment.lane import Lane
from busway.broker.fragment.locks import Lock
from busway.broker.fragment.message_states import Effect, MessageInput, MessageState, transition
from busway.broker.fragment.property_changes import dead_letter_properties, merge_changes
from busway.broker.fragment.settlement import Settlement
from busway.message.message import ACTIVE, DEFERRED
from busway.store.contract import Change, CommitBatch, Move

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: Inputs that end a delivery as failed, and so may be its last (R-40, R-41).
_FAILURES = (MessageInput.ABANDONED, MessageInput.LOCK_ENDED)
#: Inputs after which the message would be available again, so that its expiry takes effect (M-43).
_RETURNS = (MessageInput.ABANDONED, MessageInput.LOCK_ENDED, MessageInput.RELEASED)
#: What the journal calls an input; of those that are not here it hears nothing, or by what they lead to.
_OPERATIONS = {
    MessageInput.ABANDONED: ABANDON,
    MessageInput.DEFERRED: DEFER,
    MessageInput.HELD: DEFER,
    MessageInput.LOCK_ENDED: LOCK_LOST,
}


class Outcomes:
    """The ends of some locks of one fragment, in one commit batch."""

    __slots__ = (
        "_batch",
        "_dead_letters",
        "_first_changes",
        "_first_settlement",
        "_fragment",
        "_lanes",
        "_noted",
        "_now_ms",
        "has_written",
    )

    def __init__(self, fragment: Fragment, batch: CommitBatch) -> None:
        self._fragment = fragment
        self._batch = batch
        self._now_ms = fragment.runtime.clock.wall_ms()
        self._dead_letters: DeadLetterRun | None = None
        self._lanes: dict[Lane, None] = {}
        #: The settlement that was checked last, and what it makes of a message without earlier changes, as most are.
        self._first_settlement: Settlement | None = None
        self._first_changes: bytes | None = None
        #: For the journal, by operation; None without one.
        self._noted: dict[int, list[Lock]] | None = None if fragment.runtime.journal is None else {}
        #: False as long as only memory has changed: then there is no commit to wait for.
        self.has_written = False

    def check(self, lock: Lock, settlement: Settlement) -> bytes | None:
        if lock.changes is not None:
            return checked_changes(self._fragment, lock, settlement)
        if self._first_settlement is not settlement:
            self._first_changes = checked_changes(self._fragment, lock, settlement)
            self._first_settlement = settlement
        return self._first_changes

    def settle(
        self, lock: Lock, happened: MessageInput, settlement: Settlement, changed: bytes | None
    ) -> None:
        """What a client asked for. `changed` comes from `check`."""
        if happened is MessageInput.DEAD_LETTERED:
            properties = dead_letter_properties(
                settlement.dead_letter_reason, settlement.dead_letter_description, settlement.properties
            )
            self._apply(lock, happened, lock.changes, properties)
        elif changed is not None and len(changed) > self._fragment.runtime.limits.header_bytes_max:
            self._apply(lock, MessageInput.DEAD_LETTERED, lock.changes, HEADER_SIZE_EXCEEDED)
        else:
            self.end(lock, happened, changed)

    def end(self, lock: Lock, happened: MessageInput, changed: bytes | None) -> None:
        """The lock ends by `happened`, unless that was the last delivery, or the message has expired."""
        fragment = self._fragment
        settings = fragment.settings
        if self._noted is not None and happened in _OPERATIONS:
            self._noted.setdefault(_OPERATIONS[happened], []).append(lock)
        if not settings.is_dead_letter:
            if happened in _FAILURES and lock.delivery_count + 1 >= settings.max_delivery_count:
                properties = deliveries_used_up(lock.delivery_count + 1)
                self._apply(lock, MessageInput.DELIVERIES_USED_UP, changed, properties)
                return
            if happened in _RETURNS and lock.place == ACTIVE and lock.expires_at_ms <= self._now_ms:
                if happened in _FAILURES:  # it expires after a failed delivery, which counts
                    lock.delivery_count += 1
                if settings.dead_letters_expired:
                    self._apply(lock, MessageInput.EXPIRED_TO_DEAD_LETTER, changed, EXPIRED)
                else:
                    self._apply(lock, MessageInput.EXPIRED, changed, None)
                return
        self._apply(lock, happened, changed, None)

    def join(self) -> None:
        """The last step; then whoever waits for what came back is served."""
        if self._noted is not None:
            for operation, locks in self._noted.items():
                note_locks(self._fragment, self._batch, operation, locks)
        if self._dead_letters is not None:
            self._dead_letters.join()
        if self.has_written:
            self._batch.counters[self._fragment.key] = self._fragment.counters
        for lane in self._lanes:
            lane.serve()

    def _apply(
        self, lock: Lock, happened: MessageInput, changed: bytes | None, properties: dict[str, object] | None
    ) -> None:
        before = MessageState.LOCKED if lock.place == ACTIVE else MessageState.LOCKED_DEFERRED
        after, effect = transition(before, happened, self._fragment.settings.is_dead_letter)
        if effect in (Effect.COUNT, Effect.COUNT_AND_MOVE):
            lock.delivery_count += 1
        self.has_written = self.has_written or effect is not Effect.NONE or changed is not lock.changes
        if after is MessageState.GONE:
            self._batch.deletes.append((self._fragment.key, lock.place, [lock.number]))
            self._fragment.uncount(lock.place, lock.size)
            if self._noted is not None:  # completions do not come here
                self._noted.setdefault(EXPIRE, []).append(lock)
        elif after is MessageState.DEAD_LETTERED:
            self._dead_letter(lock, changed, properties)
        elif effect in (Effect.MOVE, Effect.COUNT_AND_MOVE):
            self._defer(lock, changed)
        else:
            self._keep(lock, changed, counts=effect is Effect.COUNT)

    def _keep(self, lock: Lock, changed: bytes | None, *, counts: bool) -> None:
        """Back to where it was before it was locked."""
        fragment = self._fragment
        if counts or changed is not lock.changes:
            fragment.counters.bytes += _growth(lock, changed)
            kept = None if changed is lock.changes else changed
            self._batch.changes.append(
                Change(fragment.key, lock.place, lock.number, lock.delivery_count, kept)
            )
        if lock.place == ACTIVE:
            lane = fragment.lane if lock.session is None else lock.session.lane
            lane.window.give_number_back(lock.number)
            self._lanes[lane] = None

    def _defer(self, lock: Lock, changed: bytes | None) -> None:
        fragment = self._fragment
        self._batch.moves.append(
            Move(
                fragment.key,
                lock.place,
                lock.number,
                fragment.key,
                DEFERRED,
                lock.number,
                delivery_count=lock.delivery_count,
                changes=changed,
            )
        )
        fragment.uncount(lock.place, lock.size)
        fragment.counters.deferred += 1
        fragment.counters.bytes += lock.size + _growth(lock, changed)

    def _dead_letter(self, lock: Lock, changed: bytes | None, properties: dict[str, object] | None) -> None:
        if self._dead_letters is None:
            self._dead_letters = DeadLetterRun(self._fragment, self._batch)
        size = lock.size + _growth(lock, changed)
        self._fragment.counters.bytes += size - lock.size
        session_id = None if lock.session is None else lock.session.session_id
        self._dead_letters.add(
            lock.place,
            lock.number,
            size,
            lock.delivery_count,
            changed,
            properties,
            lock.enqueued_at_ms,
            session_id,
        )


def checked_changes(fragment: Fragment, lock: Lock, settlement: Settlement) -> bytes | None:
    """The property changes that the settlement leads to, before anything happens. Raises BadArgument."""
    changed = merge_changes(lock.changes, settlement.properties)
    limit = fragment.runtime.limits.header_bytes_max
    if changed is not None and len(changed) > limit and fragment.settings.is_dead_letter:
        raise BadArgument(f"The changed properties are larger than {limit} bytes.")
    return changed


def _growth(lock: Lock, changed: bytes | None) -> int:
    return (0 if changed is None else len(changed)) - (0 if lock.changes is None else len(lock.changes))
