"""Chunks as columns: agreement with the engine's own decoder, and bytes from strangers."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Int, Long, Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusMessage
from busway.message.event_chunk import ChunkBuilder, ChunkDamaged, heads_of, numbers_of
from busway.message.event_record import event_of
from busway_spark.eventhubs.columns import batch_of_payloads, batch_of_run, event_run
from busway_spark.eventhubs.options import ALL_COLUMNS, WantedColumns
from tests.harness.event_records import record_of
from tests.spark.single_events import batch_of_messages

VALUES = [
    "text", "ä\n\"", "", "x" * 300, 0, 1, -1, 255, 2**40, -(2**40), Int(7), Long(9), UInt(5), True, False, None, 1.5,
    b"bytes", b"", UUID(int=7), Timestamp(1_700_000_000_000), Symbol("symbol"), [1, "two"], {"a": {"b": 1}},
]  # fmt: skip


def message(seed: int) -> bytes:
    """Anything a client may send."""
    chance = random.Random(seed)
    if chance.random() < 0.3:
        return encode_message(AmqpMessage([chance.randbytes(chance.choice([0, 3, 255, 256, 2000]))], DATA))
    if chance.random() < 0.2:
        return encode_message(AmqpMessage({"a": chance.choice(VALUES)}))
    names = [f"name {number}" for number in range(chance.randrange(40))]
    return ServiceBusMessage(
        chance.randbytes(chance.randrange(600)),
        {name: chance.choice(VALUES) for name in names},
        message_id=chance.choice([None, "id", "i" * 400]),
        partition_key=chance.choice([None, "key", "k" * 100]),
        subject=chance.choice([None, "subject"]),
    ).encode()


def chunk(first: int, payloads: list[bytes], gap: int = 0) -> tuple[bytes, list[bytes]]:
    """A framed chunk, and its records."""
    builder, records = ChunkBuilder(), []
    for place, payload in enumerate(payloads):
        number = first + place + (gap if place else 0)
        event = event_of(payload)
        record = record_of(event, number, 1_000 + number)
        records.append(record)
        front = record[: len(record) - len(event.bare)]
        builder.add_event(number, 1_000 + number, front, event.bare, event.body_at)
    data = builder.data()
    return len(data).to_bytes(4, "little") + data, records


@pytest.mark.parametrize("seed", range(20))
def test_columns_say_what_the_decoder_says(seed: int) -> None:
    """H-16: the short way and the engine give the same rows, for whatever clients send."""
    payloads = [message(seed * 100 + place) for place in range(60)]
    first, some = chunk(5, payloads[:25])
    second, others = chunk(40, payloads[25:], gap=3)
    run = event_run(first + second, 0, 1 << 60)
    assert run is not None
    messages = [decode_message(record) for record in some + others]
    numbers = [*range(5, 30), 40, *range(44, 78)]
    slow = batch_of_messages(messages, numbers, [1_000 + number for number in numbers], "3")
    assert batch_of_run(run, "3").to_pylist() == slow.to_pylist()


@pytest.mark.parametrize("seed", range(20))
def test_events_without_their_bodies_are_the_same_columns(seed: int) -> None:
    """H-16: what is not wanted is not fetched; all else is as it was, whatever clients send."""
    payloads = [message(seed * 100 + place) for place in range(60)]
    data, records = chunk(5, payloads, gap=3)
    wanted = (*(name for name in ALL_COLUMNS.names if name != "body"), "propertyTypes")
    whole = event_run(data, 0, 1 << 60)
    assert whole is not None
    expected = batch_of_run(whole, "3", WantedColumns(wanted)).to_pylist()
    numbers = [5, *range(9, 68)]
    slow = batch_of_messages(
        [decode_message(record) for record in records],
        numbers,
        [1_000 + number for number in numbers],
        "3",
        WantedColumns(wanted),
    )
    assert slow.to_pylist() == expected
    heads, bare = framed(heads_of(data[4:])), framed(numbers_of(data[4:]))
    assert len(bare) == 4 + 24 + 24 * 60
    assert len(heads) < len(data)
    run, numbers_run = event_run(heads, 0, 1 << 60), event_run(bare, 0, 1 << 60)
    assert run is not None
    assert numbers_run is not None
    assert batch_of_run(run, "3", WantedColumns(wanted)).to_pylist() == expected
    few = WantedColumns(("sequenceNumber", "enqueuedTime", "offset", "partition", "body"), has_bodies=False)
    assert batch_of_run(numbers_run, "3", few).to_pylist() == [
        {name: row.get(name) for name in few.names} for row in expected
    ]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize(
    ("names", "has_bodies", "parts"),
    [
        (ALL_COLUMNS.names, True, "all"),
        (ALL_COLUMNS.names, False, "heads"),
        (("partition", "sequenceNumber"), True, "numbers"),
        (("sequenceNumber", "properties"), True, "heads"),
        (("body",), False, "numbers"),
    ],
)
def test_only_what_is_wanted_is_fetched(names: tuple[str, ...], has_bodies: bool, parts: str) -> None:
    """H-20: whoever counts events by a column of numbers fetches no record at all."""
    assert WantedColumns(names, has_bodies).parts == parts


def annotated(payload: bytes, number: int, chance: random.Random) -> bytes:
    """As a server other than ours may send it: what it annotates stands anywhere, its offset is no number."""
    found = decode_message(payload)
    own: list[tuple[object, object]] = [
        (Symbol("x-opt-sequence-number"), Long(number)),
        (Symbol("x-opt-offset"), f"{number * 512}"),
        (Symbol("x-opt-enqueued-time"), Timestamp(1_000 + number)),
        *(found.message_annotations or {}).items(),
        *([(Symbol("x-opt-publisher"), chance.choice(["me", None, 7]))] if chance.random() < 0.3 else []),
    ]
    chance.shuffle(own)
    found.message_annotations = dict(own)
    return encode_message(found)


@pytest.mark.parametrize("seed", range(20))
def test_events_that_came_one_by_one_are_the_same_columns(seed: int) -> None:
    """H-22: over AMQP too all events at once and one after the other give the same rows."""
    chance = random.Random(seed)
    payloads = [annotated(message(seed * 100 + number), number, chance) for number in range(50)]
    messages = [decode_message(payload) for payload in payloads]
    times = [1_000 + number for number in range(50)]
    slow = batch_of_messages(messages, list(range(50)), times, "1")
    batch, numbers = batch_of_payloads(payloads, "1")
    assert batch.to_pylist() == slow.to_pylist()
    assert batch.schema == slow.schema
    assert numbers.tolist() == list(range(50))


def test_events_outside_the_range_are_left_out() -> None:
    """H-20: the first and the last chunk may hold more than was asked for."""
    data = chunk(0, [message(n) for n in range(10)])[0] + chunk(10, [message(n) for n in range(10)])[0]
    run = event_run(data, 7, 12)
    assert run is not None
    assert run.numbers.tolist() == [7, 8, 9, 10, 11]
    assert run.last_number == 19
    assert event_run(b"", 0, 5) is None


@pytest.mark.parametrize("seed", range(300))
def test_damaged_answers_are_refused_or_read(seed: int) -> None:
    """H-20: no byte of an answer leads outside of it, or to anything but rows or a clear error."""
    chance = random.Random(seed)
    data = bytearray(chunk(0, [message(seed + place) for place in range(12)])[0])
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(chance.choice([60, len(data)]))] = chance.randrange(256)
    cut = bytes(data) if chance.random() < 0.7 else bytes(data[: chance.randrange(len(data))])
    try:
        run = event_run(cut, 0, 1 << 60)
        if run is not None and len(run):
            assert batch_of_run(run, "0").num_rows == len(run)
    except (ChunkDamaged, DecodeError):
        pass
