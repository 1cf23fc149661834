"""Writing rows as messages, in batches and in streams.

On Busway each row arrives once: tasks stage their rows, and what a batch has staged is decided about at once
(`busway_spark.two_phase`, names by `busway_spark.write_names`). Other services get rows at least once
(`amqp_sending`), which is said loudly (`duplicate_check`). Which of both it is, the driver finds out when it makes
the writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from busway_spark.amqp_arrays.encoded_rows import EncodedRows, pieces
from busway_spark.bus_failure import failing
from busway_spark.servicebus.amqp_sending import send_rows
from busway_spark.servicebus.columns import check_writable
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.row_targets import by_entity
from busway_spark.staging import can_stage
from busway_spark.two_phase import RowsStaged, Stage, decide, drop_stages
from busway_spark.write_names import WriteName, of_job, of_stream, repeats_warning, running


class ServiceBusWriter(DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self._options = options
        #: The same in all tasks: the writer is made once, by the driver.
        self._job = uuid4().hex
        self.stages = _stages(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self.stages:
            return send_rows(iterator, self._options)
        given, at = self._options.given_name, running()
        return stage_rows(iterator, self._options, of_job(given, self._job, at), repeats_warning(given, at))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._options.bus, messages, self._options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop_stages(self._options.bus, messages)


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self._options = options
        self.stages = _stages(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self.stages:
            return send_rows(iterator, self._options)
        return stage_rows(iterator, self._options, of_stream(self._options.given_name, running()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        decide(self._options.bus, messages, self._options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        drop_stages(self._options.bus, messages)


def _stages(options: ServiceBusOptions) -> bool:
    with failing("write"):
        return can_stage(options.bus, options.operation_s)


def stage_rows(
    record_batches: Iterator[pa.RecordBatch],
    options: ServiceBusOptions,
    name: WriteName,
    warning: str | None = None,
) -> RowsStaged:
    """In a task. Raises RowsRefused, BusFailure."""
    first_row = 0
    with Stage(options.bus, name, options.operation_s, warning) as stage:
        for record_batch in record_batches:
            if stage.is_known:
                continue  # Spark wants to be read to the end
            for piece in pieces(record_batch):
                for entity, (rows, messages) in by_entity(piece, first_row, stage.id, options).items():
                    stage.put(entity, None, EncodedRows.framed(rows, messages))
                first_row += piece.num_rows
        return stage.finish()
