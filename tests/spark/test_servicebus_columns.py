"""Messages as columns and columns as messages, all at once: agreement with the ways for one message."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, VALUE, AmqpMessage, decode_message, encode_message, split_batch
from busway.amqp.types import Described, Int, Symbol, Timestamp, UInt, ULong
from busway.client.messages import ServiceBusReceivedMessage
from busway_spark.amqp_arrays.encoding import EncodedRows, pieces
from busway_spark.servicebus.columns import check_writable, readable_schema
from busway_spark.servicebus.message_columns import _READINGS, MessageColumns, message_of
from busway_spark.servicebus.options import ServiceBusOptions, read_options
from busway_spark.servicebus.row_messages import UnsendableRow, encode_rows
from busway_spark.servicebus.variant import SCALAR_METADATA, variant_of

CONNECTION = "Endpoint=sb://host;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;EntityPath=queue"
VALUES = [
    "text", "ä\n\"\\", "", "x" * 62, "x" * 63, "x" * 64, "x" * 300, 0, 1, -1, 127, 128, -128, -129, 2**15, 2**31,
    2**40, -(2**40), 2**63 - 1, Int(7), UInt(5), ULong(2**63 + 5), True, False, None, 1.5, float("nan"),
    b"bytes", b"", UUID(int=7), Timestamp(1_700_000_000_123), Symbol("symbol"), [1, "two"], {"a": {"b": 1}},
]  # fmt: skip
TEXTS = [None, "", "t", "ü" * 5, "z" * 255, "z" * 256]


def options(**more: str) -> ServiceBusOptions:
    return read_options({"connectionString": CONNECTION, **more})


# -- reading


def received(seed: int) -> bytes:
    """Anything that a server may send."""
    chance = random.Random(seed)
    annotations: dict[object, object] = {
        Symbol("x-opt-sequence-number"): chance.choice([seed, (3 << 48) + seed, Int(seed)]),
        Symbol("x-opt-enqueued-time"): Timestamp(chance.choice([0, 1_700_000_000_000 + seed, 2**62])),
    }
    for name, value in (
        ("x-opt-partition-key", chance.choice(["key", "", 7, None])),
        ("x-opt-message-state", Int(chance.randrange(-1, 4))),
        ("x-opt-scheduled-enqueue-time", Timestamp(1_800_000_000_000)),
        ("x-opt-deadletter-source", "from"),
        ("x-opt-enqueue-sequence-number", seed + 1),
        ("x-opt-other", chance.choice(VALUES)),
    ):
        if chance.random() < 0.5:
            annotations[Symbol(name)] = value
    names = [f"name {number}" for number in range(chance.choice([0, 1, 5, 80]))]
    properties = {name: chance.choice(VALUES) for name in names}
    if chance.random() < 0.3:
        properties |= {"DeadLetterReason": chance.choice(["why", None, 5]), "busway-claim": "stamp"}
    if chance.random() < 0.05:
        properties["described"] = Described(Symbol("com.microsoft:uri"), "http://x")
    fields = Properties(
        message_id=chance.choice(["id", "ü" * 200, ULong(5), UUID(int=9), b"id", None]),
        to=chance.choice(TEXTS),
        subject=chance.choice(TEXTS),
        reply_to=chance.choice(TEXTS),
        correlation_id=chance.choice([*TEXTS, ULong(0)]),
        content_type=chance.choice([None, Symbol("text/plain")]),
        group_id=chance.choice(TEXTS),
        reply_to_group_id=chance.choice(TEXTS),
    )
    body, kind = chance.choice(
        [([b"one"], DATA), ([b"", b"two"], DATA), ("value", VALUE), (None, 0), ([b"x" * 300], DATA)]
    )
    return encode_message(
        AmqpMessage(
            body,
            kind,
            header=chance.choice([None, Header(ttl=UInt(90_000)), Header(delivery_count=UInt(3)), Header()]),
            message_annotations=chance.choice([annotations, annotations, None]),
            delivery_annotations=chance.choice([None, {Symbol("a"): 1}]),
            properties=chance.choice([fields, fields, None]),
            application_properties=properties or None,
        )
    )


def one_by_one(columns: MessageColumns, payloads: list[bytes]) -> list[dict[str, object]]:
    return columns._batch_of_each(payloads).to_pylist()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("properties", ["variant", "json"])
@pytest.mark.parametrize("hides_claim", [False, True])
def test_columns_say_what_the_decoder_says(seed: int, properties: str, hides_claim: bool) -> None:
    """All messages at once and one after the other give the same rows, for whatever a server sends."""
    given = options(properties=properties)
    columns = MessageColumns(readable_schema(given), given, "queue", hides_claim=hides_claim)
    payloads = [received(seed * 1000 + place) for place in range(60)]
    found = columns.batch_of_payloads(payloads)
    assert found.schema == columns.schema
    assert repr(found.to_pylist()) == repr(one_by_one(columns, payloads))
    messages = [ServiceBusReceivedMessage(payload) for payload in payloads]
    assert repr(columns.batch(messages).to_pylist()) == repr(found.to_pylist())


def test_some_columns_alone_are_the_same() -> None:
    given = options(columns="subject,body,sequenceNumber", includeBody="false")
    columns = MessageColumns(readable_schema(given), given, "queue")
    payloads = [received(place) for place in range(50)]
    found = columns.batch_of_payloads(payloads).to_pylist()
    assert found == one_by_one(columns, payloads)
    assert all(row["body"] is None for row in found)


@pytest.mark.parametrize("seed", range(150))
def test_damaged_messages_are_refused_or_read(seed: int) -> None:
    """No byte of a message leads outside of it, or to anything but rows or a clear error."""
    chance = random.Random(seed)
    given = options(properties=chance.choice(["variant", "json"]))
    columns = MessageColumns(readable_schema(given), given, "queue")
    payloads = [received(seed + place) for place in range(8)]
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(payloads))
        data = bytearray(payloads[at])
        data[chance.randrange(min(len(data), chance.choice([20, 4000])))] = chance.randrange(256)
        payloads[at] = bytes(data) if chance.random() < 0.7 else bytes(data[: chance.randrange(1, len(data))])
    try:
        expected = one_by_one(columns, payloads)
    except (DecodeError, OverflowError, pa.ArrowInvalid):
        return
    assert len(columns.batch_of_payloads(payloads)) == len(expected)


# -- writing

MOMENT = datetime(2026, 11, 15, 9, 30, 0, 123_456, tzinfo=UTC)


def rows(seed: int, count: int) -> pa.RecordBatch:
    """Anything that a query may write."""
    chance = random.Random(seed)

    def some(*values: object) -> list[object]:
        return [chance.choice(values) for _ in range(count)]

    columns: dict[str, pa.Array[Any]] = {
        "body": pa.array(some(b"", b"x" * 255, b"x" * 256, b"y" * 1000, None), pa.binary()),
        "messageId": pa.array(some("id", "", None, "i" * 127), pa.string()),
    }
    for name in (
        "sessionId",
        "partitionKey",
        "subject",
        "correlationId",
        "to",
        "replyTo",
        "replyToSessionId",
    ):
        if chance.random() < 0.7:
            columns[name] = pa.array(some(*TEXTS), pa.string())
    columns["contentType"] = pa.array(some(None, "text/plain", "a" * 300), pa.string())
    life = chance.choice(["none", "ms", "interval"])
    if life == "ms":
        columns["timeToLive"] = pa.array(some(None, 1, 90_000, 2**40), pa.int64())
    elif life == "interval":
        columns["timeToLive"] = pa.array(some(None, timedelta(seconds=90)), pa.duration("us"))
    if chance.random() < 0.5:
        columns["scheduledEnqueueTime"] = pa.array(some(None, MOMENT), pa.timestamp("us", "UTC"))
    columns["properties"] = properties(chance, count)
    if chance.random() < 0.4:
        columns["userId"] = pa.array(some(None, b"me", b"m" * 300), pa.binary())
        columns["contentEncoding"] = pa.array(some(None, "gzip"), pa.string())
        columns["creationTime"] = pa.array(some(None, MOMENT), pa.timestamp("us", "UTC"))
        columns["groupSequence"] = pa.array(some(None, 0, 2**32 - 1), pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def properties(chance: random.Random, count: int) -> pa.Array[Any]:
    kind = chance.choice(["text", "long", "double", "flag", "bytes", "time", "variant", "json", "decimal"])
    if kind == "json":
        return pa.array(
            [chance.choice([None, "{}", '{"a": 1, "b": "ä"}']) for _ in range(count)], pa.string()
        )
    kinds: dict[str, tuple[list[Any], Any]] = {
        "text": (["", "ä", "x" * 300, None], pa.string()),
        "long": ([0, 127, 128, -129, 2**62, None], pa.int64()),
        "double": ([0.5, None, float("inf")], pa.float64()),
        "flag": ([True, False, None], pa.bool_()),
        "bytes": ([b"", b"x", None], pa.binary()),
        "time": ([MOMENT, None], pa.timestamp("us", "UTC")),
        "decimal": ([None], pa.decimal128(10, 2)),
        "variant": (
            [
                {"value": variant_of(each), "metadata": SCALAR_METADATA}
                for each in ("", "ä" * 20, "x" * 64, 0, -1, 300, 70_000, 2**40, True, None, 1.5, b"bytes")
            ],
            pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
        ),
    }
    values, arrow_kind = kinds[kind]
    maps: list[Any] = [
        None
        if chance.random() < 0.1
        else [(f"n{at}", chance.choice(values)) for at in range(chance.randrange(4))]
        for _ in range(count)
    ]
    return pa.array(maps, pa.map_(pa.string(), arrow_kind))


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_encoded_as_each_row_would_be(seed: int) -> None:
    """All rows at once and one after the other give the same messages."""
    batch = rows(seed, 40).slice(3, 30)
    messages = encode_rows(batch, "job/0", 100).to_pylist()
    expected = [message_of(row, f"job/0/{100 + at}") for at, row in enumerate(batch.to_pylist())]
    for payload, other in zip(messages, expected, strict=True):
        assert payload is not None
        found, wanted = decode_message(payload), decode_message(other)
        for section in ("header", "message_annotations", "properties", "application_properties", "body"):
            assert repr(getattr(found, section)) == repr(getattr(wanted, section))


def test_every_field_and_type_of_a_message_is_read_and_written() -> None:
    """M-1…M-28: a message that is read with all its columns and sent again is the same message."""
    sent: dict[str, Any] = {
        "int": Int(7), "ulong": ULong(2**63 + 5), "double": 2.0, "bytes": b"ab", "uuid": UUID(int=7),
        "time": Timestamp(1_700_000_000_123), "symbol": Symbol("s"), "text": '"x"', "flag": True, "none": None,
    }  # fmt: skip
    message = AmqpMessage(
        [b"body"],
        DATA,
        header=Header(ttl=UInt(90_000)),
        properties=Properties(
            message_id="m", user_id=b"me", to="t", subject="s", reply_to="r", correlation_id="c",
            content_type=Symbol("text/plain"), content_encoding=Symbol("gzip"),
            absolute_expiry_time=Timestamp(1_763_000_000_000), creation_time=Timestamp(1_762_000_000_000),
            group_id="g", group_sequence=UInt(3), reply_to_group_id="rg",
        ),
        application_properties=sent,
        message_annotations={Symbol("x-opt-partition-key"): "g"},
    )  # fmt: skip
    names = (
        "body,messageId,sessionId,partitionKey,subject,contentType,correlationId,to,replyTo,replyToSessionId,"
        "properties,propertyTypes,timeToLive,userId,contentEncoding,absoluteExpiryTime,creationTime,groupSequence"
    )
    for properties_as in ("json", "variant"):
        wanted = options(queue="q", columns=names, properties=properties_as)
        columns = MessageColumns(readable_schema(wanted), wanted, "q")
        check_writable(readable_schema(wanted), wanted)
        (payload,) = encode_rows(columns.batch_of_payloads([encode_message(message)]), "job", 0).to_pylist()
        again = decode_message(payload)
        assert again.properties == message.properties
        assert again.header == message.header
        assert again.message_annotations == message.message_annotations
        found = again.application_properties or {}
        assert found == sent
        assert [type(found[name]) for name in sent] == [type(value) for value in sent.values()]


def test_messages_that_follow_each_other_are_a_batch_as_they_lie() -> None:
    """S-20: a batch is cut as full as fits; a message that is too large stands alone."""
    sizes = [10, 100, 300, 5000, 1, 1, 1]
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"b" * size for size in sizes], pa.binary())})
    messages = encode_rows(batch, "p", 0)
    found = EncodedRows.of(pa.array(range(len(sizes))).to_numpy(), messages)
    cut = list(found.cut(600))
    assert cut == [(0, 3), (3, 4), (4, 7)]
    assert all(len(found.batch(first, end)) <= 600 for first, end in (cut[0], cut[2]))
    whole = [each for first, end in cut for each in split_batch(found.batch(first, end))]
    assert whole == messages.to_pylist() == [found.message(at) for at in range(len(sizes))]


def test_a_piece_has_so_many_bytes_and_rows() -> None:
    large = pa.RecordBatch.from_pydict(
        {"body": pa.array([b"b" * 1_500_000] * 3 + [b""] * 9_000, pa.binary())}
    )
    assert [piece.num_rows for piece in pieces(large)] == [1, 1, 1 + 3_999, 4_000, 1_001]
    assert list(pieces(large.slice(0, 0))) == []


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ({"timeToLive": pa.array([5, 5, 0], pa.int64())}, "timeToLive"),
        ({"properties": pa.array(["{}", "{}", "[]"], pa.string())}, "properties"),
        ({"contentType": pa.array(["a", "b", "ä"], pa.string())}, "cannot be encoded"),
    ],
)
def test_the_row_at_fault_is_named(column: dict[str, pa.Array[Any]], sentence: str) -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"1", b"2", b"3"]), **column})
    with pytest.raises(UnsendableRow, match=sentence) as failure:
        encode_rows(batch, "p", 0)
    assert failure.value.at == 2


def test_a_column_that_few_messages_have_is_read_of_those(monkeypatch: pytest.MonkeyPatch) -> None:
    """M-31: JSON tells texts, truth values and longs from each other; only what is more is looked at alone."""
    given = options()
    read: list[bytes] = []

    def reading(message: ServiceBusReceivedMessage) -> str:
        read.append(message.body)
        return "rare"

    monkeypatch.setitem(_READINGS, "propertyTypes", reading)
    columns = MessageColumns(StructType([StructField("propertyTypes", StringType())]), given, "queue")
    values: list[object] = ["text", True, None, 5, 2**40, Int(5), Symbol("s"), 1.5]
    payloads = [
        encode_message(AmqpMessage([b"%d" % at], DATA, application_properties={"p": value}))
        for at, value in enumerate(values)
    ]
    found = columns.batch_of_payloads(payloads).column(0).to_pylist()
    assert found == [None] * 5 + ["rare"] * 3
    assert read == [b"5", b"6", b"7"]


def test_a_schema_of_the_query_is_kept() -> None:
    given = options()
    schema = StructType([readable_schema(given)["entity"], readable_schema(given)["state"]])
    columns = MessageColumns(schema, given, "queue")
    assert columns.batch_of_payloads([received(1)]).schema.names == ["entity", "state"]
