"""Chunks: what goes in comes out, and what is no chunk is told."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.message.event_chunk import (
    BODY_ELSEWHERE,
    HAS_NUMBERS,
    HEAD_BYTES,
    MAGIC,
    Chunk,
    ChunkBuilder,
    ChunkDamaged,
)

#: (numbers skipped, milliseconds passed, record, whether its body is known).
Raw = tuple[int, int, bytes, bool]
raw_events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.binary(max_size=30), st.booleans()),
    min_size=1,
    max_size=20,
)
starts = st.integers(0, 1 << 62)


def built(raw: list[Raw], first: int) -> tuple[ChunkBuilder, list[tuple[int, int, bytes, int]]]:
    builder = ChunkBuilder()
    events = []
    number, at_ms = first, 1_700_000_000_000
    for index, (skipped, passed_ms, record, has_body) in enumerate(raw):
        number += skipped if index else 0
        at_ms += passed_ms
        event = (number, at_ms, record, len(record) // 2 if has_body else BODY_ELSEWHERE)
        builder.add(*event)
        events.append(event)
        number += 1
    return builder, events


def read_all(chunk: Chunk) -> list[tuple[int, int, bytes, int]]:
    return [
        (chunk.number(index), chunk.at_ms(index), chunk.record(index), chunk.body_in_record(index))
        for index in range(chunk.count)
    ]


@given(raw_events, starts)
def test_a_chunk_gives_back_its_events(raw: list[Raw], first: int) -> None:
    """H-16: numbers, times, records and bodies, with gaps and without."""
    builder, events = built(raw, first)
    data = builder.data()
    chunk = Chunk(data)
    assert read_all(chunk) == events
    assert len(data) == builder.size_bytes()
    assert (chunk.first_number, chunk.last_number, chunk.count) == (events[0][0], events[-1][0], len(events))
    assert (builder.first_number, builder.last_number, builder.count) == (
        events[0][0],
        events[-1][0],
        len(events),
    )
    assert (builder.first_at_ms, builder.last_at_ms) == (events[0][1], events[-1][1])
    for index, (_, _, record, body_at) in enumerate(events):
        at = chunk.body_at(index)
        if body_at == BODY_ELSEWHERE:
            assert at == -1
        else:
            assert data[at : chunk.end(index)] == record[body_at:]
    assert data[chunk.start(0) : chunk.end(chunk.count - 1)] == b"".join(event[2] for event in events)


@given(raw_events, starts, st.integers(0, 30))
def test_a_record_in_two_pieces_is_a_record(raw: list[Raw], first: int, cut: int) -> None:
    """H-16: what the broker puts before a message is not copied together with it."""
    builder, events = built(raw, first)
    other = ChunkBuilder()
    for number, at_ms, record, body_at in events:
        front = record[: min(cut, len(record) if body_at == BODY_ELSEWHERE else body_at)]
        body_in_rest = body_at if body_at == BODY_ELSEWHERE else body_at - len(front)
        other.add_event(number, at_ms, front, record[len(front) :], body_in_rest)
    assert other.data() == builder.data()
    assert other.size_bytes() == builder.size_bytes()


@given(raw_events, starts)
def test_a_chunk_without_gaps_has_no_numbers_in_it(raw: list[Raw], first: int) -> None:
    """H-16: eight bytes an event less."""
    gapless = [(0, passed_ms, record, has_body) for _, passed_ms, record, has_body in raw]
    builder, _ = built(gapless, first)
    flags = int.from_bytes(builder.data()[4:8], "little")
    assert flags == 0
    with_gap, _ = built([*gapless, (1, 0, b"", False)], first)
    assert int.from_bytes(with_gap.data()[4:8], "little") == HAS_NUMBERS


@given(raw_events, st.integers(0, 1 << 40), st.integers(-3, 70))
def test_numbers_and_times_are_found(raw: list[Raw], first: int, step: int) -> None:
    """H-20: the first event at or behind; the count when there is none."""
    builder, events = built(raw, first)
    chunk = Chunk(builder.data())
    number, at_ms = first + step, 1_700_000_000_000 + step
    found = [index for index, event in enumerate(events) if event[0] >= number]
    assert chunk.index_of(number) == (found[0] if found else len(events))
    found = [index for index, event in enumerate(events) if event[1] >= at_ms]
    assert chunk.index_since(at_ms) == (found[0] if found else len(events))


@given(raw_events, raw_events)
def test_a_chunk_can_be_taken_while_it_gathers(raw: list[Raw], more: list[Raw]) -> None:
    """Contract: its bytes are those of the moment; events that come later change nothing in them."""
    builder, events = built(raw, 0)
    early = builder.data()
    number, at_ms = events[-1][0] + 1, events[-1][1]
    for _, _, record, _ in more:
        builder.add(number, at_ms, record, 0)
        number += 1
    assert read_all(Chunk(early)) == events
    assert Chunk(builder.data()).count == len(raw) + len(more)


def test_the_layout_is_as_described() -> None:
    """H-16: tools read it with array operations, so not a byte may move."""
    builder = ChunkBuilder()
    builder.add(5, 1_000, b"abc", 1)
    builder.add(7, 1_001, b"de", BODY_ELSEWHERE)
    assert builder.data() == (
        MAGIC
        + struct.pack("<IIIq", 1, 2, 5, 5)
        + struct.pack("<2I", 3, 5)
        + struct.pack("<2I", 1, 0xFFFFFFFF)
        + struct.pack("<2q", 1_000, 1_001)
        + struct.pack("<2q", 5, 7)
        + b"abcde"
    )


# -- damage
def use(data: bytes) -> None:
    """Everything a reader can ask; must not raise anything but ChunkDamaged, whatever the bytes are."""
    chunk = Chunk(data)
    assert chunk.count > 0
    for index in range(min(chunk.count, 50)):
        chunk.number(index)
        chunk.at_ms(index)
        assert 0 <= chunk.start(index) <= chunk.end(index) <= len(data)
        chunk.record(index)
        at = chunk.body_at(index)
        assert at == -1 or chunk.start(index) <= at <= chunk.end(index)
        chunk.body_in_record(index)
    for number in (-(1 << 63), 0, chunk.first_number, chunk.last_number, (1 << 63) - 1):
        assert 0 <= chunk.index_of(number) <= chunk.count
        assert 0 <= chunk.index_since(number) <= chunk.count


@given(raw_events, starts, st.data())
def test_a_chunk_that_is_cut_or_longer_is_damaged(raw: list[Raw], first: int, choice: st.DataObject) -> None:
    """F4: at any byte."""
    data = built(raw, first)[0].data()
    length = choice.draw(st.integers(0, len(data) - 1))
    for wrong in (data[:length], data + b"\0", data[length + 1 :]):
        with pytest.raises(ChunkDamaged):
            Chunk(wrong)


@given(
    raw_events,
    starts,
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_are_damage_or_do_no_harm(
    raw: list[Raw], first: int, flips: list[tuple[int, int]]
) -> None:
    """F4: no other error, no cut outside of the bytes."""
    data = bytearray(built(raw, first)[0].data())
    for position, mask in flips:
        data[position % len(data)] ^= mask
    with contextlib.suppress(ChunkDamaged):
        use(bytes(data))


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_are_damage_or_do_no_harm(data: bytes, has_magic: bool) -> None:
    """F4: nothing that a stranger writes gets further."""
    with contextlib.suppress(ChunkDamaged):
        use(MAGIC + data if has_magic else data)


def head(flags: int, count: int, record_bytes: int, first_number: int = 0) -> bytes:
    return MAGIC + struct.pack("<IIIq", flags, count, record_bytes, first_number)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        head(0, 0, 0),
        head(0, 0xFFFFFFFF, 0xFFFFFFFF),
        head(2, 1, 0) + bytes(16),
        b"BwC\x02" + head(0, 1, 0)[4:] + bytes(16),
        head(0, 1, 3) + struct.pack("<IIq", 2, 0, 0) + b"abc",
        head(0, 2, 3) + struct.pack("<IIIIqq", 5, 3, 0, 0, 0, 0) + b"abc",
        head(0, 2, 3) + struct.pack("<IIIIqq", 3, 2, 0, 0, 0, 0) + b"abc",
        head(1, 2, 0) + struct.pack("<IIIIqqqq", 0, 0, 0, 0, 0, 0, 0, 0),
        head(1, 2, 0) + struct.pack("<IIIIqqqq", 0, 0, 0, 0, 0, 0, 1, 2),
        head(1, 2, 0, 5) + struct.pack("<IIIIqqqq", 0, 0, 0, 0, 0, 0, 5, 4),
    ],
)
def test_a_chunk_that_contradicts_itself_is_damaged(data: bytes) -> None:
    """F4: counts, ends and numbers must fit together."""
    with pytest.raises(ChunkDamaged):
        Chunk(data)


@pytest.mark.parametrize(("index", "body_at"), [(0, 4), (1, 2), (1, 7), (0, 0xFFFFFFFE)])
def test_a_body_outside_of_its_record_is_damage(index: int, body_at: int) -> None:
    """F4: two records of three bytes."""
    bodies = [0, 3]
    bodies[index] = body_at
    data = head(0, 2, 6) + struct.pack("<IIIIqq", 3, 6, *bodies, 0, 0) + b"abcdef"
    chunk = Chunk(data)
    assert chunk.body_at(1 - index) >= 0
    with pytest.raises(ChunkDamaged):
        chunk.body_at(index)
    with pytest.raises(ChunkDamaged):
        chunk.body_in_record(index)


def test_the_head_is_as_long_as_it_says() -> None:
    assert len(head(0, 0, 0)) == HEAD_BYTES
