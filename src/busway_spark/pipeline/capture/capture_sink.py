"""What `capture` reads from and writes to: the formats "eventhubs" and "servicebus" under names of their own, and a
sink that puts their rows into captured files.

Tasks write staged files (`captured_writer`); the driver commits them batch by batch (`capture_commit`, or to a Delta
table: `delta`). The formats are registered by the job that uses them, so that it can say how their processes are
started (`shared_python`), and are known by no other names: what Spark finds by itself cannot be registered once more
under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from busway_spark.eventhubs.source import EventHubsSource
from busway_spark.pipeline.capture.capture_commit import (
    BatchName,
    CaptureFailed,
    CaptureLedger,
    capture_ledger,
    store_sentence,
)
from busway_spark.pipeline.capture.captured_writer import (
    ZSTD,
    CapturedWriter,
    Extent,
    Extents,
    StagedFile,
    captured_runs,
    extents_of,
    staged_name,
)
from busway_spark.pipeline.capture.delta import DeltaLedger
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import CapturedFile
from busway_spark.pipeline.job import JobFailed
from busway_spark.writing.write_names import running
from pyspark_servicebus import DefaultSource as ServiceBusSource

CAPTURED_HUB: Final = "busway-captured-hub"
CAPTURED_QUEUE: Final = "busway-captured-queue"
SINK: Final = "busway-capture"
PARQUET: Final = "parquet"
DELTA: Final = "delta"


class CapturedHub(EventHubsSource):
    @classmethod
    def name(cls) -> str:
        return CAPTURED_HUB


class CapturedQueue(ServiceBusSource):
    """Also of topics, by their subscriptions."""

    @classmethod
    def name(cls) -> str:
        return CAPTURED_QUEUE


class CaptureSink(DataSource):
    """Options: `root`, `owner` (of its locks), `entity`, `layout` (parquet, delta), `compression`."""

    @classmethod
    def name(cls) -> str:
        return SINK

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        del schema, overwrite
        options = self.options
        return CaptureStreamWriter(
            CaptureRoot(options["root"], options.get("owner") or None),
            options["entity"],
            options.get("layout", PARQUET),
            options.get("compression", ZSTD),
        )


@dataclass
class FilesWritten(WriterCommitMessage):
    name: BatchName
    files: list[StagedFile] = field(default_factory=list)
    #: Rows that were not written, because their batch was noted as captured; None when it was not.
    left_out: Extents | None = None


class CaptureStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, root: CaptureRoot, entity: str, layout: str, compression: str) -> None:
        self._root = root
        self._entity = entity
        self._layout = layout
        self._compression = compression

    # -- on executors

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_batch(_batch_name(), iterator)

    def write_batch(self, name: BatchName, batches: Iterator[pa.RecordBatch]) -> FilesWritten:
        ledger = self._ledger()
        with self._telling():
            is_known = ledger.is_committed(name)
        if is_known:
            return FilesWritten(name, left_out=_extents(batches))
        target = partial(_staged_path, ledger, name)
        writer = CapturedWriter(self._root, self._entity, target, self._compression)
        try:
            for batch in batches:
                for run in captured_runs(batch):
                    writer.take(run)
            return FilesWritten(name, writer.close())
        except OSError as error:
            self._discard(writer)
            raise CaptureFailed(store_sentence(self._root, error)) from error
        except BaseException:
            self._discard(writer)
            raise

    def _discard(self, writer: CapturedWriter) -> None:
        """As far as the store lets it: what stays is named by nobody, and what went wrong first is told."""
        with suppress(OSError):
            writer.discard()

    # -- on the driver

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        del batchId
        written = [message for message in messages if isinstance(message, FilesWritten)]
        if not written:
            return
        files = [file for message in written for file in message.files]
        known = [message.left_out for message in written if message.left_out is not None]
        left_out = extents_of(part for extents in known for part in extents.items()) if known else None
        with self._telling():
            self._ledger().commit(written[0].name, files, left_out)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tasks that failed have cleaned up behind them. When all have answered, `commit` was called, and may have
        come to any point, or may still be running: what it has left is for the next start."""
        del batchId
        if None not in messages:
            return
        written = [message for message in messages if isinstance(message, FilesWritten)]
        files = [file for message in written for file in message.files]
        if files:
            with suppress(OSError, JobFailed):  # why it comes to this is told already
                self._ledger().abort(written[0].name, files)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CaptureFailed(store_sentence(self._root, error)) from error

    def _ledger(self) -> CaptureLedger | DeltaLedger:
        return ledger_of(self._root, self._entity, self._layout)


def ledger_of(root: CaptureRoot, entity: str, layout: str) -> CaptureLedger | DeltaLedger:
    return DeltaLedger(root, entity) if layout == DELTA else capture_ledger(root, entity)


def _staged_path(ledger: CaptureLedger | DeltaLedger, name: BatchName, file: CapturedFile) -> PurePosixPath:
    if isinstance(ledger, DeltaLedger):
        return ledger.data_path(name, file)
    return ledger.staging(name) / staged_name(file)


def _extents(batches: Iterator[pa.RecordBatch]) -> Extents:
    """Of rows that Spark hands over all the same."""
    runs = (run for batch in batches for run in captured_runs(batch))
    numbers = ((run.partition, run.rows.column(0)) for run in runs)
    return extents_of(
        (partition, Extent(len(column), int(column[0].as_py()), int(column[-1].as_py())))
        for partition, column in numbers
    )


def _batch_name() -> BatchName:
    at = running()
    if at.query is None or at.batch is None:
        raise CaptureFailed("Spark does not tell which batch of which query this task belongs to.")
    return BatchName(at.query, at.batch)
