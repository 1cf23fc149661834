"""Rows as they lie in the chunks of a stage, and how they are read back."""

from __future__ import annotations

import pytest

from busway.message.event_chunk import BODY_ELSEWHERE, Chunk, ChunkBuilder
from busway.message.event_record import Event
from busway.message.message import Message
from busway.staging import publisher, targets
from busway.staging.publisher import PagesAhead
from busway.staging.staged_record import EventRecords, MessageRecords, events_in, messages_in, sizes_in
from busway.staging.targets import slice_end
from busway.store.contract import ChunkPage, FragmentKey
from tests.unit.broker.topic_bench import encoded
from tests.unit.staging.staging_bench import StagingBench, on_a_staging_bench, texts


def _chunk_of(*records: bytes) -> Chunk:
    builder = ChunkBuilder()
    for number, record in enumerate(records):
        builder.add(number, 1, record, BODY_ELSEWHERE)
    return Chunk(builder.data())


def _fields(message: Message) -> tuple[object, ...]:
    texts_of = (message.session_id, message.partition_key, message.message_id)
    return (message.head, message.bare, message.ttl_ms, message.scheduled_at_ms, *texts_of)


def _mixed() -> list[Message]:
    """Neighbours that begin alike, and such that differ in one thing, or hold what looks like a beginning."""
    plain = [Message(b"", b"a"), Message(b"", b"bc"), Message(b"", b"")]
    timed = [Message(b"", b"d", ttl_ms=5), Message(b"", b"e", ttl_ms=5), Message(b"", b"f", ttl_ms=6)]
    headed = [Message(b"h", b"hg"), Message(b"hh", b"g"), Message(b"h", b"hg", scheduled_at_ms=9)]
    named = [
        Message(b"h", b"i", session_id="s", partition_key="s", message_id="m"),
        Message(b"", b"j", session_id=""),
        Message(b"h", b"k", partition_key="schlüssel", ttl_ms=5),
    ]
    return [*plain, *timed, plain[0], *headed, *named, plain[1], *named, *timed]


def test_rows_come_back_as_they_were_staged() -> None:
    """Staging: what a row is made of is read back, whatever its neighbours begin with."""
    messages, records = _mixed(), MessageRecords()
    chunk = _chunk_of(*[records.front(message) + message.bare for message in messages])
    for first in range(len(messages)):
        found = messages_in(chunk, first, len(messages))
        assert [_fields(each) for each in found] == [_fields(each) for each in messages[first:]]
        assert sizes_in(chunk, first, len(messages)) == [each.size() for each in messages[first:]]


def _event(bare: bytes, key: str | None = None, annotations: bytes = b"", delivery: bytes = b"") -> Event:
    event = Event(bare, BODY_ELSEWHERE if key is None else len(bare) // 2)
    event.partition_key, event.annotations, event.delivery_annotations = key, annotations, delivery
    event.annotation_count = 2 * len(annotations)
    return event


def _event_fields(event: Event) -> tuple[object, ...]:
    annotations = (event.annotations, event.annotation_count, event.delivery_annotations)
    return (event.bare, event.body_at, event.partition_key, *annotations)


def test_events_come_back_as_they_were_staged() -> None:
    """Staging: what an event is made of is read back, in all its lengths."""
    events = [
        _event(b"a"),
        _event(bytes(70_000), "k", b"n" * 300, b"d" * 70_000),
        _event(bytes(300), "schlüssel" * 30, b"n" * 70_000),
        _event(b"", "", b"", b"d"),
    ]
    records = EventRecords()
    chunk = _chunk_of(*[records.front(event) + event.bare for event in events])
    found = events_in(chunk, 0, len(events))
    assert [_event_fields(each) for each in found] == [_event_fields(each) for each in events]
    assert sizes_in(chunk, 0, len(events)) == [event.size_bytes() for event in events]


def test_a_slice_ends_with_rows_or_bytes() -> None:
    """Staging: a slice has as many rows as it may, fewer large ones, and one at least."""
    chunk = _chunk_of(*[bytes(300 * 1024)] * 4, *[b"x"] * 10, bytes(2 << 20))
    assert [slice_end(chunk, at, 5) for at in (0, 1, 3, 4, 9, 14)] == [2, 3, 8, 9, 14, 15]


def test_a_part_of_a_mebibyte_is_one_chunk() -> None:
    """Staging: what the broker adds to rows makes no chunk of its own."""
    payloads = [encoded("x" * 1000)] * 1000
    assert sum(map(len, payloads)) <= targets.CHUNK_BYTES_MAX < sum(map(len, payloads)) + 41 * 1000

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        stage = await bench.stage("orders", 1, *payloads)
        assert stage is not None
        (name, log), *_ = stage.logs()
        heads = await bench.namespace.contents.keepers[name].store.chunk_heads(log.key, 0, 10)
        assert [each.events for each in heads] == [1000]

    on_a_staging_bench(test)


def test_many_pages_are_published_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging: rows that are read page by page arrive in their order, each once, and nothing is left of them."""
    monkeypatch.setattr(publisher, "_PAGE_BYTES", 1)

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        for number in range(6):
            await bench.stage("orders", 1, *texts(3 * number, 3), part=number)
        await bench.decide({1: 18})
        await bench.publish_all()
        assert await bench.rows("orders") == [f"row {number}" for number in range(18)]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_the_next_page_is_on_its_way_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging: reading goes on while rows are handed over; a page from elsewhere is read as if nothing was ahead."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        for number in range(3):
            await bench.stage("orders", 1, *texts(2 * number, 2), part=number)
        stage = bench.stagings.table.stages[f"{1:032x}"]
        (name, log), *_ = stage.logs()
        store = bench.namespace.contents.keepers[name].store
        asked: list[int] = []
        read = store.chunks

        async def noted(key: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
            asked.append(from_number)
            return await read(key, from_number, bytes_max)

        monkeypatch.setattr(store, "chunks", noted)
        pages = PagesAhead(store, log.key, 1)
        first = await pages.page(0)
        await bench.publish_all()
        assert (Chunk(first.chunks[0]).count, asked) == (2, [0, 2])
        second = await pages.page(2)
        assert (Chunk(second.chunks[0]).first_number, asked) == (2, [0, 2])
        again = await pages.page(0)
        assert again.chunks == first.chunks
        pages.close()

    on_a_staging_bench(test)
