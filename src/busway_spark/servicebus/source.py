"""Which reader or writer a query of `format("servicebus")` gets."""

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

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
from busway_spark.servicebus.writer import ServiceBusStreamWriter, ServiceBusWriter


def batch_reader(schema: StructType, options: ServiceBusOptions) -> DataSourceReader:
    mode = options.mode or BROWSE
    if mode == RECEIVE_AND_DELETE:
        return DrainReader(schema, options)
    if mode != BROWSE:
        raise WrongOption("mode", f"{mode} is for streams; a batch has {BROWSE} or {RECEIVE_AND_DELETE}.")
    return BrowseReader(schema, options)


def stream_reader(schema: StructType, options: ServiceBusOptions) -> DataSourceStreamReader:
    mode = options.mode or CLAIM
    if mode not in (CLAIM, PEEK_LOCK):
        raise WrongOption("mode", f"{mode} is for batches; a stream has {CLAIM} or {PEEK_LOCK}.")
    return ClaimStreamReader(schema, options, is_durable=mode == CLAIM)


def batch_writer(schema: StructType, options: ServiceBusOptions, overwrite: bool) -> DataSourceWriter:
    if overwrite:
        raise WrongOption("mode", "messages can only be added: write with mode('append').")
    return ServiceBusWriter(schema, options)


def stream_writer(schema: StructType, options: ServiceBusOptions, overwrite: bool) -> DataSourceStreamWriter:
    if overwrite:
        raise WrongOption("outputMode", "messages can only be added: write with outputMode('append').")
    return ServiceBusStreamWriter(schema, options)
