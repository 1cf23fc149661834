"""A journal that remembers what it was told."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from busway.broker.fragment.journal import Journal, OperationRow
from busway.broker.fragment.locks import Lock
from busway.journal.files import OPERATIONS
from busway.message.event_record import Event
from busway.message.message import Message


class Told(NamedTuple):
    operation: str
    path: str
    index: int
    number: int
    size: int
    delivery_count: int
    enqueued_at_ms: int
    session_id: str | None
    key: str | None
    reason: str | None


class ToldJournal(Journal):
    def __init__(self) -> None:
        self.told: list[Told] = []
        #: How often anybody called, whatever the length of the run.
        self.calls = 0

    def messages(self, operation: int, path: str, index: int, messages: list[Message]) -> None:
        self.rows(operation, path, index, [_row(message) for message in messages])

    def locks(self, operation: int, path: str, index: int, locks: list[Lock]) -> None:
        rows = [
            OperationRow(
                lock.number,
                lock.size,
                lock.delivery_count,
                lock.enqueued_at_ms,
                None if lock.session is None else lock.session.session_id,
            )
            for lock in locks
        ]
        self.rows(operation, path, index, rows)

    def rows(self, operation: int, path: str, index: int, rows: list[OperationRow]) -> None:
        assert rows, "a run of nothing"
        self.calls += 1
        self.told += [
            Told(
                OPERATIONS[operation],
                path,
                index,
                row.number,
                row.size,
                row.delivery_count,
                row.enqueued_at_ms,
                row.session_id,
                row.partition_key,
                row.reason,
            )
            for row in rows
        ]

    def events(self, path: str, index: int, first_number: int, at_ms: int, events: list[Event]) -> None:
        self.calls += 1
        self.told += [
            Told(
                "publish",
                path,
                index,
                first_number + place,
                event.size_bytes(),
                -1,
                at_ms,
                None,
                event.partition_key,
                None,
            )
            for place, event in enumerate(events)
        ]

    # -- what tests ask

    def take(self) -> list[tuple[str, int]]:
        """(operation, number) of what was told since the last time."""
        told, self.told = self.told, []
        return [(row.operation, row.number) for row in told]

    def at(self) -> list[tuple[str, str]]:
        """(operation, path), likewise."""
        told, self.told = self.told, []
        return [(row.operation, row.path) for row in told]

    def counts(self) -> Counter[str]:
        return Counter(row.operation for row in self.told)


def _row(message: Message) -> OperationRow:
    return OperationRow(
        message.sequence_number,
        message.size(),
        message.delivery_count,
        message.enqueued_at_ms,
        message.session_id,
        message.partition_key,
    )
