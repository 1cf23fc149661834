"""Journals and captures made by hand, so that a report's figures are known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from busway.journal import files
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
_TYPES: dict[str, pa.DataType] = {
    files.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    files.TEXT: pa.string(),
    files.WORD: pa.dictionary(pa.int32(), pa.string()),
    files.LONG: pa.int64(),
    files.INTEGER: pa.int32(),
}
_SCHEMA = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in files.COLUMNS.items()])


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def operation(seconds: float, name: str, entity: str, **known: Any) -> dict[str, Any]:
    """A row of the journal, so many seconds after START; what is not said is null."""
    row: dict[str, Any] = dict.fromkeys(files.COLUMNS)
    return {**row, "time": at(seconds), "operation": name, "entity": entity, "fragment": 0, **known}


def write_journal(root: Path, rows: Iterable[dict[str, Any]]) -> Path:
    hours: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        hours.setdefault(f"date={row['time']:%Y-%m-%d}/hour={row['time']:%H}", []).append(row)
    for folder, own in hours.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(own, schema=_SCHEMA), root / folder / "a.parquet")
        (root / folder / ".half.parquet").write_bytes(b"not finished")
    return root


def write_capture(root: Path, entity: str, partition: int, moments: list[datetime], key: str) -> None:
    """A message at each moment, of one hour."""
    rows = [
        {"sequenceNumber": number, "enqueuedTime": moment, "body": b"x" * 10, "partitionKey": key}
        for number, moment in enumerate(moments)
    ]
    path = root / CapturedFile(entity, moments[0], partition, 0).path
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
