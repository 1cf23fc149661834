"""JSON bodies of any shape as VARIANT."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import VariantType

from busway_spark.bodies.decoded import BadBody, Decoded, decode_each
from busway_spark.bodies.variant_encoding import parse_variant


class VariantBodies:
    def __init__(self) -> None:
        kind: Any = to_arrow_type(VariantType())
        self._fields: list[pa.Field[Any]] = list(kind)

    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        values, faults = decode_each(bodies.to_pylist(), _parts)
        is_null = pa.array([value is None for value in values], pa.bool_()) if faults else None
        data, metadata = zip(*[value or (b"", b"") for value in values], strict=True) if values else ((), ())
        arrays: list[pa.Array[Any]] = [pa.array(data, pa.binary()), pa.array(metadata, pa.binary())]
        found: Any = pa.StructArray.from_arrays(arrays, fields=self._fields, mask=is_null)
        return Decoded(found, faults)


def _parts(body: bytes) -> tuple[bytes, bytes]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadBody(f"it is not UTF-8 at byte {error.start}") from None
    return parse_variant(text)
