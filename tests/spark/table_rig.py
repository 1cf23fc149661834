"""Delta tables of captured messages, and what others do to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import DELTA
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS, SCHEMA
from busway_spark.pipeline.captured.captured_files import History
from busway_spark.pipeline.captured.delta_table import TABLE_SCHEMA
from tests.spark.capture_rig import NINE, events, writer

#: A column that a later version, or somebody's own job, might add.
TRACE: pa.Field[Any] = pa.field("traceId", pa.string())
#: What a version before this one may have had: a column less, in another order.
OLD: pa.Schema = pa.schema([SCHEMA.field(name) for name in reversed(SCHEMA.names) if name != "propertyTypes"])
NEW: pa.Schema = pa.schema([TRACE, *SCHEMA])


def put(
    root: Path,
    numbers: Iterable[int],
    entity: str = "clicks",
    layout: str = DELTA,
    *,
    at: datetime = NINE,
    partition: int = 0,
) -> None:
    """A batch of a capture, a query of its own: one event a second."""
    found = list(numbers)
    sink = writer(root, entity, layout)
    name = BatchName(uuid4().hex, 0)
    sink.commit([sink.write_batch(name, iter([events(found, at, partition)]))], 0)


def replayed(root: Path, entity: str = "clicks") -> dict[int, list[int]]:
    """Numbers by partition, as replay and the others of its kind read them."""
    history = History(CaptureRoot(str(root)), entity)
    return {each: [row.number for row in history.rows(each)] for each in sorted(history.partitions())}


def optimise(root: Path) -> None:
    """Files become one, in an order of its own; the old ones stay where they lie."""
    DeltaTable(str(root)).optimize.compact()


def make_table(root: Path, columns: pa.Schema) -> None:
    """Empty, with these columns and the folders' own."""
    kinds = [pa.field(name, TABLE_SCHEMA.field(name).type) for name in FOLDERS]
    whole = pa.schema([*(pa.field(each.name, each.type) for each in columns), *kinds])
    DeltaTable.create(str(root), schema=Schema.from_arrow(whole), partition_by=list(FOLDERS))


def columns_of(root: Path) -> list[str]:
    return [each.name for each in DeltaTable(str(root)).schema().fields]


def note(root: Path, *actions: dict[str, Any]) -> None:
    """A version of the log, written by hand."""
    log = root / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(each) for each in actions))


def action(root: Path, kind: str) -> dict[str, Any]:
    """The last one of its kind."""
    found: list[dict[str, Any]] = []
    for path in sorted((root / "_delta_log").glob("*.json")):
        found += [json.loads(line) for line in path.read_text().splitlines() if line]
    return next(each for each in reversed(found) if kind in each)


def rewrite(path: Path, columns: pa.Schema) -> None:
    """The same rows as a version with other columns would have written them."""
    rows = pq.ParquetFile(path).read().to_pylist()
    whole = [{**row, TRACE.name: f"trace-{row['sequenceNumber']}"} for row in rows]
    pq.write_table(pa.Table.from_pylist(whole, schema=columns), path)
