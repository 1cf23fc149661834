"""Bodies as columns, without a session: batches in, batches out."""

import json
import math
import pickle
import struct
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
    VariantVal,
)
from pyspark.sql.variant_utils import VariantUtils

from busway_spark.bodies.avro_bodies import MAGIC, fingerprint_of, parse_avro_schema, shape_of
from busway_spark.bodies.body_columns import BadRecord, BodyColumns, with_bodies
from busway_spark.bodies.body_options import BodyOptions, WrongBodyOption, read_body_options
from busway_spark.bodies.ddl import BadSchema, parse_ddl
from busway_spark.bodies.decoded import BadBody
from busway_spark.bodies.json_bodies import JsonBodies
from busway_spark.bodies.variant_bodies import parse_variant

SECRET = "the-body-itself"


def batch(bodies: list[bytes | None], first: int = 40) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + len(bodies)), pa.int64())
    return pa.RecordBatch.from_arrays(
        [pa.array(bodies, pa.binary()), numbers], names=["body", "sequenceNumber"]
    )


def read(
    bodies: list[bytes | None], kind: str, schema: str | None = None, policy: str = "permissive"
) -> list[dict[str, Any]]:
    return BodyColumns(BodyOptions(kind, schema, policy), "orders").apply(batch(bodies)).to_pylist()


def good(bodies: list[bytes], kind: str, schema: str | None = None) -> list[Any]:
    rows = read(list(bodies), kind, schema)
    assert [row["_corrupt"] for row in rows] == [None] * len(rows)
    return [row["body"] for row in rows]


def is_bad(body: bytes, kind: str, schema: str | None = None) -> bool:
    (row,) = read([body], kind, schema)
    assert (row["body"] is None) == (row["_corrupt"] == body)
    return row["body"] is None


# -- policies


@pytest.mark.parametrize("kind", ["text", "json", "variant"])
def test_a_bad_body_is_kept_left_out_or_fatal(kind: str) -> None:
    schema = "a INT" if kind == "json" else None
    bodies: list[bytes | None] = [b'{"a": 1}', b"\xff" + SECRET.encode(), b'{"a": 3}']
    rows = read(bodies, kind, schema)
    assert [row["_corrupt"] for row in rows] == [None, bodies[1], None]
    assert [row["body"] is None for row in rows] == [False, True, False]
    assert [row["sequenceNumber"] for row in read(bodies, kind, schema, "drop")] == [40, 42]
    with pytest.raises(
        BadRecord, match=rf"sequence number 41 of 'orders' is not {kind}: .*badRecords"
    ) as caught:
        read(bodies, kind, schema, "fail")
    assert SECRET not in str(caught.value)


def test_a_batch_of_bad_bodies_alone_is_a_batch_still() -> None:
    assert read([b"", b"["], "json", "a INT", "drop") == []
    assert [row["_corrupt"] for row in read([b"", b"["], "json", "a INT")] == [b"", b"["]
    assert read([], "json", "a INT") == read([], "variant") == read([], "text") == []


def test_a_body_that_was_not_asked_for_is_null_and_not_bad() -> None:
    rows = read([None, b'{"a": 1}', None, b"x"], "json", "a INT")
    assert [row["body"] for row in rows] == [None, {"a": 1}, None, None]
    assert [row["_corrupt"] for row in rows] == [None, None, None, b"x"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("text", None),
        ("variant", None),
        ("json", "a INT, b STRUCT<c: DECIMAL(4,1), d: ARRAY<DATE>>, e MAP<STRING, VARIANT>, f TIMESTAMP_NTZ"),
        ("avro", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}'),
    ],
)
def test_batches_have_exactly_the_schema_that_spark_was_promised(kind: str, schema: str | None) -> None:
    """Spark compares the first batch of a task with its own Arrow schema and refuses any difference."""
    options = BodyOptions(kind, schema, "permissive")
    plain = StructType([StructField("body", BinaryType()), StructField("sequenceNumber", LongType())])
    promised = to_arrow_schema(with_bodies(plain, options), timezone="UTC")
    for bodies in ([b'{"a": 1}'], [b"\x02\x02"], [b"\xff"], [b'{"a": 1}', b"{"]):
        found = BodyColumns(options, "orders").apply(batch(list(bodies)))
        assert found.schema.equals(promised)
        found.validate(full=True)


# -- options


@pytest.mark.parametrize(
    ("given_options", "name", "sentence"),
    [
        ({"bodyFormat": "xml"}, "bodyFormat", "binary, text, json, avro, variant"),
        ({"bodyFormat": "json"}, "bodySchema", "DDL"),
        ({"bodyFormat": "avro"}, "bodySchema", "Avro schema"),
        ({"bodyFormat": "text", "bodySchema": "a INT"}, "bodySchema", "not for text"),
        ({"bodySchema": "a INT"}, "bodySchema", "not for binary"),
        ({"badRecords": "drop"}, "badRecords", "bodyFormat"),
        ({"bodyFormat": "text", "badRecords": "keep"}, "badRecords", "permissive, drop, fail"),
        ({"bodyFormat": "json", "bodySchema": "a INTT"}, "bodySchema", "'INTT'"),
        ({"bodyFormat": "avro", "bodySchema": "/no/such/file.avsc"}, "bodySchema", "/no/such/file.avsc"),
        ({"bodyFormat": "avro", "bodySchema": "{"}, "bodySchema", "JSON"),
        ({"bodyFormat": "avro", "bodySchema": '{"type": "recor"}'}, "bodySchema", "'recor'"),
    ],
)
def test_a_wrong_option_is_named(given_options: dict[str, str], name: str, sentence: str) -> None:
    with pytest.raises(WrongBodyOption, match=sentence) as caught:
        read_body_options(given_options.get)
    assert caught.value.option == name


def test_the_schema_of_a_file_travels_as_its_text(tmp_path: Path) -> None:
    file = tmp_path / "long.avsc"
    file.write_text('"long"')
    options = read_body_options({"bodyFormat": "AVRO", "bodySchema": str(file)}.get)
    file.unlink()
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.body_type() == LongType()


def test_without_options_bodies_are_binary_and_nothing_is_added() -> None:
    options = read_body_options(dict[str, str]().get)
    schema = StructType([StructField("body", BinaryType())])
    assert options.is_binary
    assert with_bodies(schema, options) is schema


# -- DDL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a INT, b string", "struct<a:int,b:string>"),
        ("`a b` bigint NOT NULL COMMENT 'it''s', date date", None),
        ("a: struct<b decimal(10, 2), c: array<map<string, double>>>",
         "struct<a:struct<b:decimal(10,2),c:array<map<string,double>>>>"),
        ("array<long>", "array<bigint>"),
        ("date date, timestamp timestamp_ltz", "struct<date:date,timestamp:timestamp>"),
        ("struct<x:tinyint>", "struct<x:tinyint>"),
        ("a decimal, b varchar(5), c boolean, d float, e smallint, f binary, g variant, h timestamp_ntz",
         "struct<a:decimal(10,0),b:string,c:boolean,d:float,e:smallint,f:binary,g:variant,h:timestamp_ntz>"),
        ("  string ", "string"),
    ],
)  # fmt: skip
def test_a_schema_is_read_as_spark_writes_it(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(BadSchema):  # two literals in a row are no comment
            parse_ddl(text)
    else:
        assert parse_ddl(text).simpleString() == expected
        assert parse_ddl(expected).simpleString() == expected


@pytest.mark.parametrize(
    "text",
    ["", "a", "a INT,", "a INT b INT", "a INT, a INT", "array<int", "map<int, int>", "a decimal(39)",
     "a decimal(2,3)", "a interval", "struct<>", "a INT) ", "a $", "array<" * 100 + "int" + ">" * 100,
     "x" * 300_000, "{}", '{"type": 1}',
     '{"type":"struct","fields":[{"name":"a","type":"void","nullable":true,"metadata":{}}]}'],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadSchema):
        parse_ddl(text)


def test_a_schema_may_come_as_json_and_loses_its_promises_about_nulls() -> None:
    schema = StructType([StructField("a", IntegerType(), nullable=False), StructField("b", VariantType())])
    assert parse_ddl(schema.json()) == StructType(
        [StructField("a", IntegerType()), StructField("b", VariantType())]
    )


# -- JSON

EVENT = "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e TIMESTAMP, f STRUCT<g: INT>, h ARRAY<STRING>, i DATE"


def test_a_json_object_becomes_a_struct() -> None:
    text = (
        '{"a": 5, "b": "ä", "c": 1, "d": true, "e": "2026-11-15T10:00:00.5+02:00", "f": {"g": 7, "x": 1},'
        ' "h": ["p", null], "i": "2026-11-15", "more": [1]}'
    )
    event = {
        "a": 5, "b": "ä", "c": 1.0, "d": True, "e": datetime(2026, 11, 15, 8, 0, 0, 500_000, UTC), "f": {"g": 7},
        "h": ["p", None], "i": date(2026, 11, 15),
    }  # fmt: skip
    nothing = dict.fromkeys(event)
    assert good([text.encode(), b"{}", b' \r\n{"a":null}\n'], "json", EVENT) == [event, nothing, nothing]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"null", b"[]", b"7", b'"x"', b"{", b"{}}", b"{}{}", b"{},", b'{"a":1}\n{"a":2}', b'{"a":1,}',
        b"{'a':1}", b'{"a":"5"}', b'{"a":1.5}', b'{"a":true}', b'{"a":9223372036854775808}', b'{"b":5}',
        b'{"b":{"x":1}}', b'{"c":"1"}', b'{"c":true}', b'{"d":1}', b'{"d":"true"}', b'{"e":"yesterday"}', b'{"e":5}',
        b'{"f":[]}', b'{"f":{"g":2147483648}}', b'{"h":"p"}', b'{"h":[1]}', b'{"h":{}}', b'{"i":"2026-13-01"}',
        b'{"b":"\xff"}', b'{"b":"\\ud800"}', b'{}\0{}', b'{"a":1\0}', b'\x00', b'{"b":"a\nb"}',
    ],
)  # fmt: skip
def test_what_does_not_fit_is_bad_and_its_neighbours_are_not(body: bytes) -> None:
    assert is_bad(body, "json", EVENT)
    around: list[bytes | None] = [b'{"a":1}', body, b'{"a":2}', b'{"a":3}{"a":4}']
    for policy, expected in (("permissive", [1, None, 2, None]), ("drop", [1, 2])):
        rows = read(around, "json", EVENT, policy)
        assert [None if row["body"] is None else row["body"]["a"] for row in rows] == expected


def test_bodies_cannot_make_up_for_each_other() -> None:
    """As many objects as bodies, and yet not one in each."""
    for bodies in (
        [b'{"a":1}{"a":2}', b"", b'{"a":3}'],
        [b'{"a":1}{"a":2}', b'{"a":3}\0{}', b'{"a":4}'],
        [b'{"h":["', b'"]}{"a":1}', b'{"a":2}'],
        [b'{"f":{}', b"}", b"{}{}"],
    ):
        rows = read(list(bodies), "json", EVENT)
        assert [row["_corrupt"] for row in rows[:2]] == bodies[:2]


def test_rare_types_are_read_too() -> None:
    schema = "m MAP<STRING, INT>, n DECIMAL(6,2), o BINARY, p VARIANT, q TIMESTAMP_NTZ, r FLOAT, s TINYINT"
    body = (
        b'{"m":{"x":1,"y":null},"n":12.345,"o":"AQI=","p":{"k":[1,"t",0.5]},'
        b'"q":"2026-01-02T03:04:05","r":2,"s":-128}'
    )
    (found,) = good([body], "json", schema)
    variant = found.pop("p")
    assert VariantVal(variant["value"], variant["metadata"]).toPython() == {"k": [1, "t", Decimal("0.5")]}
    assert found == {
        "m": [("x", 1), ("y", None)], "n": Decimal("12.35"), "o": b"\x01\x02", "q": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
        "r": 2.0, "s": -128,
    }  # fmt: skip
    assert good([b'{"n":"9999.99"}'], "json", schema)[0]["n"] == Decimal("9999.99")
    for bad in (b'{"n":10000}', b'{"n":"x"}', b'{"n":[]}', b'{"o":"?"}', b'{"q":"2026-01-02T03:04:05Z"}',
                b'{"s":128}', b'{"m":{"x":"1"}}', b'{"m":[]}', b'{"p":"\\udc00"}'):  # fmt: skip
        assert is_bad(bad, "json", schema)


def test_schemas_other_than_a_struct_work() -> None:
    assert good([b"[1, 2]", b"[]"], "json", "array<int>") == [[1, 2], []]
    assert good([b'"x"'], "json", "string") == ["x"]
    assert is_bad(b"{}", "json", "array<int>")


def test_the_sentence_names_the_field() -> None:
    with pytest.raises(BadRecord, match=r"field 'f\.g': it is no whole number of 32 bits"):
        read([b'{"f": {"g": "x"}}'], "json", EVENT, "fail")


def test_deep_and_long_bodies_end_in_an_answer() -> None:
    deep = b'{"x":' * 50_000 + b"1" + b"}" * 50_000
    digits = b'{"x":' + b"9" * 10_000 + b"}"
    rows = read([deep, b"{", digits, b'{"a":1}'], "json", "a INT")
    assert [row["body"] for row in rows] == [{"a": None}, None, {"a": None}, {"a": 1}]
    assert is_bad(deep, "variant")
    assert is_bad(b"[" * 200_000, "json", "a INT")


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        ["2026-11-15", "2026-11-15T10:00:00Z", "2026-11-15 10:00", "2026-11-15T10:00:00.123456789Z"]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdefghig"), inner),
    max_leaves=8,
)
TEXTS = st.one_of(
    st.dictionaries(st.sampled_from("abcdefghi"), VALUES).map(json.dumps),
    VALUES.map(json.dumps),
    st.text('{}[]",:a1\n ', max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_a_body_reads_the_same_whatever_lies_beside_it(texts: list[str]) -> None:
    """Both readers agree: of a batch, of a body alone, and of Python's reader by itself."""
    bodies = [text.encode() for text in texts]
    decoder = JsonBodies(parse_ddl(EVENT))
    together = decoder.decode(pa.array(bodies, pa.binary()))
    alone = [decoder.decode(pa.array([body], pa.binary())) for body in bodies]
    assert together.values.to_pylist() == [each.values[0].as_py() for each in alone]
    assert set(together.faults) == {at for at, each in enumerate(alone) if each.faults}
    decoder._options = None
    slowly = decoder.decode(pa.array(bodies, pa.binary()))
    assert together.values.equals(slowly.values) or math.inf in _numbers(together.values.to_pylist())


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [abs(value)] if isinstance(value, float) else []


def test_one_bad_body_in_a_large_batch_is_found() -> None:
    bodies: list[bytes | None] = [b'{"a":%d}' % at for at in range(5_000)]
    bodies[3_210] = b'{"a":"x"}'
    rows = read(bodies, "json", "a INT")
    assert [at for at, row in enumerate(rows) if row["_corrupt"] is not None] == [3_210]
    assert [row["body"]["a"] for row in rows if row["body"]] == [at for at in range(5_000) if at != 3_210]


# -- VARIANT


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_a_variant_says_what_the_json_said(value: object) -> None:
    """The bytes are those that PySpark itself writes, wherever it can."""
    text = json.dumps(value)
    data, metadata = parse_variant(text)
    parsed = json.loads(text, parse_float=_spark_number)
    assert VariantUtils.to_python(data, metadata) == parsed
    if all(ord(character) < 0xD800 for character in text.encode().decode("unicode-escape")):
        assert (data, metadata) == VariantUtils.parse_json(text)


def _spark_number(literal: str) -> object:
    return float(literal) if "e" in literal.lower() else Decimal(literal)


def test_large_objects_and_arrays_have_wider_fields() -> None:
    for count in (255, 256, 300, 20_000):
        fields = {f"k{at:06}": at for at in range(count)}
        assert VariantVal(*parse_variant(json.dumps(fields))).toPython() == fields
        elements = list(range(count))
        assert VariantVal(*parse_variant(json.dumps(elements))).toPython() == elements


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"a":Infinity}', '"\\ud800"', '{"\\ud800":1}', "01", "1 2"]
)
def test_what_is_no_json_is_no_variant(text: str) -> None:
    with pytest.raises(BadBody):
        parse_variant(text)
    assert is_bad(text.encode(), "variant")


def test_numbers_keep_their_digits() -> None:
    data, metadata = parse_variant("[1.50, 12345678901234567890, 1e3, -0.0, 1234567890.123456789]")
    assert (
        VariantVal(data, metadata).toJson() == "[1.50,12345678901234567890,1000.0,0.0,1234567890.123456789]"
    )


# -- Avro

RECORD: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mix", "type": ["null", "long", "string", {"type": "record", "name": "X", "fields": [
            {"name": "x", "type": "int"}]}, {"type": "record", "name": "Y", "fields": [
            {"name": "x", "type": "int"}]}]},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
ORDER = {
    "id": 7, "note": None, "at": datetime(2026, 11, 15, tzinfo=UTC), "price": Decimal("12.50"), "tags": ["a"],
    "sizes": {"s": 1}, "kind": "B", "mix": ("shop.Y", {"x": 3}), "again": "A", "uuid": "no-uuid",
}  # fmt: skip


def avro(value: object, schema: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, parse_avro_schema(schema), value)
    return stream.getvalue()


def container(value: object, schema: Any, codec: str = "null", count: int = 1) -> bytes:
    stream = BytesIO()
    fastavro.writer(stream, parse_avro_schema(schema), [value] * count, codec=codec)
    return stream.getvalue()


def test_an_avro_record_becomes_a_struct() -> None:
    (row,) = good([avro(ORDER, RECORD)], "avro", json.dumps(RECORD))
    mix = {"member0": None, "member1": None, "member2": None, "member3": {"x": 3}}
    assert row == {**ORDER, "sizes": [("s", 1)], "mix": mix}
    named = parse_avro_schema(RECORD)
    single = b"\xc3\x01" + fingerprint_of(named) + avro(ORDER, RECORD)
    assert (
        good(
            [single, container(ORDER, RECORD), container(ORDER, RECORD, "deflate")],
            "avro",
            json.dumps(RECORD),
        )
        == [row] * 3
    )


def test_a_container_is_matched_by_names() -> None:
    theirs = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "new", "type": "int"}, {"name": "id", "type": "int"}],
    }
    (row,) = good([container({"new": 1, "id": 2}, theirs)], "avro", json.dumps(RECORD))
    assert row == {**dict.fromkeys(ORDER), "id": 2}
    other = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "string"}]}
    assert is_bad(container({"id": "2"}, other), "avro", json.dumps(RECORD))


def test_damaged_avro_is_bad() -> None:
    whole = avro(ORDER, RECORD)
    schema = json.dumps(RECORD)
    for end in range(len(whole)):
        assert is_bad(whole[:end], "avro", schema)
    assert is_bad(whole + b"\0", "avro", schema)
    packed = container(ORDER, RECORD)
    for end in range(4, len(packed), 7):
        assert is_bad(packed[:end], "avro", schema)
    assert is_bad(container(ORDER, RECORD, count=2), "avro", schema)
    assert is_bad(packed + packed, "avro", schema)
    two = good([whole, whole], "avro", schema)
    assert [row["body"] for row in read([whole, b"x", whole], "avro", schema)] == [two[0], None, two[1]]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_random_bytes_are_avro_or_bad(body: bytes) -> None:
    read([body, MAGIC + body], "avro", json.dumps(RECORD))


def test_a_decimal_with_more_digits_than_its_schema_is_bad_alone() -> None:
    schema = {"type": "record", "name": "D", "fields": [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}}]}  # fmt: skip
    large = b"\x10" + (1 << 60).to_bytes(8, "big")
    rows = read([b"\x02\x0f", large], "avro", json.dumps(schema))
    assert [row["body"] for row in rows] == [{"d": Decimal("1.5")}, None]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}},
        {"type": "array", "items": {"type": "record", "name": "W", "fields": [
            {"name": "a", "type": "int"}, *[{"name": f"n{at}", "type": "null"} for at in range(50)]]}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "record", "name": "R", "fields": []},
        "unknown",
        {"type": "bytes", "logicalType": "decimal", "precision": 60},
    ],
)  # fmt: skip
def test_schemas_that_stand_for_endless_data_are_refused(schema: Any) -> None:
    with pytest.raises(BadSchema):
        shape_of(schema)
    with pytest.raises(WrongBodyOption, match="bodySchema"):
        read_body_options({"bodyFormat": "avro", "bodySchema": json.dumps(schema)}.get)


def hostile(schema: object, block: bytes, codec: bytes = b"null") -> bytes:
    """A container as nobody writes it."""
    stream = BytesIO()
    stream.write(MAGIC)
    head = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    fastavro.schemaless_writer(stream, {"type": "map", "values": "bytes"}, head)
    stream.write(b"S" * 16)
    for number in (1, len(block)):
        fastavro.schemaless_writer(stream, "long", number)
    stream.write(block + b"S" * 16)
    return stream.getvalue()


def test_a_hostile_container_costs_nothing() -> None:
    linked = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    assert is_bad(hostile(linked, b"\x02" * 500_000 + b"\0"), "avro", json.dumps(RECORD))
    endless = {"type": "array", "items": "null"}
    assert is_bad(hostile(endless, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0"), "avro", json.dumps(RECORD))
    levels: Any = "int"
    for at in range(40):
        inner = levels if at == 0 else f"R{at - 1}"
        levels = {
            "type": "record",
            "name": f"R{at}",
            "fields": [{"name": "l", "type": levels}, {"name": "r", "type": inner}],
        }
    assert is_bad(hostile(levels, b"\0"), "avro", json.dumps(RECORD))
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    bomb = packing.compress(struct.pack("<q", 0) * 4_000_000) + packing.flush()
    assert is_bad(hostile("long", bomb, b"deflate"), "avro", json.dumps(RECORD))
    assert is_bad(hostile("long", b"\x02", b"snappy"), "avro", json.dumps(RECORD))


def test_texts_are_utf8() -> None:
    assert good(["ä".encode(), b""], "text") == ["ä", ""]
    assert with_bodies(StructType([StructField("body", BinaryType())]), BodyOptions("text")).fields[
        0
    ] == StructField("body", StringType())
