"""`format("eventhubs")`: what Spark asks for a reader or a writer. Options are checked when it is made."""

from __future__ import annotations

from collections.abc import MutableMapping
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from busway_spark.eventhubs.columns import SCHEMA_DDL
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.reader import EventHubsReader, FilteredEventHubsReader
from busway_spark.eventhubs.stream_reader import EventHubsStreamReader
from busway_spark.eventhubs.writer import EventHubsStreamWriter, EventHubsWriter, check_columns


class EventHubsSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._settings = EventHubsOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "eventhubs"

    def schema(self) -> str:
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 (Spark's signature)
        if self._settings.pushes_filters:
            return FilteredEventHubsReader(self._settings)
        return EventHubsReader(self._settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return EventHubsStreamReader(self._settings)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        check_columns(schema, overwrite)
        return EventHubsWriter(self._settings, uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        check_columns(schema, overwrite)
        return EventHubsStreamWriter(self._settings)
