"""Short forms for what batches hold about logs."""

from __future__ import annotations

from typing import Any

from busway.message.event_chunk import BODY_ELSEWHERE, Chunk, ChunkBuilder
from busway.store.contract import ChunkHead, FragmentKey, LogChanges, ProducerRow

HEAD_FIELDS = ("first_number", "last_number", "first_at_ms", "last_at_ms", "events", "size_bytes")
PRODUCER_FIELDS = ("producer_id", "epoch", "last_sequence", "used_at_ms")


def chunk(*numbers: int, at_ms: int = 1_000, body: bytes = b"event") -> ChunkBuilder:
    """A chunk with these events; each is enqueued `at_ms` plus ten times its number."""
    builder = ChunkBuilder()
    for number in numbers:
        builder.add(number, at_ms + 10 * number, b"%d:%b" % (number, body), BODY_ELSEWHERE)
    return builder


def changes(store: Any) -> LogChanges:
    """Of the open batch."""
    batch = store.batch()
    if batch.logs is None:
        batch.logs = LogChanges()
    made: LogChanges = batch.logs
    return made


def append(store: Any, log: FragmentKey, *chunks: ChunkBuilder) -> None:
    for each in chunks:
        changes(store).chunks.append((log, each))
        store.batch().bytes += each.record_bytes


def retire(store: Any, log: FragmentKey, *first_numbers: int) -> None:
    changes(store).deleted.extend((log, number) for number in first_numbers)


def remember(store: Any, log: FragmentKey, *rows: tuple[int, int, int, int]) -> None:
    changes(store).producers.extend((log, ProducerRow(*row)) for row in rows)


def forget(store: Any, log: FragmentKey, before_ms: int) -> None:
    changes(store).producers_purged.append((log, before_ms))


def numbers_in(data: bytes) -> list[int]:
    found = Chunk(data)
    return [found.number(index) for index in range(found.count)]


def head_values(head: ChunkHead) -> tuple[int, ...]:
    return tuple(getattr(head, name) for name in HEAD_FIELDS)


async def numbers_of_log(
    store: Any, log: FragmentKey, from_number: int = 0, bytes_max: int = 1 << 20
) -> list[int]:
    """Every number from one on, page by page."""
    found: list[int] = []
    while True:
        page = await store.chunks(log, from_number, bytes_max)
        assert page.damaged == []
        for data in page.chunks:
            found += numbers_in(data)
        if not page.more:
            return found
        assert page.chunks, "a page that was cut holds at least one chunk"
        from_number = found[-1] + 1


async def heads_of(store: Any, log: FragmentKey, from_number: int = 0) -> list[tuple[int, ...]]:
    return [head_values(head) for head in await store.chunk_heads(log, from_number, 1_000)]


async def producers_of(store: Any, log: FragmentKey) -> list[tuple[int, ...]]:
    return [tuple(getattr(row, name) for name in PRODUCER_FIELDS) for row in await store.producers(log)]


async def log_picture(store: Any, log: FragmentKey) -> list[object]:
    """Everything a store can be asked about a log."""
    page = await store.chunks(log, 0, 1 << 20)
    assert page.damaged == []
    heads = await heads_of(store, log)
    seen: list[object] = [page.chunks, page.more, heads, await producers_of(store, log)]
    assert await numbers_of_log(store, log, 0, 1) == [n for data in page.chunks for n in numbers_in(data)]
    for first, last, first_at_ms, last_at_ms, _, size_bytes in heads:
        for number in (first, last, last + 1):
            page = await store.chunks(log, number, size_bytes)
            seen.append(
                (page.chunks, page.more, [head_values(h) for h in await store.chunk_heads(log, number, 2)])
            )
        for at_ms in (first_at_ms - 1, first_at_ms, last_at_ms, last_at_ms + 1):
            seen.append(await store.first_number_since(log, at_ms))
    return seen
