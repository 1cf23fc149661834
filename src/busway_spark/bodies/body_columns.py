"""The step between a reader and Spark: batches with binary bodies become batches with decoded ones.

What becomes of a bad body is `badRecords`: null beside its bytes in the column `_corrupt`, a row that is left out, or
the end of the query, by a sentence that names the message and never shows the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StructField, StructType

from busway_spark.bodies.body_options import AVRO, DROP, FAIL, JSON, TEXT, BodyOptions
from busway_spark.bodies.decoded import Decoded, Decoder, TextBodies
from busway_spark.bodies.json_bodies import JsonBodies
from busway_spark.bodies.variant_bodies import VariantBodies

BODY: Final = "body"
CORRUPT: Final = "_corrupt"
NUMBER: Final = "sequenceNumber"
_PARTITION: Final = "partition"


class BadRecord(ValueError):
    """A body could not be decoded, and the query wants to end with that."""


def with_bodies(schema: StructType, options: BodyOptions) -> StructType:
    """A schema of binary bodies as the query sees it."""
    if options.is_binary:
        return schema
    fields = [
        StructField(BODY, options.body_type()) if field.name == BODY else field for field in schema.fields
    ]
    return StructType([*fields, StructField(CORRUPT, BinaryType())] if options.keeps_corrupt else fields)


class BodyColumns:
    """`names`: the columns of the result, in order; None for those of the batch, and `_corrupt` where it belongs."""

    def __init__(self, options: BodyOptions, entity: str, names: list[str] | None = None) -> None:
        self._options = options
        self._entity = entity
        self._names = names
        self._decoder = _decoder(options)

    def apply_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.apply(batch)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises BadRecord."""
        bodies = batch.column(BODY)
        decoded = _decode(self._decoder, bodies)
        if decoded.faults and self._options.policy == FAIL:
            raise BadRecord(self._sentence(batch, decoded.faults))
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns[BODY] = decoded.values
        if self._options.keeps_corrupt:
            columns[CORRUPT] = _corrupt(bodies, decoded.faults)
        names = list(columns) if self._names is None else self._names
        fields = [
            pa.field(BODY, decoded.values.type)
            if name == BODY
            else pa.field(CORRUPT, pa.binary())
            if name == CORRUPT
            else batch.schema.field(name)
            for name in names
        ]
        result = pa.RecordBatch.from_arrays([columns[name] for name in names], schema=pa.schema(fields))
        if decoded.faults and self._options.policy == DROP:
            result = result.take(pa.array(_others(len(bodies), decoded.faults), pa.int64()))
        return result

    def _sentence(self, batch: pa.RecordBatch, faults: dict[int, str]) -> str:
        at, reason = min(faults.items())
        number = batch.column(NUMBER)[at].as_py()
        names = batch.schema.names
        partition = f" in partition {batch.column(_PARTITION)[at].as_py()}" if _PARTITION in names else ""
        return (
            f"The body with sequence number {number}{partition} of '{self._entity}' is not"
            f" {self._options.format}: {reason}. Option badRecords says what becomes of such bodies:"
            " permissive keeps them in the column _corrupt, drop leaves them out."
        )


@lru_cache(maxsize=16)
def _decoder(options: BodyOptions) -> Decoder:
    if options.format == JSON:
        return JsonBodies(options.body_type())
    if options.format == AVRO:
        from busway_spark.bodies.avro_bodies import AvroBodies

        return AvroBodies(options.schema or "")
    return TextBodies() if options.format == TEXT else VariantBodies()


def _decode(decoder: Decoder, bodies: pa.Array[Any]) -> Decoded:
    """A body that the query did not ask for is null and stays so."""
    if not bodies.null_count:
        return decoder.decode(bodies)
    places = [at for at, is_there in enumerate(bodies.is_valid().to_pylist()) if is_there]
    found = decoder.decode(bodies.drop_null())
    where: list[int | None] = [None] * len(bodies)
    for row, at in enumerate(places):
        where[at] = row
    spread: Any = found.values.take(pa.array(where, pa.int64()))
    return Decoded(spread, {places[row]: reason for row, reason in found.faults.items()})


def _corrupt(bodies: pa.Array[Any], faults: dict[int, str]) -> pa.Array[Any]:
    if not faults:
        nothing: pa.Array[Any] = pa.nulls(len(bodies), pa.binary())
        return nothing
    is_bad = pa.array([at in faults for at in range(len(bodies))], pa.bool_())
    found: pa.Array[Any] = pc.if_else(is_bad, bodies, pa.scalar(None, pa.binary()))
    return found


def _others(count: int, faults: dict[int, str]) -> list[int]:
    return [at for at in range(count) if at not in faults]
