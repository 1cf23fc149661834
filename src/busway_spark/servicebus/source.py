"""Which reader or writer a query of `format("servicebus")` gets.

Readers that decode bodies on the way to Spark each read what the reader that they extend reads, with binary bodies; a
query that wants no column of a body gets the plain reader, and nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from busway_spark.bodies.body_columns import BODY, CORRUPT, BodyColumns
from busway_spark.bodies.body_options import AS_THEY_ARE, BODY_FORMAT
from busway_spark.servicebus.batch_reader import BrowseReader, DrainReader
from busway_spark.servicebus.claim_reader import ClaimStreamReader
from busway_spark.servicebus.columns import binary_schema, check_readable
from busway_spark.servicebus.options import (
    BROWSE,
    CLAIM,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    ServiceBusOptions,
    WrongOption,
)
from busway_spark.servicebus.writer import MessageSink
from busway_spark.writing.two_phase import JobWriter, StreamWriter


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


def batch_reader(schema: StructType, options: ServiceBusOptions) -> DataSourceReader:
    mode = options.mode or BROWSE
    is_decoding = decodes(schema, options)
    if mode == RECEIVE_AND_DELETE:
        return (DecodingDrainReader if is_decoding else DrainReader)(schema, options)
    if mode != BROWSE:
        raise WrongOption("mode", f"{mode} is for streams; a batch has {BROWSE} or {RECEIVE_AND_DELETE}.")
    return (DecodingBrowseReader if is_decoding else BrowseReader)(schema, options)


def stream_reader(schema: StructType, options: ServiceBusOptions) -> DataSourceStreamReader:
    mode = options.mode or CLAIM
    if mode not in (CLAIM, PEEK_LOCK):
        raise WrongOption("mode", f"{mode} is for batches; a stream has {CLAIM} or {PEEK_LOCK}.")
    reader = DecodingClaimStreamReader if decodes(schema, options) else ClaimStreamReader
    return reader(schema, options, is_durable=mode == CLAIM)


def batch_writer(schema: StructType, options: ServiceBusOptions, overwrite: bool) -> DataSourceWriter:
    if overwrite:
        raise WrongOption("mode", "messages can only be added: write with mode('append').")
    _check_bodies(options)
    return JobWriter(MessageSink(schema, options), uuid4().hex)


def stream_writer(schema: StructType, options: ServiceBusOptions, overwrite: bool) -> DataSourceStreamWriter:
    if overwrite:
        raise WrongOption("outputMode", "messages can only be added: write with outputMode('append').")
    _check_bodies(options)
    return StreamWriter(MessageSink(schema, options))


def _check_bodies(options: ServiceBusOptions) -> None:
    if not options.bodies.is_binary:
        raise WrongOption(
            BODY_FORMAT, "is for reading; write bodies that are binary or string (to_json makes one)."
        )
