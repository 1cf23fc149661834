"""Captured messages as a Delta table, through the package deltalake: no jars.

Tasks write the table's data files where they belong, under names that no other try has; nobody reads them until the
driver adds them all to the table's log in one transaction. That transaction also notes the query and the batch,
so a batch that Spark repeats is known and its files are dropped. What a killed task leaves is in no log and goes with
the table's next vacuum. Columns are those of `captured`, with the folders' own behind them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from busway_spark.pipeline.capture_commit import BatchName
from busway_spark.pipeline.capture_root import CaptureRoot
from busway_spark.pipeline.captured import FOLDERS, SCHEMA, CapturedFile, folder_of, parse_path
from busway_spark.pipeline.captured_writer import StagedFile
from busway_spark.pipeline.job import JobFailed

_FOLDER_TYPES: Final = (pa.string(), pa.string(), pa.string(), pa.int32())
TABLE_SCHEMA: Final = pa.schema(
    [
        *(pa.field(each.name, each.type) for each in SCHEMA),
        *(pa.field(name, kind) for name, kind in zip(FOLDERS, _FOLDER_TYPES, strict=True)),
    ]
)
_TRIES: Final = 10


def require_delta() -> Any:
    try:
        return import_module("deltalake")
    except ImportError as error:
        raise JobFailed("Delta tables need the package deltalake: pip install deltalake.") from error


class DeltaLedger:
    """What is captured of one entity into a table; the table's log is the only note."""

    def __init__(self, root: CaptureRoot, entity: str) -> None:
        self._root = root
        self._entity = entity

    def data_path(self, name: BatchName, file: CapturedFile) -> PurePosixPath:
        folder = folder_of(file.entity, file.hour, file.partition)
        return folder / f"{file.path.stem}-{name.folder}-{uuid4().hex[:8]}.parquet"

    def is_committed(self, name: BatchName) -> bool:
        table = self._table()
        known = None if table is None else table.transaction_version(self._application(name))
        return known is not None and int(known) >= name.batch

    def commit(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        if self.is_committed(name):
            self.abort(name, files)
        elif files:
            self._add(name, files)

    def abort(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        del name
        for file in files:
            self._root.delete(PurePosixPath(file.staged))

    def recover(self) -> None:
        """Nothing half done is in the log."""

    def last_numbers(self) -> dict[int, int]:
        """By partition, what the table holds of this entity."""
        table = self._table()
        last: dict[int, int] = {}
        for row in [] if table is None else _added_files(table):
            if row["partition.entity"] == self._entity:
                partition, number = int(row["partition.partition"]), int(row["max.sequenceNumber"])
                last[partition] = max(number, last.get(partition, -1))
        return last

    def _add(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        delta, transaction = require_delta(), import_module("deltalake.transaction")
        properties = delta.CommitProperties(
            max_commit_retries=_TRIES,
            app_transactions=[delta.Transaction(self._application(name), name.batch)],
        )
        now_ms = time.time_ns() // 1_000_000
        actions = [transaction.AddAction(**_action(file), modification_time=now_ms) for file in files]
        schema = delta.Schema.from_arrow(TABLE_SCHEMA)
        table = self._table() or delta.DeltaTable.create(
            self._root.location, schema=schema, mode="ignore", partition_by=list(FOLDERS)
        )
        table.create_write_transaction(actions, "append", schema, list(FOLDERS), commit_properties=properties)

    def _application(self, name: BatchName) -> str:
        return f"busway capture {self._entity} {name.query}"

    def _table(self) -> Any | None:
        delta = require_delta()
        if not delta.DeltaTable.is_deltatable(self._root.location):
            return None
        return delta.DeltaTable(self._root.location)


def _action(file: StagedFile) -> dict[str, object]:
    target = parse_path(PurePosixPath(file.final))
    assert target is not None
    values = (target.entity, f"{target.hour:%Y-%m-%d}", f"{target.hour:%H}", str(target.partition))
    bounds = {"sequenceNumber": (file.first_number, file.last_number)}
    stats = {
        "numRecords": file.rows,
        "minValues": {column: least for column, (least, _) in bounds.items()},
        "maxValues": {column: most for column, (_, most) in bounds.items()},
    }
    return {
        "path": file.staged,
        "size": file.bytes,
        "partition_values": dict(zip(FOLDERS, values, strict=True)),
        "data_change": True,
        "stats": json.dumps(stats),
    }


def _added_files(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found
