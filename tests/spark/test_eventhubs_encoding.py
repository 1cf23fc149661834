"""Rows as events: where they go and what they are on the wire, all at once."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from busway.amqp.encode import encode_value
from busway.amqp.section_order import split_batch
from busway.amqp.sections import DATA, AmqpMessage, decode_message
from busway.amqp.types import Int, Long, Short, Symbol
from busway.streams.key_hash import partition_of_key
from busway_spark.eventhubs.writer import BadRows, Router, encode_events

MARKED: dict[object, object] = {
    "com.microsoft:producer-id": Long(77),
    "com.microsoft:producer-epoch": Short(3),
}
NUMBER = Symbol("com.microsoft:producer-sequence-number")
MARKS = b"".join(encode_value(Symbol(str(name))) + encode_value(value) for name, value in MARKED.items())
MARKS += encode_value(NUMBER)


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


def as_event(row: dict[str, Any], number: int | None) -> AmqpMessage:
    annotations: dict[object, object] = {}
    if row.get("partitionKey") is not None:
        annotations["x-opt-partition-key"] = row["partitionKey"]
    if number is not None:
        annotations |= {**MARKED, NUMBER: Int(number)}
    return AmqpMessage(
        [row["body"]],
        DATA,
        message_annotations=annotations or None,
        application_properties=dict(row.get("properties") or []) or None,
    )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("marks", [b"", MARKS])
def test_rows_are_events_with_all_that_they_have(seed: int, marks: bytes) -> None:
    """H-18: each event bears its producer's marks and its own number, when there are any."""
    batch = rows(seed, 30).slice(2, 25)
    encoded = encode_events(batch, marks, 1_000)
    found = [decode_message(payload) for payload in split_batch(encoded.batch(0, len(encoded)))]
    for at, (event, row) in enumerate(zip(found, batch.to_pylist(), strict=True)):
        wanted = as_event(row, 1_000 + at if marks else None)
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
    router = Router(4, 5)
    found: dict[str, list[Any]] = {}
    for part in (batch.slice(0, 70), batch.slice(70)):
        for name, events in router.routed(part).items():
            found.setdefault(name, []).extend(events.column("body").to_pylist())
    assert found == expected


@pytest.mark.parametrize("wanted", ["4", "-1", "x", "٣", "9" * 12, ""])
def test_a_partition_that_is_none_is_refused(wanted: str) -> None:
    """The sentence says which partitions there are."""
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x"]), "partitionId": pa.array([wanted])})
    with pytest.raises(BadRows, match="partitions 0 to 3"):
        Router(4, 0).routed(batch)


def test_a_row_with_two_places_or_without_a_body_is_refused() -> None:
    """A place is given by one thing only."""
    both: dict[str, Any] = {
        "body": pa.array([b"x"]),
        "partitionId": pa.array([1]),
        "partitionKey": pa.array(["k"]),
    }
    with pytest.raises(BadRows, match="both"):
        Router(4, 0).routed(pa.RecordBatch.from_pydict(both))
    with pytest.raises(BadRows, match="no body"):
        encode_events(pa.RecordBatch.from_pydict({"body": pa.array([None], pa.binary())}), b"", 1)
