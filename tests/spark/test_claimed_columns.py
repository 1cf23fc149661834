"""Claimed messages in bulk are the rows that single messages are; without a session of Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import Properties
from busway.amqp.sections import SEQUENCE, VALUE, AmqpMessage, encode_message
from busway.amqp.types import Char, Described, Float, Int, Long, Symbol, Timestamp, UByte, UInt, ULong
from busway.client.errors import Unreachable
from busway.client.messages import NO_BODY, ServiceBusMessage, ServiceBusReceivedMessage
from busway.gateway.amqp.message_mapping import message_of, peeked_payload
from busway.message.claimed_run import HEAD, LENGTH, claimed_frame
from busway.message.message import PLACE_DEFERRED, Message
from busway_spark.servicebus.bulk_claims import (
    ClaimedColumns,
    ClaimedFrameDamaged,
    claimed_run,
    gathered_runs,
)
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.message_columns import MessageColumns
from busway_spark.servicebus.options import ServiceBusOptions, read_options

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
VALUES: list[object] = [
    "north", "", "x" * 63, "x" * 64, "ü" * 40, "long " * 100, 0, 1, -1, 127, -128, 128, 40_000, -3_000_000_000,
    1 << 62, True, False, None, 1.5, float("inf"), b"", b"bytes", Timestamp(1_700_000_000_123), UUID(int=5),
    UByte(200), UInt(4_000_000_000), ULong((1 << 64) - 1), Int(-5), Float(0.5), Char("c"), Symbol("s"),
    Described(Symbol("com.microsoft:timespan"), Long(50_000_000)),
    Described(Symbol("com.microsoft:uri"), "http://example.com/"),
]  # fmt: skip


def _options(**given: str) -> ServiceBusOptions:
    return read_options({"connectionString": CONNECTION, "queue": "q", **given})


def _stored(payload: bytes, number: int) -> Message:
    """As the broker keeps it, held by a claim."""
    message = message_of(payload, False)
    message.sequence_number = number
    message.enqueued_at_ms = 1_763_000_000_000 + number
    message.state = PLACE_DEFERRED
    return message


def _sent(chance: random.Random) -> bytes:
    """What a client of ours sends, with anything set or left out."""

    def maybe(make: Callable[[], Any]) -> Any:
        return make() if chance.random() < 0.5 else None

    def text() -> str:
        return chance.choice(["", "a", "order-7", "größe", "x" * 128])

    return ServiceBusMessage(
        chance.randbytes(chance.choice([0, 1, 255, 256, 1024, 70_000])),
        {
            chance.choice(["a", "amount", "ö", "n" * 200]) + str(at): chance.choice(VALUES)
            for at in range(chance.choice([0, 0, 1, 3, 40]))
        },
        message_id=text(),
        session_id=maybe(text),
        subject=maybe(text),
        content_type=maybe(lambda: chance.choice(["", "text/plain"])),
        correlation_id=maybe(text),
        to=maybe(text),
        reply_to=maybe(text),
        reply_to_session_id=maybe(text),
        partition_key=maybe(text),
        time_to_live_ms=maybe(lambda: chance.choice([1, 60_000, 4_294_967_295])),
    ).encode(maybe(lambda: 1_763_000_000_000))


def _odd(chance: random.Random) -> bytes:
    """What other clients may send."""
    properties = Properties(
        message_id=chance.choice([None, UUID(int=7), ULong(3), b"\x01\x02", "text", "t" * 128]),
        user_id=chance.choice([None, b"me", b"m" * 300]),
        subject=chance.choice([None, "s", "s" * 300]),
        correlation_id=chance.choice([None, UUID(int=8), "c"]),
        absolute_expiry_time=chance.choice([None, Timestamp(1_763_000_000_000)]),
        creation_time=chance.choice([None, Timestamp(0)]),
        group_id=chance.choice([None, "g"]),
        group_sequence=chance.choice([None, UInt(0), UInt(70_000)]),
        reply_to_group_id=chance.choice([None, "r"]),
    )
    body, kind = chance.choice(
        [("text", VALUE), (None, VALUE), ({"a": 1}, VALUE), ([["a", 1]], SEQUENCE), (None, NO_BODY)]
    )
    return encode_message(
        AmqpMessage(
            body,
            kind,
            properties=chance.choice([None, properties]),
            application_properties=chance.choice([None, {}, {"DeadLetterReason": "why", "x": 1}]),
            footer=chance.choice([None, {Symbol("f"): 1}]),
        )
    )


def _frame(messages: list[Message]) -> bytes:
    return claimed_frame(messages, [message.bare for message in messages])[LENGTH.size :]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"properties": "json"},
        {"properties": "json", "columns": "sequenceNumber,properties,propertyTypes"},
        {"columns": "body,timeToLive,userId,contentEncoding,absoluteExpiryTime,creationTime,groupSequence"},
    ],
)
@pytest.mark.parametrize("odd_share", [0.0, 0.1, 1.0])
def test_rows_in_bulk_are_the_rows_of_single_messages(given: dict[str, str], odd_share: float) -> None:
    """M-1…M-17: every column, for whatever clients send, in runs of any length."""
    chance = random.Random(f"{given} {odd_share}")
    options = _options(**given)
    schema = readable_schema(options)
    bulk, single = (
        ClaimedColumns(schema, options, "q"),
        MessageColumns(schema, options, "q", hides_claim=True),
    )
    first = 1
    for count in (1, 2, 7, 100, 300):
        payloads = [_odd(chance) if chance.random() < odd_share else _sent(chance) for _ in range(count)]
        messages = [_stored(payload, (3 << 48) + first + at) for at, payload in enumerate(payloads)]
        messages[0].delivery_count = 4
        first += count
        found = bulk.batch(claimed_run(_frame(messages)))
        found.validate(full=True)
        expected = single.batch([ServiceBusReceivedMessage(peeked_payload(each)) for each in messages])
        assert found.schema == expected.schema
        for name in expected.schema.names:
            assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


def test_a_message_that_was_forwarded_shows_where_it_began() -> None:
    """M-15, M-21: details that the server writes beside the columns."""
    from busway.message.message import Head

    options = _options(columns="enqueuedSequenceNumber,deadLetterSource,sequenceNumber")
    head = Head()
    head.hops, head.first_number, head.dead_letter_source = 1, 77, "orders"
    messages = [_stored(ServiceBusMessage(b"a").encode(), 1), _stored(ServiceBusMessage(b"b").encode(), 2)]
    messages[1].head = head.encoded()
    batch = ClaimedColumns(readable_schema(options), options, "q").batch(claimed_run(_frame(messages)))
    assert batch.to_pylist() == [
        {"enqueuedSequenceNumber": None, "deadLetterSource": None, "sequenceNumber": 1},
        {"enqueuedSequenceNumber": 77, "deadLetterSource": "orders", "sequenceNumber": 2},
    ]


def test_frames_that_are_gathered_are_the_rows_of_each_in_their_order() -> None:
    """M-1…M-17: also where only some of the frames have details."""
    chance = random.Random(11)
    options = _options()
    columns = ClaimedColumns(readable_schema(options), options, "q")
    frames: list[bytes] = []
    for first in range(1, 40, 8):
        payloads = [_odd(chance) if chance.random() < 0.2 else _sent(chance) for _ in range(8)]
        if first == 9:
            payloads = [ServiceBusMessage(b"plain").encode()] * 8
        frames.append(_frame([_stored(payload, first + at) for at, payload in enumerate(payloads)]))
    (run,) = gathered_runs(iter(frames))
    found = columns.batch(run)
    found.validate(full=True)
    single = [row for frame in frames for row in columns.batch(claimed_run(frame)).to_pylist()]
    assert found.to_pylist() == single


def test_frames_are_gathered_up_to_a_size_and_given_before_a_break_is_told() -> None:
    """Claims: what has come is not asked for again."""
    large = _frame([_stored(ServiceBusMessage(bytes(5_000_000)).encode(), 7)])
    small = _frame([_stored(ServiceBusMessage(b"a").encode(), number) for number in (1, 2)])

    def breaking() -> Iterator[bytes]:
        yield from (small, large, large, small, small)
        raise Unreachable("gone")

    found: list[list[int]] = []
    with pytest.raises(Unreachable):
        found.extend(run.numbers.tolist() for run in gathered_runs(breaking()))
    assert found == [[1, 2, 7], [7, 1, 2, 1, 2]]


def test_only_the_columns_that_are_asked_for_are_made_and_a_body_may_stay_away() -> None:
    options = _options(columns="body,subject", includeBody="false")
    messages = [_stored(ServiceBusMessage(b"a", subject="s").encode(), 1)]
    batch = ClaimedColumns(readable_schema(options), options, "q").batch(claimed_run(_frame(messages)))
    assert batch.to_pylist() == [{"body": None, "subject": "s"}]


def test_a_text_that_is_none_keeps_nobody_from_the_rest() -> None:
    """What is not UTF-8 shows the sign for that, in its own row only."""
    payload = ServiceBusMessage(b"body", subject="MARK").encode()
    options = _options(columns="subject,body")
    messages = [_stored(payload.replace(b"MARK", b"M\xff\xfeK"), 1), _stored(payload, 2)]
    batch = ClaimedColumns(readable_schema(options), options, "q").batch(claimed_run(_frame(messages)))
    assert batch.column("subject").to_pylist() == ["M��K", "MARK"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda frame: frame[:5],
        lambda frame: b"XXXX" + frame[4:],
        lambda frame: frame[:-1],
        lambda frame: frame + b"x",
        lambda _: HEAD.pack(b"BWQ1", 0, 0),
        lambda frame: HEAD.pack(b"BWQ1", 0xFFFFFFFF, 0) + frame[HEAD.size :],
        lambda frame: HEAD.pack(b"BWQ1", 2, 0xFFFFFFFF) + frame[HEAD.size :],
        lambda frame: frame[: HEAD.size + 48] + b"\xff" * 16 + frame[HEAD.size + 64 :],
    ],
)
def test_a_frame_that_is_none_is_told(damage: Callable[[bytes], bytes]) -> None:
    frame = _frame(
        [_stored(ServiceBusMessage(b"a").encode(), 1), _stored(ServiceBusMessage(b"b").encode(), 2)]
    )
    with pytest.raises(ClaimedFrameDamaged):
        claimed_run(damage(frame))


def test_bytes_that_are_wrong_anywhere_never_lead_outside_of_a_message() -> None:
    """Positions that came over the wire are trusted by C code afterwards."""
    chance = random.Random(5)
    options = _options()
    schema = readable_schema(options)
    columns = ClaimedColumns(schema, options, "q")
    decoded = 0
    for _ in range(500):
        messages = [
            _stored(_sent(chance) if chance.random() < 0.8 else _odd(chance), at + 1) for at in range(3)
        ]
        run = claimed_run(_frame(messages))
        data = bytearray(run.data)
        for _ in range(chance.choice([1, 1, 3])):
            at = chance.randrange(int(run.starts[0]), len(data))
            at = min(at, int(run.starts[0]) + chance.randrange(120)) if chance.random() < 0.7 else at
            data[at] = chance.choice(
                [0, 0x40, 0x53, 0x73, 0xA1, 0xB1, 0xC1, 0xD1, 0xFF, chance.randrange(256)]
            )
        run.data = bytes(data)
        try:
            columns.batch(run).validate(full=True)
            decoded += 1
        except (DecodeError, ValueError, TypeError, OverflowError):
            continue
    assert decoded > 100


def test_messages_without_a_byte_have_rows_without_values() -> None:
    """M-1: nothing is read where nothing is."""
    options = _options(columns="messageId,subject,sequenceNumber")
    batch = MessageColumns(readable_schema(options), options, "q").batch_of_payloads([b"", b""])
    assert batch.to_pylist() == [{"messageId": None, "subject": None, "sequenceNumber": None}] * 2
