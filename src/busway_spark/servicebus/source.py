"""Which reader or writer a query of `format("servicebus")` gets."""

from uuid import uuid4

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from busway_spark.bodies.body_options import BODY_FORMAT
from busway_spark.servicebus.body_readers import (
    DecodingBrowseReader,
    DecodingClaimStreamReader,
    DecodingDrainReader,
    decodes,
)
from busway_spark.servicebus.browse import BrowseReader
from busway_spark.servicebus.claim_reader import ClaimStreamReader
from busway_spark.servicebus.drain import DrainReader
from busway_spark.servicebus.options import (
    BROWSE,
    CLAIM,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    ServiceBusOptions,
    WrongOption,
)
from busway_spark.servicebus.writer import MessageSink
from busway_spark.writing.sink_writers import JobWriter, StreamWriter


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
