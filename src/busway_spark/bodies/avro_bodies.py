"""Avro bodies as columns: records of the schema in `bodySchema` (bare, or as single objects with its fingerprint),
and object containers, which bring the schema of whoever wrote them.

A bare record has no names, so it must have been written with this very schema, and what is left over behind it makes
it bad. A container's record is matched by names: what it lacks is null, what it has more is left out, and a field of
another type makes it bad.

A container is read here and not by fastavro's file reader, because whoever sends such a body sends its schema too:
the schema is checked as one of an option is, and what deflate unpacks has a limit.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from busway_spark.bodies.avro_shape import fingerprint_of, parse_avro_schema, shape_of
from busway_spark.bodies.ddl import BadSchema
from busway_spark.bodies.decoded import BadBody, Decoded, decode_each

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
    return _writer(text), _unpacked(block, head.get("avro.codec", b"null"))


def _unpacked(block: bytes, codec: bytes) -> bytes:
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
