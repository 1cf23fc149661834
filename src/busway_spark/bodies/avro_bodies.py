"""Avro bodies as columns.

They are records of the schema in `bodySchema` (bare, or as single objects with its fingerprint), and object
containers, which bring the schema of whoever wrote them.

An Avro schema becomes a type of Spark (`Shape`), and records become what Arrow takes for it. Types are those that
Spark's own Avro source has: a union with null is the other type, one of int and long is a long, one of float and
double a double, any other union a struct `member0`, `member1`, … of which one is set. Schemas come from options
and, in containers, from bodies: one that refers to itself, and an array of elements without bytes, are refused,
because a few hostile bytes would then stand for endless data. So is an element of which most takes no bytes.

A bare record has no names, so it must have been written with this very schema, and what is left over behind it
makes it bad. A container's record is matched by names: what it lacks is null, what it has more is left out, and a
field of another type makes it bad.

A container is read here and not by fastavro's file reader, because whoever sends such a body sends its schema too:
the schema is checked as one of an option is, and what deflate unpacks has a limit.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import fastavro
import fastavro.schema
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from busway_spark.bodies.ddl import BadSchema, struct_of
from busway_spark.bodies.decoded import BadBody, Decoded, decode_each
from busway_spark.bodies.json_bodies import (
    Convert,
    array_converter,
    decimal_converter,
    map_converter,
    real,
    struct_converter,
    text,
    truth,
    whole_converter,
)

_DEPTH_MAX: Final = 64
_NODES_MAX: Final = 10_000
#: Of an array's element, for each of its bytes.
_NODES_PER_BYTE_MAX: Final = 8
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_DIGITS_MAX: Final = 38


@dataclass(frozen=True)
class Shape:
    """`convert` takes what any writer's schema has made of a body; a union's named branches come as pairs."""

    data_type: DataType
    convert: Convert
    #: Whether records that this very schema has read can go to Arrow as they are.
    is_plain: bool = True
    #: How many bytes a value takes at least, and of how many values it then consists: of a union its worst branch.
    bytes_min: int = 1
    nodes: int = 1


def parse_avro_schema(schema: object) -> Any:
    """As fastavro wants it. Raises BadSchema."""
    try:
        parsed = fastavro.parse_schema(_known_only(schema))
    except BadSchema:
        raise
    except Exception as error:  # fastavro raises what it likes for what is no schema
        raise BadSchema(f"it is no Avro schema ({type(error).__name__}).") from None
    return parsed


def shape_of(schema: object) -> Shape:
    """Raises BadSchema."""
    return _Shapes().of(_known_only(schema), "", 0)


def fingerprint_of(parsed: Any) -> bytes:
    """By which a single-object body names its schema."""
    canonical = fastavro.schema.to_parsing_canonical_form(parsed)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


#: What fastavro gives another type than the one below it, and we have a column for.
_LOGICAL: Final = {
    ("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"), ("bytes", "decimal"),
    ("fixed", "decimal"), ("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"),
}  # fmt: skip


def _known_only(schema: Any, depth: int = 0) -> Any:
    """Logical types that have no column (times of a day, durations, UUIDs) are what lies below them."""
    if depth > _DEPTH_MAX * 4:
        raise BadSchema(f"types are nested more than {_DEPTH_MAX} deep.")
    if isinstance(schema, list):
        return [_known_only(each, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    is_known = logical is not None and (schema.get("type"), logical) in _LOGICAL
    return {
        name: _known_only(value, depth + 1) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        # Written by `parse_schema` into its own results.
        if not name.startswith("__") and (name != "logicalType" or is_known)
    }


class _Shapes:
    """Walks one schema; names are known from their definition on."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()
        self._nodes = 0

    def of(self, schema: Any, space: str, depth: int) -> Shape:
        self._nodes += 1
        if depth > _DEPTH_MAX or self._nodes > _NODES_MAX:
            raise BadSchema(
                f"it has more than {_NODES_MAX} types, or they are nested more than {_DEPTH_MAX} deep."
            )
        if isinstance(schema, str):
            return self._by_name(schema, space, depth)
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise BadSchema("a type is a name, a list or an object with a 'type'.")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, space, depth + 1)
        if kind in _NAMED:
            return self._define(schema, kind, space, depth)
        if kind == "array":
            return self._array(schema, space, depth)
        if kind == "map":
            inner = self.of(schema.get("values"), space, depth + 1)
            _check_growth(inner)
            # Arrow takes a map as pairs.
            return Shape(MapType(StringType(), inner.data_type), map_converter(inner.convert), is_plain=False)
        return _logical(schema, kind) or self._by_name(kind, space, depth)

    def _by_name(self, name: str, space: str, depth: int) -> Shape:
        if name in _PRIMITIVES:
            return _SHAPES[name]
        full = name if "." in name or f"{space}.{name}" not in self._named else f"{space}.{name}"
        if full in self._open:
            raise BadSchema(f"'{name[:60]}' refers to itself, which a column cannot.")
        if full not in self._named:
            raise BadSchema(f"'{name[:60]}' is not a type.")
        schema, inner_space = self._named[full]
        return self._of_definition(schema, schema["type"], full, inner_space, depth)

    def _define(self, schema: dict[str, Any], kind: str, space: str, depth: int) -> Shape:
        full = full_name(schema, space)
        inner_space = full.rpartition(".")[0]
        self._named[full] = (schema, inner_space)
        return self._of_definition(schema, kind, full, inner_space, depth)

    def _of_definition(self, schema: dict[str, Any], kind: str, full: str, space: str, depth: int) -> Shape:
        if kind == "enum":
            return _SHAPES["string"]
        if kind == "fixed":
            logical = _logical(schema, kind)
            return logical or Shape(BinaryType(), _raw, bytes_min=0 if schema.get("size") == 0 else 1)
        self._open.add(full)
        try:
            return self._record(schema, space, depth)
        finally:
            self._open.discard(full)

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> Shape:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise BadSchema("a record has a list of fields.")
        shapes = {str(each.get("name")): self.of(each.get("type"), space, depth + 1) for each in fields}
        return Shape(
            struct_of([StructField(name, shape.data_type) for name, shape in shapes.items()]),
            _unpacked(struct_converter({name: shape.convert for name, shape in shapes.items()})),
            all(shape.is_plain for shape in shapes.values()),
            sum(shape.bytes_min for shape in shapes.values()),
            1 + sum(shape.nodes for shape in shapes.values()),
        )

    def _array(self, schema: dict[str, Any], space: str, depth: int) -> Shape:
        inner = self.of(schema.get("items"), space, depth + 1)
        _check_growth(inner)
        return Shape(ArrayType(inner.data_type), array_converter(inner.convert), inner.is_plain)

    def _union(self, branches: list[Any], space: str, depth: int) -> Shape:
        kept = [branch for branch in branches if branch != "null"]
        shapes = [self.of(branch, space, depth + 1) for branch in kept]
        if not shapes:
            return _SHAPES["null"]
        if len(shapes) == 1:
            only = shapes[0]
            named = isinstance(kept[0], dict) and kept[0].get("type") in _NAMED
            named = named or (isinstance(kept[0], str) and kept[0] not in _PRIMITIVES)
            is_plain = only.is_plain and not named
            return Shape(only.data_type, _unpacked(only.convert), is_plain, 1 + only.bytes_min, only.nodes)
        if set(map(str, kept)) == {"int", "long"}:
            return _SHAPES["long"]
        if set(map(str, kept)) == {"float", "double"}:
            return _SHAPES["double"]
        return _members(kept, shapes, space)


def _check_growth(element: Shape) -> None:
    if element.nodes > element.bytes_min * _NODES_PER_BYTE_MAX:
        raise BadSchema("elements of arrays and maps must be made of fields that have bytes.")


def full_name(schema: dict[str, Any], space: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise BadSchema(f"a type '{schema.get('type')}' needs a name.")
    space = schema.get("namespace", space)
    return name if "." in name or not space else f"{space}.{name}"


def _members(branches: list[Any], shapes: list[Shape], space: str) -> Shape:
    names = [f"member{at}" for at in range(len(shapes))]
    by_name: dict[str, int] = {}
    for at, branch in enumerate(branches):
        if isinstance(branch, dict) and branch.get("type") in _NAMED:
            by_name[full_name(branch, space)] = at
        elif isinstance(branch, str) and branch not in _PRIMITIVES:
            by_name[branch] = by_name[f"{space}.{branch}"] = at

    def member(value: Any) -> dict[str, Any]:
        if type(value) is tuple:
            at = by_name.get(value[0])
            if at is not None:
                return {names[at]: shapes[at].convert(value[1])}
            value = value[1]
        for name, shape in zip(names, shapes, strict=True):
            try:
                return {name: shape.convert(value)}
            except BadBody:
                continue
        raise BadBody("it is of none of the types that the schema gives it")

    fields = [StructField(name, shape.data_type) for name, shape in zip(names, shapes, strict=True)]
    worst = max(shapes, key=lambda shape: shape.nodes / (1 + shape.bytes_min))
    return Shape(StructType(fields), member, False, 1 + worst.bytes_min, 1 + worst.nodes)


def _unpacked(convert: Convert) -> Convert:
    """Of a branch that came with its name."""

    def unpacked(value: Any) -> Any:
        return convert(value[1] if type(value) is tuple else value)

    return unpacked


# -- leaves


def _logical(schema: dict[str, Any], kind: str) -> Shape | None:
    logical = schema.get("logicalType")
    if (kind, logical) not in _LOGICAL:
        return None
    if logical == "decimal":
        return _decimal(schema)
    if logical == "date":
        return Shape(DateType(), _day)
    if str(logical).startswith("local-"):
        return Shape(TimestampNTZType(), _local)
    return Shape(TimestampType(), _instant)


def _decimal(schema: dict[str, Any]) -> Shape:
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits <= _DIGITS_MAX:
        raise BadSchema(f"a decimal has 1 to {_DIGITS_MAX} digits, and no more of them behind the point.")
    return Shape(DecimalType(digits, scale), decimal_converter(digits, scale))


def _raw(value: Any) -> bytes:
    found = value[1] if type(value) is tuple else value
    if type(found) is not bytes:
        raise BadBody("it is no bytes")
    return found


def _text(value: Any) -> str:
    return text(value[1] if type(value) is tuple else value)


def _day(value: Any) -> date:
    if type(value) is not date:
        raise BadBody("it is no date")
    return value


def _instant(value: Any) -> datetime:
    if type(value) is not datetime or value.tzinfo is None:
        raise BadBody("it is no timestamp")
    return value.astimezone(UTC)


def _local(value: Any) -> datetime:
    if type(value) is not datetime or value.tzinfo is not None:
        raise BadBody("it is no local timestamp")
    return value


def _nothing(_: Any) -> None:
    raise BadBody("it is not null")


_SHAPES: Final[dict[str, Shape]] = {
    "null": Shape(StringType(), _nothing, bytes_min=0),
    "boolean": Shape(BooleanType(), truth),
    "int": Shape(IntegerType(), whole_converter(32)),
    "long": Shape(LongType(), whole_converter(64)),
    "float": Shape(FloatType(), real),
    "double": Shape(DoubleType(), real),
    "bytes": Shape(BinaryType(), _raw),
    "string": Shape(StringType(), _text),
}


MAGIC: Final = b"Obj\x01"
_HEAD: Final = fastavro.parse_schema({"type": "map", "values": "bytes"})
_LONG: Final = fastavro.parse_schema("long")
_SYNC_BYTES: Final = 16
#: How much a block may grow when it is unpacked: what a body costs stays in proportion to its size.
_GROWTH_MAX: Final = 16
_BLOCK_BYTES_SPARE: Final = 64 * 1024
_SCHEMA_BYTES_MAX: Final = 256 * 1024
_SINGLE_OBJECT: Final = b"\xc3\x01"


def writer_and_record(body: bytes) -> tuple[Any, bytes]:
    """The schema of whoever wrote it and the record's bytes. Raises BadBody, and whatever fastavro raises."""
    stream = BytesIO(body)
    stream.seek(len(MAGIC))
    head: Any = fastavro.schemaless_reader(stream, _HEAD, None)
    text = head.get("avro.schema", b"")
    if len(text) > _SCHEMA_BYTES_MAX:
        raise BadBody("the schema in it is too large")
    sync = stream.read(_SYNC_BYTES)
    count: Any = fastavro.schemaless_reader(stream, _LONG, None)
    size: Any = fastavro.schemaless_reader(stream, _LONG, None)
    if count != 1 or size < 0:
        raise BadBody("it is a container that does not hold exactly one record")
    block = stream.read(size)
    if len(block) < size or stream.read() != sync or len(sync) < _SYNC_BYTES:
        raise BadBody("it is a container of more than one block, or a damaged one")
    return _writer(text), _inflated(block, head.get("avro.codec", b"null"))


def _inflated(block: bytes, codec: bytes) -> bytes:
    if codec == b"null":
        return block
    if codec != b"deflate":
        raise BadBody("its codec is neither null nor deflate")
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = unpacking.decompress(block, _GROWTH_MAX * len(block) + _BLOCK_BYTES_SPARE)
    except zlib.error:
        raise BadBody("it cannot be unpacked") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise BadBody("it cannot be unpacked, or is too large then")
    return found


@lru_cache(maxsize=64)
def _writer(text: bytes) -> Any:
    try:
        schema = json.loads(text)
        shape_of(schema)
        return parse_avro_schema(schema)
    except (BadSchema, ValueError, RecursionError):
        raise BadBody("the schema in it cannot be used") from None


class AvroBodies:
    """Avro bodies as columns: records of the schema in `bodySchema` (bare, or as single objects with its
    fingerprint), and object containers, which bring the schema of whoever wrote them."""

    def __init__(self, schema_text: str) -> None:
        schema = json.loads(schema_text)
        self._parsed = parse_avro_schema(schema)
        self._shape = shape_of(schema)
        self._type: pa.DataType = to_arrow_type(self._shape.data_type, timezone="UTC")
        self._single = _SINGLE_OBJECT + fingerprint_of(self._parsed)

    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        found = bodies.to_pylist()
        try:
            return self._decoded(found, is_checked=not self._shape.is_plain)
        except (pa.ArrowException, OverflowError):
            # A decimal has more digits than its own schema allows.
            return self._decoded(found, is_checked=True)

    def _decoded(self, bodies: list[Any], *, is_checked: bool) -> Decoded:
        values, faults = decode_each(bodies, lambda body: self._one(body, is_checked))
        return Decoded(pa.array(values, self._type), faults)

    def _one(self, body: bytes, is_checked: bool) -> object:
        try:
            if body.startswith(MAGIC):
                writer, record = writer_and_record(body)
                return self._shape.convert(_record(record, writer))
            if body.startswith(self._single):
                body = body[len(self._single) :]
            found = _record(body, self._parsed)
            return self._shape.convert(found) if is_checked else found
        except BadBody:
            raise
        except Exception as error:  # bytes of strangers: fastavro raises what happens to go wrong first
            raise BadBody(f"it is no record of the schema ({type(error).__name__})") from None


def _record(data: bytes, schema: Any) -> Any:
    stream = BytesIO(data)
    found = fastavro.schemaless_reader(stream, schema, None, return_named_type=True)
    if stream.tell() != len(data):
        raise BadBody("more follows behind the record")
    return found
