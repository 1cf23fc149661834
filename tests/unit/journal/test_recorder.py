"""From what the broker tells to rows: nothing is lost on the way, whatever repeats and whatever does not."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from busway.broker.fragment.journal import (
    COMPLETE,
    DEAD_LETTER,
    DUPLICATE,
    RECEIVE,
    SEND,
    SESSION_ACCEPT,
    OperationRow,
)
from busway.broker.fragment.locks import Lock
from busway.journal.files import COLUMNS, OPERATIONS
from busway.journal.frame import Frame, FrameDamaged
from busway.journal.parquet_file import SCHEMA
from busway.journal.recorder import CHARACTERS_MAX, ROWS_MAX, TEXT_CHARACTERS_MAX
from busway.message.event_record import Event
from tests.unit.journal.frames import Recorded, stored


def test_the_columns_are_those_of_the_contract() -> None:
    """Journal: names, order and types."""
    recorded = Recorded()
    recorded.recorder.messages(SEND, "orders", 0, [stored(1)])
    assert recorded.table().schema.names == SCHEMA.names == list(COLUMNS)
    assert str(SCHEMA.field("time").type) == "timestamp[us, tz=UTC]"
    assert str(SCHEMA.field("operation").type) == "dictionary<values=string, indices=int32, ordered=0>"


def test_a_message_is_told_whole() -> None:
    """Journal: every column of a send, a lock's completion, and what neither knows."""
    recorded = Recorded()
    now_ms = recorded.clock.wall_ms()
    message = stored(
        7, b"abc", session_id="s", partition_key="k", enqueued_at_ms=now_ms - 5, delivery_count=2
    )
    message.changes = b"12"
    recorded.recorder.messages(SEND, "orders", 3, [message])
    recorded.recorder.locks(COMPLETE, "orders", 3, [Lock(7, 0, 1, 0, 9, None, None, 0.0, now_ms - 5)])
    recorded.recorder.rows(SESSION_ACCEPT, "orders", 3, [OperationRow(session_id="s")])
    now, before = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (now_ms, now_ms - 5))
    nothing = dict.fromkeys(COLUMNS)
    common = {**nothing, "time": now, "entity": "orders", "fragment": 3}
    known = {"sequenceNumber": 7, "enqueuedTime": before}
    texts = {"sessionId": "s", "partitionKey": "k"}
    assert recorded.rows() == [
        {**common, **known, **texts, "operation": "send", "sizeBytes": 5, "deliveryCount": 2},
        {**common, **known, "operation": "complete", "sizeBytes": 9, "deliveryCount": 1},
        {**common, "operation": "sessionAccept", "sessionId": "s"},
    ]  # fmt: skip


def test_duplicates_have_neither_number_nor_time() -> None:
    """Journal: they were not stored."""
    recorded = Recorded()
    recorded.recorder.messages(
        DUPLICATE, "orders", 0, [stored(0, enqueued_at_ms=0), stored(0, enqueued_at_ms=0)]
    )
    rows = recorded.rows()
    assert [(row["sequenceNumber"], row["enqueuedTime"], row["sizeBytes"]) for row in rows] == [
        (None, None, 1)
    ] * 2


def test_events_are_numbered_from_the_first_on() -> None:
    """Journal: a hub's name, its partition, number 0 too."""
    recorded = Recorded()
    events = [Event(b"abc"), Event(b"de")]
    events[1].partition_key = "k"
    recorded.recorder.events("clicks", 5, 0, 1_700_000_000_000, events)
    rows = recorded.rows()
    shown = [
        [
            row[name]
            for name in ("operation", "entity", "fragment", "sequenceNumber", "sizeBytes", "partitionKey")
        ]
        for row in rows
    ]
    assert shown == [["publish", "clicks", 5, 0, 3, None], ["publish", "clicks", 5, 1, 2, "k"]]
    assert [row["deliveryCount"] for row in rows] == [None, None]


def test_equal_rows_cost_almost_nothing() -> None:
    """Journal: a long run of like messages is one entry in each column."""
    recorded = Recorded()
    recorded.recorder.messages(
        SEND, "orders", 0, [stored(number, bytes(1024)) for number in range(1, 10_001)]
    )
    recorded.recorder.seal()
    assert len(recorded.frames[0]) < 500
    assert [row["sequenceNumber"] for row in recorded.rows()] == list(range(1, 10_001))


@pytest.mark.parametrize("seed", range(5))
def test_any_mixture_comes_back_as_it_was_told(seed: int) -> None:
    """Journal: random runs over several frames, against plain rows."""
    chance = random.Random(seed)
    recorded = Recorded()
    expected: list[tuple[object, ...]] = []
    for _ in range(200):
        recorded.clock.advance(chance.choice([0, 0.001, 1]))
        operation, path = chance.choice([SEND, RECEIVE]), chance.choice(["a", "b", "c/$DeadLetterQueue"])
        index = chance.randrange(3)
        messages = [
            stored(
                chance.choice([place + 1, chance.randrange(1, 1 << 60)]),
                bytes(chance.choice([1, 1, chance.randrange(2000)])),
                session_id=chance.choice([None, "", "s", "ü" * chance.randrange(3)]),
                partition_key=chance.choice([None, None, f"k{chance.randrange(5)}"]),
                delivery_count=chance.choice([0, 0, 3]),
            )
            for place in range(chance.randrange(1, 30))
        ]
        now_ms = recorded.clock.wall_ms()
        recorded.recorder.messages(operation, path, index, messages)
        for message in messages:
            of_run = (now_ms, OPERATIONS[operation], path, index)
            texts = (message.session_id, message.partition_key)
            expected.append(
                (*of_run, message.sequence_number, *texts, message.size(), message.delivery_count)
            )
        if chance.random() < 0.1:
            recorded.recorder.seal()
    names = list(COLUMNS)[1:9]
    got = [(round(row["time"].timestamp() * 1000), *(row[name] for name in names)) for row in recorded.rows()]
    assert got == expected


def test_reasons_are_cut_and_do_not_stick() -> None:
    """Journal: a client's reason may be long; the next row has none."""
    recorded = Recorded()
    long = "x" * 70_000
    recorded.recorder.rows(
        DEAD_LETTER, "orders", 0, [OperationRow(1, reason=long), OperationRow(2, reason="bad")]
    )
    recorded.recorder.messages(SEND, "orders", 0, [stored(3)])
    assert [row["reason"] for row in recorded.rows()] == ["x" * TEXT_CHARACTERS_MAX, "bad", None]


def test_frames_have_a_bound() -> None:
    """Journal: so many rows, or so many characters, or a run later; and never two hours in one."""
    recorded = Recorded()
    recorded.recorder.messages(SEND, "orders", 0, [stored(n) for n in range(1, ROWS_MAX + 1)])
    assert recorded.frames == []
    recorded.recorder.messages(SEND, "orders", 0, [stored(ROWS_MAX + 1)])
    assert [Frame(frame).rows for frame in recorded.frames] == [ROWS_MAX]
    count = CHARACTERS_MAX // TEXT_CHARACTERS_MAX
    keys = [OperationRow(n, reason=f"{n:05}" + "x" * TEXT_CHARACTERS_MAX) for n in range(count)]
    recorded.recorder.rows(DEAD_LETTER, "orders", 0, keys)
    recorded.recorder.messages(SEND, "orders", 0, [stored(1)])
    assert len(recorded.frames) == 2
    recorded.clock.advance(3_600)
    recorded.recorder.messages(SEND, "orders", 0, [stored(2)])
    recorded.recorder.seal()
    hours = [Frame(frame).hour for frame in recorded.frames]
    assert hours == [hours[0]] * 3 + [hours[0] + 1]
    recorded.recorder.seal()
    assert len(recorded.frames) == 4


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_frame_is_refused(seed: int) -> None:
    """Journal: cut, or with a wrong head."""
    recorded = Recorded()
    recorded.recorder.messages(SEND, "orders", 0, [stored(1, session_id="s")])
    recorded.recorder.seal()
    frame = bytearray(recorded.frames[0])
    chance = random.Random(seed)
    with pytest.raises(FrameDamaged):
        Frame(bytes(frame[: chance.randrange(len(frame))]))
    frame[chance.randrange(8)] ^= 1 << chance.randrange(8)
    with pytest.raises(FrameDamaged):
        Frame(bytes(frame))
