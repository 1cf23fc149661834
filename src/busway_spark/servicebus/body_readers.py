"""Readers whose bodies are decoded on the way to Spark. Each reads what the reader that it extends reads, with binary
bodies; a query that wants no column of a body gets the plain reader, and nothing is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from busway_spark.bodies.body_columns import BODY, CORRUPT, BodyColumns
from busway_spark.bodies.body_options import AS_THEY_ARE
from busway_spark.servicebus.browse import BrowseReader
from busway_spark.servicebus.claim_reader import ClaimStreamReader
from busway_spark.servicebus.columns import binary_schema, check_readable
from busway_spark.servicebus.drain import DrainReader
from busway_spark.servicebus.options import ServiceBusOptions


def decodes(schema: StructType, options: ServiceBusOptions) -> bool:
    return not options.bodies.is_binary and not {BODY, CORRUPT}.isdisjoint(schema.names)


class _Decoding:
    """What a reader below must know, and what is made of its batches."""

    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_readable(schema, options)
        self._names = list(schema.names)
        self._bodies = options.bodies
        self._entity = options.source_address()
        self.schema = binary_schema(schema)
        self.options = replace(options, bodies=AS_THEY_ARE)

    def decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return BodyColumns(self._bodies, self._entity, self._names).apply_all(batches)


class DecodingBrowseReader(BrowseReader):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        self._decoding = _Decoding(schema, options)
        super().__init__(self._decoding.schema, self._decoding.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._decoding.decoded(super().read(partition))


class DecodingDrainReader(DrainReader):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        self._decoding = _Decoding(schema, options)
        super().__init__(self._decoding.schema, self._decoding.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._decoding.decoded(super().read(partition))


class DecodingClaimStreamReader(ClaimStreamReader):
    def __init__(self, schema: StructType, options: ServiceBusOptions, *, is_durable: bool) -> None:
        self._decoding = _Decoding(schema, options)
        super().__init__(self._decoding.schema, self._decoding.options, is_durable=is_durable)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._decoding.decoded(super().read(partition))
