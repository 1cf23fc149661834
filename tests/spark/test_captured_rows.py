"""Rows of the formats in the columns of captured files. No Spark: Arrow in, Arrow out."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import PurePosixPath
from uuid import UUID

import pyarrow as pa
import pytest

from busway.amqp.types import Byte, Char, Decimal, Float, Int, Symbol, Timestamp, UInt, ULong
from busway_spark.pipeline.capture.captured_writer import UnfitRows, captured_batch, captured_runs
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile, parse_path
from busway_spark.property_types import UnknownProperties, properties_of, types_of
from busway_spark.servicebus.variant import json_of
from tests.spark.capture_rig import NINE, batch, event, events


def test_properties_become_one_object_of_json() -> None:
    """Capture: names are quoted, texts taken as they are, numbers that JSON lacks become texts with their type."""
    rows = captured_batch(
        batch(
            [
                event(1),
                event(2, properties=[("a", "1"), ('q"ä\n', '"x"'), ("n", "null")]),
                event(
                    3,
                    properties=[
                        ("nan", "NaN"),
                        ("inf", "-Infinity"),
                        ("b", "true"),
                        ("w", "2.0"),
                        ("s", '"2.0"'),
                    ],
                ),
            ]
        )
    ).to_pylist()
    assert rows[0]["properties"] == "{}"
    assert json.loads(rows[1]["properties"]) == {"a": 1, 'q"ä\n': "x", "n": None}
    assert json.loads(rows[2]["properties"]) == {
        "nan": "NaN", "inf": "-Infinity", "b": True, "w": 2.0, "s": "2.0",
    }  # fmt: skip
    assert json.loads(rows[2]["propertyTypes"]) == dict.fromkeys(("nan", "inf", "w"), "double")
    assert [row["propertyTypes"] for row in rows[:2]] == [None, None]
    restored = properties_of(rows[2]["properties"], rows[2]["propertyTypes"])
    assert isinstance(restored["nan"], float)
    assert math.isnan(restored["nan"])
    assert restored["inf"] == -math.inf


def test_slices_of_batches_have_their_own_maps() -> None:
    """Capture: Spark hands over slices; flat names and texts begin where the slice does."""
    whole = batch(
        [
            event(at, properties=[("n", str(at))], systemProperties=[("subject", f'"s{at}"')])
            for at in range(9)
        ]
    )
    rows = captured_batch(whole.slice(3, 4)).to_pylist()
    assert [json.loads(row["properties"])["n"] for row in rows] == [3, 4, 5, 6]
    assert [row["subject"] for row in rows] == ["s3", "s4", "s5", "s6"]


def test_what_the_properties_section_brought_gets_its_columns() -> None:
    """Capture: texts are unquoted, with their escapes; numbers stay as digits; what is absent is null."""
    system = [
        ("message-id", '"m-1"'), ("correlation-id", "17"), ("content-type", '"text/plain"'), ("to", '"t"'),
        ("reply-to", '"r"'), ("group-id", '"s"'), ("reply-to-group-id", '"rs"'), ("x-opt-other", '"no"'),
    ]  # fmt: skip
    rows = captured_batch(
        batch(
            [
                event(1, systemProperties=system),
                event(2),
                event(3, systemProperties=[("subject", '"a\\"b\\\\"')]),
            ]
        )
    ).to_pylist()
    names = ("messageId", "correlationId", "contentType", "to", "replyTo", "sessionId", "replyToSessionId")
    assert [rows[0][name] for name in names] == ["m-1", "17", "text/plain", "t", "r", "s", "rs"]
    assert {rows[1][name] for name in names} == {None}
    assert rows[2]["subject"] == 'a"b\\'


def test_runs_are_cut_where_the_partition_or_the_hour_changes() -> None:
    """Capture: a folder is an hour of a partition."""
    late = NINE + timedelta(minutes=59, seconds=58)
    runs = captured_runs(events(range(5), late))
    assert [(run.partition, run.rows.num_rows) for run in runs] == [(0, 2), (0, 3)]
    assert runs[1].hour == runs[0].hour + 1
    mixed = batch([event(1, partition=0), event(7, partition=1), event(2, partition=0)])
    assert [(run.partition, run.rows.column(0).to_pylist()) for run in captured_runs(mixed)] == [
        (0, [1]),
        (1, [7]),
        (0, [2]),
    ]
    assert captured_runs(events([])) == []


def test_rows_out_of_order_are_sorted() -> None:
    """Capture: numbers in a file rise, also where messages of sessions come in another order."""
    runs = captured_runs(batch([event(3), event(1), event(9, partition=2), event(2)]))
    assert [run.rows.column(0).to_pylist() for run in runs] == [[1, 2, 3], [9]]


def test_rows_of_servicebus_bring_their_fragment() -> None:
    """Capture: queues and subscriptions have the same columns."""
    rows = pa.RecordBatch.from_pydict(
        {
            "fragment": pa.array([2], pa.int32()),
            "sequenceNumber": pa.array([(2 << 48) + 5]),
            "enqueuedTime": pa.array([NINE], pa.timestamp("us", tz="UTC")),
            "body": [b"x"],
            "messageId": ["m"],
            "enqueuedSequenceNumber": [7],
            "properties": ['{"a": 1}'],
            "propertyTypes": ['{"a": "int"}'],
        }
    )
    (run,) = captured_runs(rows)
    assert run.partition == 2
    assert run.rows.schema == SCHEMA
    assert (
        run.rows.to_pylist()[0] | {"body": b"x", "messageId": "m", "propertyTypes": '{"a": "int"}'}
        == run.rows.to_pylist()[0]
    )


def test_rows_without_a_number_are_refused() -> None:
    """Capture: what cannot be told apart cannot be captured."""
    with pytest.raises(UnfitRows, match="sequenceNumber"):
        captured_runs(batch([event(1, sequenceNumber=None)]))
    with pytest.raises(UnfitRows, match="partition"):
        captured_runs(events([1]).drop_columns(["partition"]))


def test_types_that_json_lacks_come_back() -> None:
    """Capture: propertyTypes names exactly those that JSON does not tell."""
    properties = {
        "text": "t", "flag": True, "long": 5, "double": 1.5, "nothing": None,
        "int": Int(5), "uint": UInt(6), "ulong": ULong(1 << 63), "byte": Byte(-1), "float": Float(0.5),
        "time": Timestamp(1_700_000_000_123), "id": UUID(int=7), "bytes": b"\x00\xff", "symbol": Symbol("s"),
        "char": Char("c"), "decimal": Decimal(b"12345678"),
    }  # fmt: skip
    types = types_of(properties)
    assert types is not None
    assert {"text", "flag", "long", "double", "nothing"}.isdisjoint(json.loads(types))
    restored = properties_of(json_of(properties), types)
    assert restored == properties
    assert {name: type(value) for name, value in restored.items()} == {
        name: type(value) for name, value in properties.items()
    }
    assert types_of({"text": "t", "long": 5}) is None
    assert types_of({"whole": 2.0, "half": 0.5}) == '{"whole": "double"}'


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("[]", None),
        ("{", None),
        ('{"a": 1}', "[]"),
        ('{"a": 1}', '{"a": "what"}'),
        ('{"a": "x"}', '{"a": "uuid"}'),
    ],
)
def test_damaged_properties_are_told(text: str, types: str | None) -> None:
    """Replay: a row that cannot be sent as it was is not sent as something else."""
    with pytest.raises(UnknownProperties):
        properties_of(text, types)


@pytest.mark.parametrize(
    "path",
    [
        "entity=a/date=2026-11-15/hour=09/partition=3/4-00000000000000000042.parquet",
        "entity=a/date=2026-11-15/hour=09/partition=3/3-42.parquet",
        "entity=a/date=2026-13-15/hour=09/partition=3/3-00000000000000000042.parquet",
        "entity=a/hour=09/date=2026-11-15/partition=3/3-00000000000000000042.parquet",
        "entity=a/date=2026-11-15/hour=09/partition=3/3-00000000000000000042.parquet.tmp",
    ],
)
def test_other_names_are_no_captured_files(path: str) -> None:
    """Capture: the name is a contract."""
    assert parse_path(PurePosixPath(path)) is None


@pytest.mark.parametrize("entity", ["a", "..", "a/b c%2F=ä"])
@pytest.mark.parametrize("last", [-1, 99])
def test_a_path_tells_what_the_file_is(entity: str, last: int) -> None:
    """Capture: any name of an entity is one folder."""
    file = CapturedFile(entity, NINE, 3, 42, last)
    assert parse_path(file.path) == file
    assert len(file.path.parts) == 5
