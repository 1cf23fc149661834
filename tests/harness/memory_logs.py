"""Logs as the memory store keeps them: the executable specification of what `contract` says of logs."""

from __future__ import annotations

from busway.message.event_chunk import Chunk, ChunkBuilder
from busway.store.contract import ChunkHead, ChunkPage, LogChanges, ProducerRow
from tests.harness.undo_log import NumberUsedTwice, UndoLog


class StoredChunk:
    """One row."""

    __slots__ = ("data", "head")

    def __init__(self, head: ChunkHead, data: bytes) -> None:
        self.head = head
        self.data = data


class MemoryLog:
    """The committed chunks and producers of one log."""

    __slots__ = ("_last_numbers", "chunks", "producers")

    def __init__(self) -> None:
        #: By first number.
        self.chunks: dict[int, StoredChunk] = {}
        self._last_numbers: dict[int, None] = {}
        self.producers: dict[int, ProducerRow] = {}

    # -- writing
    def put(self, builder: ChunkBuilder, undo: UndoLog) -> None:
        last_number = builder.last_number
        if last_number in self._last_numbers:
            raise NumberUsedTwice(f"A chunk of the log ends with number {last_number} already.")
        undo.put(self._last_numbers, last_number, None)
        undo.put(self.chunks, builder.first_number, _stored(builder))

    def delete(self, first_number: int, undo: UndoLog) -> None:
        stored = self.chunks.get(first_number)
        if stored is not None:
            undo.pop(self._last_numbers, stored.head.last_number)
            undo.pop(self.chunks, first_number)

    def put_producer(self, row: ProducerRow, undo: UndoLog) -> None:
        undo.put(self.producers, row.producer_id, row)

    def forget_producers(self, before_ms: int, undo: UndoLog) -> None:
        for row in [each for each in self.producers.values() if each.used_at_ms < before_ms]:
            undo.pop(self.producers, row.producer_id)

    def remove_rows(self, limit: int) -> int:
        """Removes up to `limit` rows of either kind; returns how many."""
        removed = 0
        for table in (self.chunks, self.producers):
            while table and removed < limit:
                table.popitem()
                removed += 1
        return removed

    def is_empty(self) -> bool:
        return not self.chunks and not self.producers

    # -- reading
    def from_number(self, number: int) -> list[StoredChunk]:
        found = [each for each in self.chunks.values() if each.head.last_number >= number]
        return sorted(found, key=_last_number)

    def page(self, from_number: int, bytes_max: int) -> ChunkPage:
        found = self.from_number(from_number)
        taken: list[bytes] = []
        for stored in found:
            bytes_max -= len(stored.data)
            if bytes_max < 0 and taken:
                break
            taken.append(stored.data)
        return ChunkPage(taken, [], len(taken) < len(found))

    def heads(self, from_number: int, limit: int) -> list[ChunkHead]:
        return [stored.head for stored in self.from_number(from_number)[: max(limit, 0)]]

    def first_number_since(self, at_ms: int) -> int | None:
        numbers = [each.head.first_number for each in self.chunks.values() if each.head.last_at_ms >= at_ms]
        return min(numbers, default=None)

    def producer_rows(self) -> list[ProducerRow]:
        return [_copy(self.producers[producer_id]) for producer_id in sorted(self.producers)]


def closed(changes: LogChanges) -> LogChanges:
    """The values of this moment, whatever their owners do to them later."""
    twin = LogChanges()
    twin.chunks = [(log, _twin(builder)) for log, builder in changes.chunks if builder.count > 0]
    twin.deleted = list(changes.deleted)
    twin.producers = [(log, _copy(row)) for log, row in changes.producers]
    twin.producers_purged = list(changes.producers_purged)
    return twin


def _twin(builder: ChunkBuilder) -> ChunkBuilder:
    chunk = Chunk(builder.data())
    twin = ChunkBuilder()
    for index in range(chunk.count):
        twin.add(chunk.number(index), chunk.at_ms(index), chunk.record(index), chunk.body_in_record(index))
    return twin


def _stored(builder: ChunkBuilder) -> StoredChunk:
    data = builder.data()
    head = ChunkHead(
        builder.first_number,
        builder.last_number,
        builder.first_at_ms,
        builder.last_at_ms,
        builder.count,
        len(data),
    )
    return StoredChunk(head, data)


def _copy(row: ProducerRow) -> ProducerRow:
    return ProducerRow(row.producer_id, row.epoch, row.last_sequence, row.used_at_ms, row.groups)


def _last_number(stored: StoredChunk) -> int:
    return stored.head.last_number
