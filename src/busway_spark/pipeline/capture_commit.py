"""Staged files become captured files: all files of a batch, once.

    ROOT/_capture/entity=orders/staging/7f2c…-12/…     what tasks of batch 12 of the query have written
    ROOT/_capture/entity=orders/moving.json            a batch whose files are being moved
    ROOT/_capture/entity=orders/committed.json         the last batch whose files are all in place
    ROOT/_capture/entity=orders/source.json            what is captured: its kind, and when it was made

Theory of operation. Before the first file is moved the whole list of moves is written down in one step. Whoever finds
such a list carries it out: a file that is no longer in staging has been moved. Then the batch is noted as committed
and the list is removed. So a batch is either not in place, or will be wholly, whatever was killed and when. Spark
repeats a batch when it died before it knew of the commit; the note says that nothing is left to do, and the
repeated files are dropped, even when `compact` has put the first ones together with others meanwhile.

A captured file is never replaced by another: where a name is taken by other messages the source was made anew under
its old name, its numbers begin again, and the batch is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.captured import entity_folder, parse_path
from busway_spark.pipeline.captured_writer import StagedFile
from busway_spark.pipeline.job import JobFailed

MOVING: Final = "moving.json"
COMMITTED: Final = "committed.json"
SOURCE: Final = "source.json"
_STAGING: Final = "staging"
_QUERY_CHARACTERS: Final = 12


class CaptureFailed(JobFailed):
    """A batch cannot be captured; it will be tried again when the capture is started again."""


@dataclass(frozen=True)
class BatchName:
    query: str
    batch: int

    @property
    def folder(self) -> str:
        return f"{self.query[:_QUERY_CHARACTERS]}-{self.batch}"


def notes_of(entity: str) -> PurePosixPath:
    return NOTES / entity_folder(entity)


class CaptureLedger:
    """What is captured of one entity, batch by batch."""

    def __init__(self, root: CaptureRoot, entity: str) -> None:
        self._root = root
        self._entity = entity
        self._notes = notes_of(entity)

    def staging(self, name: BatchName) -> PurePosixPath:
        return self._notes / _STAGING / name.folder

    # -- before

    def is_committed(self, name: BatchName) -> bool:
        """Or will be, without anybody writing its rows again."""
        notes = [read_note(self._root, self._notes / file) for file in (COMMITTED, MOVING)]
        return any(
            note.get("query") == name.query and int(note.get("batch", -1)) >= name.batch for note in notes
        )

    def recover(self) -> None:
        """What a capture that was killed has left behind. Only while no other one runs."""
        self._carry_on()
        self._root.delete_folder(self._notes / _STAGING)
        self._root.forget_halves(self._notes)

    # -- a batch

    def commit(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        """Raises CaptureFailed, with nothing moved."""
        self._carry_on()
        if not self.is_committed(name):
            moves = [[file.staged, file.final] for file in files if not self._is_there(file)]
            text = json.dumps({"query": name.query, "batch": name.batch, "moves": moves})
            self._root.write_text(self._notes / MOVING, text)
            self._carry_on()
        self.abort(name, files)

    def abort(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        """The folder has all of them, and what tasks left that were killed."""
        del files
        self._root.delete_folder(self.staging(name))

    def _carry_on(self) -> None:
        note = read_note(self._root, self._notes / MOVING)
        if not note:
            return
        folders: set[PurePosixPath] = set()
        for staged, final in note["moves"]:
            folders.add(PurePosixPath(final).parent)
            self._move(PurePosixPath(staged), PurePosixPath(final))
        for folder in folders:
            if self._root.exists(folder):
                self._root.sync_folder(folder)
        done = {"query": note["query"], "batch": note["batch"]}
        self._root.write_text(self._notes / COMMITTED, json.dumps(done))
        self._root.delete(self._notes / MOVING)

    def _move(self, staged: PurePosixPath, final: PurePosixPath) -> None:
        if parse_path(final) is None:
            raise CaptureFailed(
                f"{self._notes / MOVING} names '{str(final)[:200]}', which is no captured file."
            )
        if self._root.exists(staged):
            self._root.make_folder(final.parent)
            self._root.move(staged, final)

    def _is_there(self, file: StagedFile) -> bool:
        """The same messages are in place already. Raises CaptureFailed when others are."""
        path = PurePosixPath(file.final)
        if not self._root.exists(path):
            return False
        if span_of(self._root, path) == FileSpan(
            file.rows, file.first_number, file.last_number, file.first_time_us, file.last_time_us
        ):
            return True
        raise CaptureFailed(
            f"{file.final} in {self._root.location} holds other messages of '{self._entity}': it was deleted and"
            " made again under its name, or its capture was begun anew. Capture it into another directory."
        )


def check_source(root: CaptureRoot, entity: str, facts: dict[str, object]) -> None:
    """Notes what is captured; raises JobFailed when it was another one of the same name before."""
    path = notes_of(entity) / SOURCE
    known = read_note(root, path)
    if not known:
        root.write_text(path, json.dumps(facts))
    elif known != facts:
        raise JobFailed(
            f"{root.location} holds a capture of another '{entity}' ({_words(known)}) than there is now"
            f" ({_words(facts)}): it was deleted and made again. Capture it into another directory."
        )


@dataclass(frozen=True)
class FileSpan:
    """What a captured file holds, by its footer."""

    rows: int
    first_number: int
    last_number: int
    first_time_us: int
    last_time_us: int


def span_of(root: CaptureRoot, path: PurePosixPath) -> FileSpan:
    """Raises JobFailed for what is no captured file."""
    try:
        with root.filesystem.open_input_file(root.full(path)) as source:
            metadata = pq.ParquetFile(source).metadata
            numbers, times = _bounds(metadata, "sequenceNumber"), _bounds(metadata, "enqueuedTime")
    except (pa.ArrowException, KeyError, AttributeError) as error:
        raise JobFailed(f"{root.full(path)} is no file of captured messages: {error}") from error
    return FileSpan(metadata.num_rows, *numbers, *(_microseconds(time) for time in times))


def _bounds(metadata: Any, column: str) -> tuple[Any, Any]:
    at = metadata.schema.to_arrow_schema().get_field_index(column)
    found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    return min(each.min for each in found), max(each.max for each in found)


def _microseconds(time: Any) -> int:
    found: Any = pa.scalar(time, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()
    return int(found)


def read_note(root: CaptureRoot, path: PurePosixPath) -> dict[str, Any]:
    """Empty where there is none. Raises JobFailed when it is damaged."""
    text = root.read_text(path)
    if text is None:
        return {}
    try:
        note = json.loads(text)
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise JobFailed(f"{root.full(path)} is damaged: it is no JSON object.")
    return note


def _words(facts: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(facts.items()))
