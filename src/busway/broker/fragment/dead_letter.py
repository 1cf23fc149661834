"""Moving messages into the dead-letter fragment (D-1…D-16).

A move is one row change inside one commit batch, so a message is never lost and never in both places (D-5). It
keeps its number (M-38). The dead-letter fragment shows it to receivers when the batch is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    QuotaExceeded,
)
from busway.broker.fragment.commit_runs import ArrivedRun
from busway.broker.fragment.journal import DEAD_LETTER, OperationRow, note_rows
from busway.broker.fragment.property_changes import DEAD_LETTER_REASON, dead_letter_properties, merge_changes
from busway.message.message import Message
from busway.store.contract import PLACE_ACTIVE, CommitBatch, Move

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: D-11
EXPIRED: Final = dead_letter_properties("TTLExpiredException", "The message expired and was dead lettered.")
#: D-13
HEADER_SIZE_EXCEEDED: Final = dead_letter_properties(
    "HeaderSizeExceeded", "The size quota for this stream has been exceeded."
)


#: D-12
SESSION_ID_IS_NULL: Final = dead_letter_properties(
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null.",
)


def rule_failed(reason: str, sentence: str) -> dict[str, object]:
    """D-15: why a message is dead whose filter or action failed."""
    return dead_letter_properties(reason, sentence)


def hops_used_up(hops_max: int) -> dict[str, object]:
    """D-14: why a message is dead that was forwarded too often."""
    return dead_letter_properties(
        "MaxTransferHopCountExceeded",
        f"The message was forwarded {hops_max} times, which is the most allowed.",
    )


def transfer_failed(target_path: str, error: BrokerError) -> dict[str, object]:
    """D-17: why a message is dead that its destination refused."""
    reason = "TransferDestinationRefused"
    if isinstance(error, EntityNotFound):
        reason = "TransferDestinationNotFound"
    elif isinstance(error, EntityDisabled):
        reason = "TransferDestinationDisabled"
    elif isinstance(error, QuotaExceeded):
        reason = "TransferDestinationQuotaExceeded"
    return dead_letter_properties(reason, f"Forwarding to '{target_path}' failed. {error.sentence}")


def put_dead_letters(
    source: Fragment, batch: CommitBatch, dead: list[tuple[Message, dict[str, object]]]
) -> None:
    """Messages that enter the dead-letter fragment without having been in the main one, numbered by it."""
    target = source.dead_letter
    assert target is not None, "only main fragments have dead letters"
    now_ms = source.runtime.clock.wall_ms()
    arrivals = ArrivedRun(target)
    noted: list[OperationRow] = []
    for message, properties in dead:
        source.counters.last_counter += 1
        message.sequence_number = source.counters.last_counter
        message.enqueued_at_ms = now_ms
        message.changes = merge_changes(message.changes, properties)
        batch.puts.append((target.key, PLACE_ACTIVE, message))
        target.expect(message.sequence_number, message.size())
        arrivals.entries.append((message.sequence_number, None))
        noted.append(
            OperationRow(
                message.sequence_number,
                message.size(),
                message.delivery_count,
                now_ms,
                message.session_id,
                message.partition_key,
                reason_in(properties),
            )
        )
    note_rows(source, batch, DEAD_LETTER, noted)
    batch.counters[source.key] = source.counters
    batch.counters[target.key] = target.counters
    batch.callbacks.append(arrivals.committed)


def reason_in(properties: dict[str, object] | None) -> str | None:
    reason = None if properties is None else properties.get(DEAD_LETTER_REASON)
    return str(reason) if isinstance(reason, str) else None


def deliveries_used_up(delivery_count: int) -> dict[str, object]:
    """D-10: why a message is dead that failed as often as it may."""
    return dead_letter_properties(
        "MaxDeliveryCountExceeded",
        f"Message could not be consumed after {delivery_count} delivery attempts.",
    )


class DeadLetterRun:
    """Messages that one batch moves out of one fragment into its dead-letter fragment."""

    __slots__ = ("_arrivals", "_batch", "_noted", "_source", "_target")

    def __init__(self, source: Fragment, batch: CommitBatch) -> None:
        if source.dead_letter is None:
            raise InvalidOperation("A message in a dead-letter queue cannot be dead-lettered again.")
        self._source = source
        self._target: Fragment = source.dead_letter
        self._batch = batch
        self._arrivals = ArrivedRun(self._target)
        #: For the journal; None without one.
        self._noted: list[OperationRow] | None = None if source.runtime.journal is None else []

    def add(
        self,
        place: int,
        number: int,
        size: int,
        delivery_count: int,
        changes: bytes | None,
        properties: dict[str, object] | None,
        enqueued_at_ms: int,
        session_id: str | None = None,
        partition_key: str | None = None,
    ) -> None:
        """`size` and `changes` are those of the row as it is; `properties` are laid over it (D-6)."""
        source, target, batch = self._source, self._target, self._batch
        changed = merge_changes(changes, properties)
        if changed is not None and len(changed) > source.runtime.limits.header_bytes_max:
            properties = HEADER_SIZE_EXCEEDED
            changed = merge_changes(changes, properties)
        batch.moves.append(
            Move(
                source.key,
                place,
                number,
                target.key,
                PLACE_ACTIVE,
                number,
                delivery_count=delivery_count,
                changes=changed,
            )
        )
        source.uncount(place, size)
        grown = (0 if changed is None else len(changed)) - (0 if changes is None else len(changes))
        target.expect(number, size + grown)
        self._arrivals.entries.append((number, None))
        if self._noted is not None:
            reason = reason_in(properties)
            self._noted.append(
                OperationRow(number, size, delivery_count, enqueued_at_ms, session_id, partition_key, reason)
            )

    def add_expired(self, place: int, messages: list[Message]) -> None:
        """D-11: those whose time to live is over."""
        for message in messages:
            self.add(
                place,
                message.sequence_number,
                message.size(),
                message.delivery_count,
                message.changes,
                EXPIRED,
                message.enqueued_at_ms,
                message.session_id,
                message.partition_key,
            )

    def join(self) -> None:
        """The last step: counters and the callback."""
        if self._arrivals.entries:
            self._batch.counters[self._source.key] = self._source.counters
            self._batch.counters[self._target.key] = self._target.counters
            note_rows(self._source, self._batch, DEAD_LETTER, self._noted)
            self._batch.callbacks.append(self._arrivals.committed)
