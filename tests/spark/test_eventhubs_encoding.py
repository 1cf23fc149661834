"""Rows as events: where they go and what they are on the wire, all at once."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from busway.amqp.sections import DATA, AmqpMessage, decode_message
from busway.streams.key_hash import partition_of_key
from busway_spark.eventhubs.event_rows import BadRows, Router, by_partition, encode_events


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
    found = [decode_message(payload) for payload in encode_events(batch, 0).to_pylist()]
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
    router = Router(4, 5)
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
