"""How locks end, other than by the plain completion that `fragment` does itself.

The caller takes locks out of the table (which makes it their owner), tells what happened to each, joins the write and
serves. Here is decided what an end leads to: a delivery that was the last one, an expiry that has waited for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.fragment.dead_letter import EXPIRED, HEADER_SIZE_EXCEEDED, deliveries_used_up
from busway.broker.fragment.journal import UNKNOWN
from busway.broker.fragment.lane import Lane
from busway.broker.fragment.locks import Lock
from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.property_changes import dead_letter_properties, merge_changes
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import PLACE_ACTIVE
from busway.model.errors import BadArgument
from busway.model.settlement import Settlement

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
        "_fragment",
        "_lanes",
        "_now_ms",
        "_write",
        "has_written",
    )

    def __init__(self, write: FragmentWrite) -> None:
        fragment = self._fragment = write.fragment
        self._write = write
        self._now_ms = fragment.runtime.clock.wall_ms()
        self._lanes: dict[Lane, None] = {}
        #: The settlement that was checked last, and what it makes of a message without earlier changes, as most are.
        self._first_settlement: Settlement | None = None
        self._first_changes: bytes | None = None
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
        settings = self._fragment.settings
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
        for lane in self._lanes:
            lane.serve()

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
            lane = session.lane if isinstance(session, MessageSession) else self._fragment.lane
            lane.window.give_number_back(lock.number)
            self._lanes[lane] = None


def checked_changes(fragment: Fragment, lock: Lock, settlement: Settlement) -> bytes | None:
    """The property changes that the settlement leads to, before anything happens. Raises BadArgument."""
    changed = merge_changes(lock.changes, settlement.properties)
    limit = fragment.runtime.limits.header_bytes_max
    if changed is not None and len(changed) > limit and fragment.settings.is_dead_letter:
        raise BadArgument(f"The changed properties are larger than {limit} bytes.")
    return changed
