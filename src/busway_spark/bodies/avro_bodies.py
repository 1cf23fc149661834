"""Avro bodies as columns: records of the schema in `bodySchema` (bare, or as single objects with its fingerprint),
and object containers, which bring the schema of whoever wrote them.

A bare record has no names, so it must have been written with this very schema, and what is left over behind it makes
it bad. A container's record is matched by names: what it lacks is null, what it has more is left out, and a field of
another type makes it bad.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from busway_spark.bodies.avro_container import MAGIC, writer_and_record
from busway_spark.bodies.avro_shape import fingerprint_of, parse_avro_schema, shape_of
from busway_spark.bodies.decoded import BadBody, Decoded, decode_each

_SINGLE_OBJECT: Final = b"\xc3\x01"


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
