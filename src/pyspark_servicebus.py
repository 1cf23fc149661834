"""`format("servicebus")`: Spark finds this module by its name. Light, because every session imports it."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from busway_spark.start.carried_source import CarriedSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from busway_spark.servicebus.options import ServiceBusOptions


class DefaultSource(CarriedSource):
    """Queues, topics, subscriptions and their dead-letter queues; see `busway_spark`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options()  # wrong ones fail here, before anything is planned

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> "StructType":
        from busway_spark.servicebus.columns import readable_schema

        return readable_schema(self._read_options())

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from busway_spark.servicebus.source import batch_reader

        return batch_reader(schema, self._read_options())

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from busway_spark.servicebus.source import stream_reader

        self.require_code()
        return stream_reader(schema, self._read_options())

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from busway_spark.servicebus.source import batch_writer

        return batch_writer(schema, self._read_options(), overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from busway_spark.servicebus.source import stream_writer

        self.require_code()
        return stream_writer(schema, self._read_options(), overwrite)

    def _read_options(self) -> "ServiceBusOptions":
        from busway_spark.servicebus.options import read_options

        return read_options(dict(self.options))
