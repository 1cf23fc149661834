"""A body that is an Avro object container: the writer's schema and one record.

Read here and not by fastavro's file reader, because whoever sends such a body sends its schema too: the schema is
checked as one of an option is, and what deflate unpacks has a limit.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import fastavro

from busway_spark.bodies.avro_shape import parse_avro_schema, shape_of
from busway_spark.bodies.ddl import BadSchema
from busway_spark.bodies.decoded import BadBody

MAGIC: Final = b"Obj\x01"
_HEAD: Final = fastavro.parse_schema({"type": "map", "values": "bytes"})
_LONG: Final = fastavro.parse_schema("long")
_SYNC_BYTES: Final = 16
#: How much a block may grow when it is unpacked: what a body costs stays in proportion to its size.
_GROWTH_MAX: Final = 16
_BLOCK_BYTES_SPARE: Final = 64 * 1024
_SCHEMA_BYTES_MAX: Final = 256 * 1024


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
