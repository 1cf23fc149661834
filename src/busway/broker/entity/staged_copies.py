"""What one publish brings for one subscription, and how much of it is done before it joins a batch.

A small publish joins as it is: `Intake.join_copies` goes over its copies once. Of a large one the copies get their
numbers, times and rows beforehand, some at a time (`stage`). Nothing outside of the copies changes by that, so it
can be dropped at any moment; and when all are staged, joining takes the same time however many they are. Numbers
are those that follow the fragment's last one: `is_current` tells whether that is still so when the moment has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.fragment.dead_letter import SESSION_ID_IS_NULL, reason_in
from busway.broker.fragment.journal import OperationRow
from busway.broker.fragment.property_changes import merge_changes
from busway.broker.fragment.sent_run import PreparedRows, SentRun, expiry_ms
from busway.message.message import PLACE_ACTIVE, Message
from busway.model.errors import BrokerError
from busway.store.contract import CommitBatch, FragmentKey

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: What a copy adds to a batch besides the bytes that it shares.
ROW_BYTES: Final = 100
#: A dead letter is staged for so many steps: its properties are written anew.
_DEAD_STEPS: Final = 4


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

    def batch_bytes(self) -> int:
        """What they add to a batch: what they share weighs once there, with the publish itself."""
        return self.bytes + len(self.messages) * ROW_BYTES - self.shared_bytes


class StagedCopies:
    """They have numbers, times and rows."""

    __slots__ = (
        "_base_number",
        "_dead_at",
        "_dead_bytes",
        "_dead_puts",
        "_message_at",
        "_noted",
        "_number",
        "_wall_ms",
        "copies",
        "rows",
        "run",
    )

    def __init__(self, copies: Copies, wall_ms: int, enqueued_ms: int) -> None:
        """`enqueued_ms`: what clients are shown, if the subscription has not shown a later time."""
        main = copies.main
        self.copies = copies
        self._wall_ms = wall_ms
        self._base_number = self._number = main.counters.last_counter
        self._message_at = 0
        self._dead_at = 0
        #: Of the copies that can be received.
        self.rows = PreparedRows(main.intake.enqueued_after(enqueued_ms), main.counters.expiry_high_ms)
        self._dead_puts: list[tuple[FragmentKey, int, Message]] = []
        self._dead_bytes = 0
        self._noted: list[OperationRow] = []
        messages = copies.messages
        self.run = SentRun(main, messages, copies.bytes, len(messages), [], _nobody_waits, True)

    def is_current(self) -> bool:
        """The numbers are still those that come next. So what is in order still is."""
        return self.copies.main.counters.last_counter == self._base_number

    def stage(self, room: int) -> int:
        """Goes on for about so many steps. How many they were; 0 when all is done."""
        copies = self.copies
        if self._message_at < len(copies.messages):
            start = self._message_at
            self._message_at = min(start + room, len(copies.messages))
            self._stage_messages(copies.messages[start : self._message_at])
            return self._message_at - start
        if self._dead_at < len(copies.dead):
            start = self._dead_at
            self._dead_at = min(start + 1 + room // _DEAD_STEPS, len(copies.dead))
            self._stage_dead(copies.dead[start : self._dead_at])
            return (self._dead_at - start) * _DEAD_STEPS
        return 0

    def _stage_messages(self, messages: list[Message]) -> None:
        """As `SentRun.enter` does, but that nothing of the fragment changes."""
        main = self.copies.main
        settings, key = main.settings, main.key
        default_ttl_ms = settings.default_ttl_ms
        default_expiry_ms = expiry_ms(self._wall_ms, default_ttl_ms)
        requires_session = settings.requires_session
        rows, number = self.rows, self._number
        enqueued_ms, puts = rows.enqueued_ms, rows.puts
        for message in messages:
            number += 1
            message.sequence_number = number
            message.enqueued_at_ms = enqueued_ms
            expires_ms = default_expiry_ms
            if 0 <= message.ttl_ms < default_ttl_ms:
                expires_ms = expiry_ms(self._wall_ms, message.ttl_ms)
            message.expires_at_ms = expires_ms
            if expires_ms >= rows.high_ms:
                rows.high_ms = expires_ms
                rows.first_in_order_ms = min(rows.first_in_order_ms, expires_ms)
            else:
                rows.expiry_entries.append((key, expires_ms, number))
                rows.first_entry_ms = min(rows.first_entry_ms, expires_ms)
            if requires_session:
                rows.session_entries.append((key, message.session_id or "", number))
            puts.append((key, PLACE_ACTIVE, message))
        self._number = rows.last_number = number

    def _stage_dead(self, dead: list[tuple[Message, dict[str, object]]]) -> None:
        """As `FragmentWrite.put_dead_letters` does, but that nothing of the fragments changes."""
        target = self.copies.main.dead_letter
        assert target is not None, "subscriptions have dead letters"
        for message, properties in dead:
            self._number += 1
            message.sequence_number = self._number
            message.enqueued_at_ms = self._wall_ms
            message.changes = merge_changes(message.changes, properties)
            size = message.size()
            self._dead_bytes += size
            self._dead_puts.append((target.key, PLACE_ACTIVE, message))
            self._noted.append(
                OperationRow(
                    self._number,
                    size,
                    message.delivery_count,
                    self._wall_ms,
                    message.session_id,
                    message.partition_key,
                    reason_in(properties),
                )
            )

    def join_dead(self, batch: CommitBatch) -> None:
        """Behind the others: their numbers are higher."""
        if self._dead_puts:
            write = self.copies.main.write_in(batch)
            write.put_prepared_dead_letters(self._dead_puts, self._noted, self._dead_bytes)
            write.join()


def _nobody_waits(refused: list[tuple[int, BrokerError]]) -> None:
    """The run's own callback tells the sender; a copy that fails fails with it."""
