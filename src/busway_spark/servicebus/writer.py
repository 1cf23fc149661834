"""Writing rows as messages, in batches and in streams (`busway_spark.writing.sink_writers`).

On Busway each row arrives once. Other services get rows at least once (`amqp_sending`), which is said loudly
(`duplicate_check`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from busway_spark.amqp_arrays.encoded_rows import EncodedRows
from busway_spark.servicebus.amqp_sending import RowsSent, send_rows
from busway_spark.servicebus.columns import check_writable
from busway_spark.servicebus.duplicate_check import warn_if_rows_can_repeat
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.row_targets import by_entity
from busway_spark.wire.bus import failing
from busway_spark.writing.sink_writers import stage_pieces
from busway_spark.writing.staging import can_stage
from busway_spark.writing.two_phase import RowsStaged, Stage
from busway_spark.writing.write_names import WriteName


class MessageSink:
    """Made on the driver. Raises WrongColumns, BusFailure."""

    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self.options = options
        with failing("write"):
            self.stages = can_stage(options.bus, options.operation_s)
        if not self.stages:
            warn_if_rows_can_repeat(schema, options)

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: WriteName, warning: str | None = None
    ) -> RowsStaged:
        return stage_pieces(rows, self.options, name, warning, self._put)

    def send(self, rows: Iterator[pa.RecordBatch]) -> RowsSent:
        return send_rows(rows, self.options)

    def _put(self, stage: Stage, piece: pa.RecordBatch, first_row: int) -> None:
        for entity, (rows, messages) in by_entity(piece, first_row, stage.id, self.options).items():
            stage.put(entity, None, EncodedRows.framed(rows, messages))
