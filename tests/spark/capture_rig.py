"""Events as the format "eventhubs" gives them, and captured files as any reader of Parquet sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_sink import PARQUET, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.manifests import Records, recorded_texts

NINE = datetime(2026, 11, 15, 9, tzinfo=UTC)
_TEXTS = pa.map_(pa.string(), pa.string())
_COLUMNS: dict[str, Any] = {
    "body": pa.binary(),
    "partition": pa.string(),
    "offset": pa.string(),
    "sequenceNumber": pa.int64(),
    "enqueuedTime": pa.timestamp("us", tz="UTC"),
    "publisher": pa.string(),
    "partitionKey": pa.string(),
    "properties": _TEXTS,
    "systemProperties": _TEXTS,
}
EVENTS = pa.schema(_COLUMNS)


def event(number: int, at: datetime = NINE, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "body": b"%d-%d" % (partition, number),
        "partition": str(partition),
        "offset": str(number),
        "sequenceNumber": number,
        "enqueuedTime": at,
        "properties": [],
        "systemProperties": [],
        **more,
    }


def events(
    numbers: Iterable[int], at: datetime = NINE, partition: int = 0, every: timedelta = timedelta(seconds=1)
) -> pa.RecordBatch:
    """One a second from a time on, by their numbers."""
    return batch([event(number, at + number * every, partition) for number in numbers])


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=EVENTS)


def recorded_spans(root: CaptureRoot, entity: str) -> Records:
    return {PurePosixPath(path): each for path, each in recorded_texts(root, entity).items()}


def writer(root: Path, entity: str = "clicks", layout: str = PARQUET) -> CaptureStreamWriter:
    return CaptureStreamWriter(CaptureRoot(str(root)), entity, layout, ZSTD)


def captured(root: Path) -> list[dict[str, Any]]:
    """Rows as a stranger reads them: everything below the root but what is hidden, sorted by number."""
    table = ds.dataset(str(root), format="parquet", partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["entity"], row["partition"], row["sequenceNumber"]))


def numbers(root: Path) -> list[tuple[int, int]]:
    return [(row["partition"], row["sequenceNumber"]) for row in captured(root)]


def numbers_in(path: Path) -> list[int]:
    """Of one file, in its order."""
    found: list[Any] = pq.read_table(path, columns=["sequenceNumber"]).column(0).to_pylist()
    return found


def data_files(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*.parquet")
        if "_" not in str(path.relative_to(root))[0]
    )


class Crash(BaseException):
    """The process dies here."""


class CrashingRoot(CaptureRoot):
    """Dies with the given change, before or after it is made. Changes are counted in all roots together."""

    left = 1 << 30
    dies_after = False

    @classmethod
    def arm(cls, left: int, *, dies_after: bool = False) -> None:
        cls.left, cls.dies_after = left, dies_after

    @classmethod
    def step(cls, change: Callable[[], None]) -> None:
        cls.left -= 1
        if cls.left == 0 and not cls.dies_after:
            raise Crash
        change()
        if cls.left == 0:
            raise Crash

    def move(self, source: PurePosixPath, target: PurePosixPath) -> None:
        self.step(partial(super().move, source, target))

    def delete(self, path: PurePosixPath) -> None:
        self.step(partial(super().delete, path))

    def delete_folder(self, path: PurePosixPath) -> None:
        self.step(partial(super().delete_folder, path))

    def remove_empty_folder(self, path: PurePosixPath) -> None:
        self.step(partial(super().remove_empty_folder, path))

    def make_folder(self, path: PurePosixPath) -> None:
        self.step(partial(super().make_folder, path))
