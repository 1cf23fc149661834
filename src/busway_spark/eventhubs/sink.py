"""Writing rows to a hub, in batches and in streams (`busway_spark.writing.sink_writers`).

On Busway each row arrives once. A row goes to the partition that `partition` names, or that its `partitionKey`
belongs to (H-10); of the others, those that are staged together go to one partition, in their order. Other services
get rows at least once (`amqp_sending`), which is said loudly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.encoded_rows import EncodedRows
from busway_spark.eventhubs.amqp_sending import EventsSent, send_rows
from busway_spark.eventhubs.event_rows import by_partition, encode_events
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.written_columns import WrittenColumns
from busway_spark.given_options import AMQP
from busway_spark.wire.bus import failing
from busway_spark.writing.sink_writers import JobWriter, StreamWriter, stage_pieces
from busway_spark.writing.staging import can_stage
from busway_spark.writing.two_phase import RowsStaged, Stage, say_loudly
from busway_spark.writing.write_names import WriteName


class EventSink:
    """Made on the driver. Raises BusFailure."""

    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        self.options = options
        self._columns = columns
        self.stages = _stages(options)

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: WriteName, warning: str | None = None
    ) -> RowsStaged:
        return stage_rows(map(self._columns.prepared, rows), self.options, name, warning)

    def send(self, rows: Iterator[pa.RecordBatch]) -> EventsSent:
        return send_rows(map(self._columns.prepared, rows), self.options)


class EventHubsWriter(JobWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns, job: str) -> None:
        super().__init__(EventSink(options, columns), job)


class EventHubsStreamWriter(StreamWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        super().__init__(EventSink(options, columns))


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

    def put(stage: Stage, piece: pa.RecordBatch, first_row: int) -> None:
        events = encode_events(piece, first_row)
        rows = np.arange(first_row, first_row + piece.num_rows)
        for partition, wanted in by_partition(piece, first_row).items():
            found = events if wanted.all() else arrow.filtered(events, wanted)
            stage.put(options.hub, partition, EncodedRows.framed(rows[wanted], found))

    return stage_pieces(record_batches, options, name, warning, put)
