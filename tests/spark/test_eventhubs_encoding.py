"""Rows as events: where they go and what they are on the wire, all at once."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from busway.amqp.sections import DATA, AmqpMessage, Properties, decode_message
from busway.amqp.types import Decimal as AmqpDecimal
from busway.amqp.types import Int, Long, Symbol, Timestamp, UInt, ULong
from busway.streams.key_hash import partition_of_key
from busway_spark.eventhubs.options import SCHEMA, WantedColumns
from busway_spark.eventhubs.sink import BadRows, PartitionRouter, WrittenColumns, by_partition, encode_events
from tests.spark.single_events import batch_of_messages


def rows(seed: int, count: int) -> pa.RecordBatch:
    chance = random.Random(seed)
    columns: dict[str, Any] = {
        "body": pa.array([chance.randbytes(chance.choice([0, 3, 255, 256, 900])) for _ in range(count)]),
    }
    if seed % 3:
        keys = [chance.choice([None, "", "key", "ü" * 200]) for _ in range(count)]
        columns["partitionKey"] = pa.array(keys, pa.string())
    if seed % 4:
        maps = [
            chance.choice([None, [], [("a", "b")], [("x", None), ("y", "z" * 300)]]) for _ in range(count)
        ]
        columns["properties"] = pa.array(maps, pa.map_(pa.string(), pa.string()))
    return pa.RecordBatch.from_pydict(columns)


def prepared(batch: pa.RecordBatch, **marks: bool) -> pa.RecordBatch:
    return WrittenColumns(tuple(batch.schema.names), **marks).prepared(batch)


def as_event(row: dict[str, Any]) -> AmqpMessage:
    annotations: dict[object, object] = {}
    if row.get("partitionKey") is not None:
        annotations["x-opt-partition-key"] = row["partitionKey"]
    return AmqpMessage(
        [row["body"]],
        DATA,
        message_annotations=annotations or None,
        application_properties=dict(row.get("properties") or []) or None,
    )


@pytest.mark.parametrize("seed", range(24))
def test_rows_are_events_with_all_that_they_have(seed: int) -> None:
    """H-10, H-12: body, key and properties."""
    batch = rows(seed, 30).slice(2, 25)
    found = [decode_message(payload) for payload in encode_events(prepared(batch), 0).to_pylist()]
    for event, row in zip(found, batch.to_pylist(), strict=True):
        wanted = as_event(row)
        for section in ("message_annotations", "application_properties", "body", "properties", "header"):
            assert getattr(event, section) == getattr(wanted, section)


def test_a_row_goes_where_it_says_or_where_its_key_belongs_or_on_in_turn() -> None:
    """H-10: and the same whenever the task is repeated."""
    ids = ["1", None, None, "0"] * 40
    keys = [None, "red", None, None] * 40
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"%d" % at for at in range(160)]),
            "partitionId": pa.array(ids, pa.string()),
            "partitionKey": pa.array(keys, pa.string()),
        }
    )
    expected: dict[str, list[bytes]] = {}
    for at in range(160):
        turn = (5 + at // 64) % 4
        place = int(str(ids[at])) if ids[at] else partition_of_key("red", 4) if keys[at] else turn
        expected.setdefault(str(place), []).append(b"%d" % at)
    router = PartitionRouter(4, 5)
    found: dict[str, list[Any]] = {}
    for part in (batch.slice(0, 70), batch.slice(70)):
        for name, events in router.routed(part).items():
            found.setdefault(name, []).extend(events.column("body").to_pylist())
    assert found == expected


@pytest.mark.parametrize("wanted", ["4", "-1", "x", "٣", "9" * 12, ""])
def test_a_partition_that_is_none_is_refused(wanted: str) -> None:
    """The sentence names the row, and which partitions there are."""
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x"]), "partitionId": pa.array([wanted])})
    with pytest.raises(
        BadRows, match=r"Row 0 of its task.*(partitions 0 to 3|not the number of a partition)"
    ):
        PartitionRouter(4, 0).routed(batch)


def test_a_row_with_two_places_or_without_a_body_is_refused() -> None:
    """A place is given by one thing only."""
    both: dict[str, Any] = {
        "body": pa.array([b"x"]),
        "partitionId": pa.array([1]),
        "partitionKey": pa.array(["k"]),
    }
    with pytest.raises(BadRows, match="both"):
        PartitionRouter(4, 0).routed(pa.RecordBatch.from_pydict(both))
    with pytest.raises(BadRows, match="Row 8 of its task has no body"):
        encode_events(pa.RecordBatch.from_pydict({"body": pa.array([b"", None], pa.binary())}), 7)


def test_rows_are_staged_by_the_partition_that_they_name() -> None:
    """H-10: those that name none stay together; keys are for the server to place."""
    ids = pa.array(["1", None, "01", "0"], pa.string())
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x"] * 4), "partitionId": ids})
    found = {name: wanted.tolist() for name, wanted in by_partition(batch, 0).items()}
    assert found["1"] == [True, False, True, False]
    assert found["0"] == [False, False, False, True]
    assert found[None] == [False, True, False, False]
    plain = pa.RecordBatch.from_pydict({"body": pa.array([b"x"])})
    assert {name: wanted.tolist() for name, wanted in by_partition(plain, 0).items()} == {None: [True]}


# -- columns of rows


def one(**columns: Any) -> pa.RecordBatch:
    """A row."""
    return pa.RecordBatch.from_pydict({"body": pa.array([b"x"]), **columns})


def pairs(**values: str | None) -> pa.Array[Any]:
    return pa.array([list(values.items())], pa.map_(pa.string(), pa.string()))


def sent(batch: pa.RecordBatch) -> AmqpMessage:
    (payload,) = encode_events(batch, 0).to_pylist()
    return decode_message(payload)


TYPED: dict[str, Any] = {
    "text": "ä", "quoted": '"x"', "long": Long(7), "int": Int(7), "flag": True, "double": 2.0, "half": 0.5,
    "none": None,
    "bytes": b"ab", "uuid": UUID(int=7), "time": Timestamp(1_700_000_000_000), "symbol": Symbol("s"),
    "large": ULong(2**64 - 1), "decimal": AmqpDecimal(b"1234"),
}  # fmt: skip


def test_properties_that_were_read_are_sent_as_they_were() -> None:
    """H-16: without gaining quotes, with their types where the column of types stands beside them."""
    message = AmqpMessage([b"x"], DATA, application_properties=dict(TYPED))
    wanted = WantedColumns(("body", "properties", "propertyTypes"))
    read = batch_of_messages([message], [0], [0], "0", wanted)
    again = sent(prepared(read, has_json_properties=True)).application_properties
    assert again == TYPED
    assert {name: type(value) for name, value in (again or {}).items()} == {
        name: type(value) for name, value in TYPED.items()
    }
    few = sent(prepared(read.select(["body", "properties"]), has_json_properties=True))
    assert (few.application_properties or {})["quoted"] == '"x"'
    assert (few.application_properties or {})["flag"] is True
    assert (few.application_properties or {})["long"] == 7


def test_properties_that_somebody_made_up_are_texts_or_of_their_type() -> None:
    """H-16: a sink of azure-event-hubs-spark sends what it is given; a frame that was not read is that."""
    assert sent(prepared(one(properties=pairs(a="1", b='"x"')))).application_properties == {
        "a": "1",
        "b": '"x"',
    }
    numbers = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    assert sent(prepared(one(properties=numbers))).application_properties == {"a": 1}
    assert sent(prepared(one(properties=pa.array(['{"a": true}'])))).application_properties == {"a": True}
    odd = sent(prepared(one(properties=pairs(a="not JSON", b=None)), has_json_properties=True))
    assert odd.application_properties == {"a": "not JSON", "b": None}


def test_fields_of_a_message_go_both_ways() -> None:
    """H-16: all thirteen, of a frame that was read and of one that somebody made."""
    fields = Properties(
        message_id="m", user_id=b"me", to="t", subject="s", reply_to="r", correlation_id=ULong(5),
        content_type=Symbol("application/json"), content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(9_000), creation_time=Timestamp(8_000), group_id="g", group_sequence=UInt(3),
        reply_to_group_id="rg",
    )  # fmt: skip
    message = AmqpMessage([b"x"], DATA, properties=fields, message_annotations={"x-opt-partition-key": "k"})
    read = batch_of_messages([message], [0], [0], "0", WantedColumns(("body", "systemProperties")))
    assert sent(prepared(read, has_json_system=True)).properties == fields
    made = pairs(
        **{"message-id": "7", "creation-time": "2026-01-31T12:00:00Z", "x-opt-offset": "5", "nothing": "x"}
    )
    found = sent(prepared(one(systemProperties=made))).properties
    assert found == Properties(message_id="7", creation_time=Timestamp(1_769_860_800_000))
    assert sent(prepared(one(systemProperties=pairs(nothing="x")))).properties is None


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"systemProperties": pairs(**{"group-sequence": "many"})}, "'group-sequence'"),
        ({"systemProperties": pairs(**{"content-type": "ü"})}, "ASCII"),
        ({"systemProperties": pairs(**{"creation-time": "soon"})}, "'creation-time'"),
        ({"properties": pairs(a="1"), "propertyTypes": pa.array(['{"a": "colour"}'])}, "unknown type"),
        ({"properties": pairs(a="x"), "propertyTypes": pa.array(['{"a": "int"}'])}, "no int"),
        ({"properties": pairs(a="1"), "propertyTypes": pa.array(["7"])}, "no JSON object"),
        ({"partition": pa.array(["1"]), "partitionId": pa.array([0])}, "they differ"),
    ],
)
def test_a_row_whose_columns_cannot_be_sent_is_refused(columns: dict[str, Any], sentence: str) -> None:
    """H-12: by the name of what is wrong."""
    with pytest.raises(BadRows, match=sentence):
        prepared(one(**columns))


def test_a_row_is_placed_by_partition_or_its_other_name() -> None:
    """H-10: a partition that was read gives way to the key, one that somebody chose does not."""
    assert PartitionRouter(4, 0).routed(prepared(one(partition=pa.array([2], pa.int32())))).keys() == {"2"}
    assert PartitionRouter(4, 0).routed(
        prepared(one(partition=pa.array(["2"]), partitionId=pa.array([2])))
    ).keys() == {"2"}
    read = {"partition": pa.array(["3"]), "partitionKey": pa.array(["k"])}
    assert PartitionRouter(4, 0).routed(prepared(one(**read), was_read=True)).keys() == {
        str(partition_of_key("k", 4))
    }
    with pytest.raises(BadRows, match="both"):
        PartitionRouter(4, 0).routed(prepared(one(**read)))


def test_columns_that_are_not_needed_are_ignored_and_misspelt_ones_refused() -> None:
    """H-12: a frame that was read can be written; a column that was surely meant to be sent is not left out."""
    found = WrittenColumns.of(StructType([*SCHEMA.fields, StructField("colour", StringType())]), False)
    assert found.names == ("body", "partition", "partitionKey", "properties", "systemProperties")
    assert (found.has_json_properties, found.has_json_system, found.was_read) == (True, True, True)
    for name in ("partitionkey", "partition_key", "Properties", "BODY"):
        with pytest.raises(BadRows, match="must be called"):
            WrittenColumns.of(StructType([*SCHEMA.fields, StructField(name, StringType())]), False)
