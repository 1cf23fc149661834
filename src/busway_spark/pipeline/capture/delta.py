"""Captured messages as a Delta table, through the package deltalake: no jars.

    ROOT/_delta_log/…                             the table's log: which files and which batches are in the table
    ROOT/_capture/entity=orders/adding.json       a promise: the log names these files of a batch, or may do so soon

Theory of operation. Tasks write the table's data files where they belong, under names that no other try has; nobody
reads them until the driver adds them all to the table's log in one version. That version also notes the query and
the batch (an application transaction) and which rows it had (`Extent`), so a batch that Spark repeats is
known by the log alone. What Spark does and who may die is told in `capture_commit`. A commit takes these steps:

1. The log is read, and asked whether it has the batch.
2. `adding.json` is written, and each file that it names is looked for by its size.
3. The version is written, as the successor of what was read in step 1.
4. When it is on the disk, `adding.json` is removed.

Whoever finds `adding.json`, the next start or the next commit, looks into the log (`_settle`). If the batch is in it,
the files are the table's. If it is not, that may still change: whoever wrote the version was told of a failure and
knows nothing, or has not come to it yet. So an empty version is written that speaks of the same query. What was read
before it cannot be followed by another version of that query, which deltalake sees to. Then the log is asked again,
and its no is final.

Who may delete what. A task: what it has written itself, if it fails. `abort`: what tasks have written for a batch
that was never given to `commit`. `_settle`: the files of `adding.json`, after that final no. `commit`: files that
were written again for a batch that is in the log by others. What else the log does not name, as what a killed task
leaves, goes with the table's next vacuum.

Columns are those of `captured`, with the folders' own behind them; a table that lacks one gains it before step 1, and
one that has more keeps them (`delta_table`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from busway_spark.pipeline.capture.capture_commit import (
    BatchName,
    CaptureFailed,
    check_left_out,
    check_repeated,
    is_repeated,
    missing_sentence,
    store_sentence,
)
from busway_spark.pipeline.capture.captured_writer import (
    Extents,
    StagedFile,
    extents_of,
    extents_of_files,
    of_note,
    to_note,
)
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import (
    FOLDERS,
    CapturedFile,
    entity_folder,
    folder_of,
    note_text,
    notes_of,
    parse_path,
    read_note,
)
from busway_spark.pipeline.captured.delta_table import (
    LOG,
    delta_error,
    keep_columns_up,
    made_table,
    open_table,
    require_delta,
    sync_version,
)

_TRIES: Final = 10
#: That are looked through for a batch that is repeated: others write to the table too.
_VERSIONS_MAX: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ADDING: Final = "adding.json"


class DeltaLedger:
    """What is captured of one entity into a table; the table's log says what is done."""

    def __init__(self, root: CaptureRoot, entity: str) -> None:
        self._root = root
        self._entity = entity
        self._adding = notes_of(entity) / ADDING

    def data_path(self, name: BatchName, file: CapturedFile) -> PurePosixPath:
        folder = folder_of(file.entity, file.hour, file.partition)
        return folder / f"{file.path.stem}-{name.folder}-{uuid4().hex[:8]}.parquet"

    def is_committed(self, name: BatchName) -> bool:
        """Raises CaptureFailed for a batch that comes too late."""
        with self._telling():
            return is_repeated(name, self._noted(self._table(), name.query))

    def recover(self) -> None:
        """What a capture that failed or was killed has left behind. Only while no other one runs."""
        with self._telling():
            self._settle()
        self._root.forget_halves(self._adding.parent)

    # -- a batch

    def commit(self, name: BatchName, files: Sequence[StagedFile], left_out: Extents | None = None) -> None:
        """Raises CaptureFailed; then the batch is not in the log, or the log tells. `left_out`: rows that tasks have
        not written, since they found the batch there."""
        with self._telling():
            self._settle()
            table = self._table() or (made_table(self._root) if files else None)
            if files:
                keep_columns_up(self._root, table)
            # From here on one reading of the log is asked and followed: what comes between is a conflict.
            if is_repeated(name, self._noted(table, name.query)):
                rows = extents_of([*extents_of_files(files).items(), *(left_out or {}).items()])
                check_repeated(name, rows, self._extents(table, name))
                self._drop(table, files)
                return
            check_left_out(name, left_out)
            if files:
                self._add(table, name, files)

    def abort(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        """For a batch that was never given to `commit`."""
        del name
        promised = set(read_note(self._root, self._adding).get("files", ()))
        for file in files:
            if file.staged not in promised:
                self._root.delete(PurePosixPath(file.staged))

    def _add(self, table: Any, name: BatchName, files: Sequence[StagedFile]) -> None:
        note = {"query": name.query, "batch": name.batch, "files": [file.staged for file in files]}
        self._root.write_text(self._adding, note_text(note))
        for file in files:
            path = PurePosixPath(file.staged)
            if self._root.file_size(path) != file.bytes:
                raise CaptureFailed(missing_sentence(self._root, path))
        transaction = import_module("deltalake.transaction")
        now_ms = time.time_ns() // 1_000_000
        actions = [transaction.AddAction(**_action(file), modification_time=now_ms) for file in files]
        told = {"batch": name.batch, "rows": to_note(extents_of_files(files))}
        self._write_version(table, name.query, name.batch, actions, json.dumps(told))
        self._forget_promise()

    def _drop(self, table: Any, files: Sequence[StagedFile]) -> None:
        """Those that are not the table's: their batch is in the log, so they never will be."""
        if files:
            # By names alone, of which there is one each: the log writes folders in another way than the disk.
            known = {PurePosixPath(row["path"]).name for row in _added_files(table)}
            for path in [PurePosixPath(file.staged) for file in files]:
                if path.name not in known:
                    self._root.delete(path)

    # -- a promise

    def _settle(self) -> None:
        note = read_note(self._root, self._adding)
        if not note:
            return
        name, files = BatchName(str(note.get("query")), int(note.get("batch", -1))), note.get("files", ())
        paths = [PurePosixPath(each) for each in files]
        if any(entity_folder(self._entity) not in path.parents or ".." in path.parts for path in paths):
            raise CaptureFailed(
                f"{self._root.full(self._adding)} is damaged: it names what is no captured file."
            )
        if not self._has(name) and not self._lands_before_fence(name):
            for path in paths:
                self._root.delete(path)
        self._forget_promise()

    def _lands_before_fence(self, name: BatchName) -> bool:
        """From now on the log has the batch, or never will."""
        try:
            self._write_version(self._table() or made_table(self._root), name.query, name.batch - 1, [])
        except delta_error():
            if not self._has(name):
                raise
        return self._has(name)

    def _forget_promise(self) -> None:
        self._root.delete(self._adding)
        self._root.sync_folder(self._adding.parent)

    # -- the table

    def _write_version(
        self, table: Any, query: str, batch: int, actions: list[Any], told: str | None = None
    ) -> None:
        delta = require_delta()
        properties = delta.CommitProperties(
            custom_metadata=None if told is None else {self._application(query): told},
            max_commit_retries=_TRIES,
            app_transactions=[delta.Transaction(self._application(query), batch)],
        )
        # Its own columns: it may have more than ours.
        table.create_write_transaction(
            actions, "append", table.schema(), list(FOLDERS), commit_properties=properties
        )
        sync_version(self._root, table)

    def _table(self) -> Any | None:
        return open_table(self._root)

    def _has(self, name: BatchName) -> bool:
        return self._noted(self._table(), name.query) >= name.batch

    def _noted(self, table: Any | None, query: str) -> int:
        """The last batch of a query that is in the log; -1 is none."""
        known = None if table is None else table.transaction_version(self._application(query))
        return -1 if known is None else int(known)

    def _extents(self, table: Any, name: BatchName) -> Extents | None:
        """Which rows a batch had that is in the log; None where its version is too long ago to tell. The versions are
        read here, the last first: a batch that comes again is mostly one of them, and the package's own history
        reads all of them and keeps every other thread of this process waiting meanwhile."""
        last = int(table.version())
        for version in range(last, max(last - _VERSIONS_MAX, -1), -1):
            actions = self._root.read_text(LOG / f"{version:020}.json")
            if actions is None:
                return None  # tidied away
            told = _commit_information(actions).get(self._application(name.query))
            note = json.loads(told) if told else {}
            if note.get("batch") == name.batch:
                return of_note(note)
        return None

    def _application(self, query: str) -> str:
        return f"busway capture {self._entity} {query}"

    @contextmanager
    def _telling(self) -> Iterator[None]:
        failures = delta_error()
        try:
            yield
        except failures as error:
            raise CaptureFailed(store_sentence(self._root, error)) from error


def _action(file: StagedFile) -> dict[str, object]:
    target = parse_path(PurePosixPath(file.final))
    assert target is not None
    values = (target.entity, f"{target.hour:%Y-%m-%d}", f"{target.hour:%H}", str(target.partition))
    bounds: dict[str, tuple[object, object]] = {
        "sequenceNumber": (file.first_number, file.last_number),
        # Delta keeps milliseconds: outwards, so that they hold for every row.
        "enqueuedTime": (_instant(file.first_time_us // 1000), _instant(-(-file.last_time_us // 1000))),
    }
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


def _commit_information(actions: str) -> dict[str, Any]:
    """What whoever wrote a version says of it, beside what it does."""
    for line in actions.splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            found: dict[str, Any] = action["commitInfo"]
            return found
    return {}


def _instant(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def _added_files(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found
