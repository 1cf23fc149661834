"""`format("eventhubs")`: what Spark asks for a reader or a writer. Options are checked when it is made."""

from __future__ import annotations

from collections.abc import MutableMapping
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from busway_spark.bodies.body_options import BODY_FORMAT
from busway_spark.eventhubs.options import BadOption, EventHubsOptions, check_readable, readable_schema
from busway_spark.eventhubs.reader import EventHubsReader, EventHubsStreamReader
from busway_spark.eventhubs.sink import EventHubsStreamWriter, EventHubsWriter, WrittenColumns
from busway_spark.start.carried_source import CarriedSource


class EventHubsSource(CarriedSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._settings = EventHubsOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "eventhubs"

    def schema(self) -> StructType:
        return readable_schema(self._settings)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_readable(schema, self._settings)
        return EventHubsReader(self._settings, schema.names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self.require_code()
        check_readable(schema, self._settings)
        return EventHubsStreamReader(self._settings, schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        self._check_bodies()
        return EventHubsWriter(self._settings, WrittenColumns.of(schema, overwrite), uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        self.require_code()
        self._check_bodies()
        return EventHubsStreamWriter(self._settings, WrittenColumns.of(schema, overwrite))

    def _check_bodies(self) -> None:
        if not self._settings.bodies.is_binary:
            raise BadOption(
                BODY_FORMAT, "is for reading; write bodies that are binary or string (to_json makes one)."
            )
