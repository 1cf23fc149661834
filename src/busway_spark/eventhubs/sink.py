"""Writing rows to a hub, in batches and in streams.

On Busway each row arrives once: tasks stage their rows, and what a batch has staged is decided about at once
(`busway_spark.two_phase`, names by `busway_spark.write_names`). A row goes to the partition that `partition`
names, or that its `partitionKey` belongs to (H-10); of the others, those that are staged together go to one
partition, in their order. Other services get rows at least once (`amqp_sending`), which is said loudly. Which of
both it is, the driver finds out when it makes the writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.encoded_rows import EncodedRows, pieces
from busway_spark.bus_failure import failing
from busway_spark.eventhubs.amqp_sending import send_rows
from busway_spark.eventhubs.event_rows import by_partition, encode_events
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.written_columns import WrittenColumns
from busway_spark.given_options import AMQP
from busway_spark.loud import say_loudly
from busway_spark.staging import can_stage
from busway_spark.two_phase import RowsStaged, Stage, decide, drop_stages
from busway_spark.write_names import WriteName, of_job, of_stream, repeats_warning, running


class EventHubsWriter(DataSourceArrowWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns, job: str) -> None:
        self._options = options
        self._columns = columns
        self._job = job
        self._stages = _stages(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = map(self._columns.prepared, iterator)
        if not self._stages:
            return send_rows(rows, self._options)
        given, at = self._options.given_name, running()
        return stage_rows(rows, self._options, of_job(given, self._job, at), repeats_warning(given, at))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._options.bus, messages, self._options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop_stages(self._options.bus, messages)


class EventHubsStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns
        self._stages = _stages(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = map(self._columns.prepared, iterator)
        if not self._stages:
            return send_rows(rows, self._options)
        return stage_rows(rows, self._options, of_stream(self._options.given_name, running()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        decide(self._options.bus, messages, self._options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        drop_stages(self._options.bus, messages)


def _stages(options: EventHubsOptions) -> bool:
    with failing(f"write to the hub '{options.hub}'"):
        stages = options.transport != AMQP and can_stage(options.bus, options.operation_s)
    if not stages:
        say_loudly(
            f"Rows are sent to the hub '{options.hub}' at least once: by AMQP alone they cannot be staged as Busway"
            " does it, and those of a task or a batch that Spark repeats are sent again. Whoever reads them should"
            " tell repeats by something that each event brings along."
        )
    return stages


def stage_rows(
    record_batches: Iterator[pa.RecordBatch],
    options: EventHubsOptions,
    name: WriteName,
    warning: str | None = None,
) -> RowsStaged:
    """In a task; the batches are prepared (`written_columns`). Raises BadRows, RowsRefused, BusFailure."""
    first_row = 0
    with Stage(options.bus, name, options.operation_s, warning) as stage:
        for record_batch in record_batches:
            if stage.is_known:
                continue  # Spark wants to be read to the end
            for piece in pieces(record_batch):
                events = encode_events(piece, first_row)
                rows = np.arange(first_row, first_row + piece.num_rows)
                for partition, wanted in by_partition(piece, first_row).items():
                    found = events if wanted.all() else arrow.filtered(events, wanted)
                    stage.put(options.hub, partition, EncodedRows.framed(rows[wanted], found))
                first_row += piece.num_rows
        return stage.finish()
