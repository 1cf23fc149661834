"""The writers that both formats give to Spark, for jobs and for streams.

The driver makes a writer and finds out whether the bus can stage rows. If so each task stages its rows under the name
of the write (`write_names`), and `commit` has them decided about (`two_phase`); elsewhere tasks send them at once.
What a format brings is how it does either with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from busway_spark.amqp_arrays.encoded_rows import pieces
from busway_spark.wire.bus import Bus
from busway_spark.writing.two_phase import RowsStaged, Stage, decide, drop_stages
from busway_spark.writing.write_names import GivenName, WriteName, of_job, of_stream, repeats_warning, running


class WriteOptions(Protocol):
    """Of either format."""

    @property
    def bus(self) -> Bus: ...

    @property
    def operation_s(self) -> float: ...

    @property
    def given_name(self) -> GivenName: ...


class RowSink(Protocol):
    """Travels to executors."""

    @property
    def options(self) -> WriteOptions: ...

    @property
    def stages(self) -> bool:
        """Whether the bus can; otherwise rows are sent."""

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: WriteName, warning: str | None = None
    ) -> WriterCommitMessage: ...

    def send(self, rows: Iterator[pa.RecordBatch]) -> WriterCommitMessage: ...


class JobWriter(DataSourceArrowWriter):
    def __init__(self, sink: RowSink, job: str) -> None:
        """`job`: a random name, the same in all tasks, because the writer is made once."""
        self._sink = sink
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self._sink.stages:
            return self._sink.send(iterator)
        given, at = self._sink.options.given_name, running()
        return self._sink.stage(iterator, of_job(given, self._job, at), repeats_warning(given, at))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._sink.options.bus, messages, self._sink.options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop_stages(self._sink.options.bus, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self._sink.stages:
            return self._sink.send(iterator)
        return self._sink.stage(iterator, of_stream(self._sink.options.given_name, running()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        decide(self._sink.options.bus, messages, self._sink.options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        drop_stages(self._sink.options.bus, messages)


def stage_pieces(
    record_batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    name: WriteName,
    warning: str | None,
    put: Callable[[Stage, pa.RecordBatch, int], None],
) -> RowsStaged:
    """In a task: all rows in pieces, each put into the stage with the place of its first row. Raises RowsRefused,
    BusFailure, and what `put` raises."""
    first_row = 0
    with Stage(options.bus, name, options.operation_s, warning) as stage:
        for record_batch in record_batches:
            if stage.is_known:
                continue  # Spark wants to be read to the end
            for piece in pieces(record_batch):
                put(stage, piece, first_row)
                first_row += piece.num_rows
        return stage.finish()
