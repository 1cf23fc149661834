"""How far a replay has come, in one note below the root of the captured files.

    ROOT/_capture/replay/3f9a…/state.json

A replay is known by what it replays and where to: the same call goes on with it. What it may replay is fixed when it
begins, so that messages that are captured meanwhile do not change it.

A replay into a bus that stages (`StagedTarget`) has a step in its note as well: rows behind the marks that may have
been decided about, or not. In a store of objects the note is written only over the one that was read or written
before, so that a process that slept, and was taken for dead, cannot go on beside its heir.

The messages for which a condition of Spark SQL holds are found once for a replay, and only their numbers are kept:

    ROOT/_capture/replay/3f9a…/chosen-1/date=2026-11-15/hour=09/partition=3/….parquet
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.captured.captured import FOLDERS, SCHEMA, CapturedFile, folder_of
from busway_spark.pipeline.captured.captured_files import captured_frame
from busway_spark.pipeline.captured.captured_history import START, History, Mark, RowSelection
from busway_spark.pipeline.captured.notes import note_text, parsed_note
from busway_spark.pipeline.job import JobFailed, Place
from busway_spark.pipeline.places.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.places.object_store import Overtaken, Tag

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

REPLAYS: Final = NOTES / "replay"
_STATE: Final = "state.json"
#: Of notes without and with steps: an earlier version must not go on with the latter.
_SENT: Final = 1
_STAGED: Final = 2
_NUMBER: Final = "sequenceNumber"
#: Written by Spark when all files are.
_COMPLETE: Final = "_SUCCESS"
_WORDS_MAX: Final = 600


@dataclass(frozen=True)
class Step:
    """Rows that are decided about together."""

    #: Counted from 1.
    number: int
    #: Of all partitions, behind it.
    marks: dict[int, Mark]
    rows: int


@dataclass
class ReplayState:
    name: str
    run: int
    #: By source partition: where the replay ends, and how far it has come.
    ends: dict[int, Mark]
    marks: dict[int, Mark] = field(default_factory=dict)
    #: By partition of the hub that it goes into: events stored up to the marks.
    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    is_done: bool = False
    #: The bus knows it by this name; None where nothing is staged.
    write: str | None = None
    #: Of a hub: when it was made.
    made_ms: int = 0
    #: Steps up to the marks.
    steps: int = 0
    #: The one behind them, of which is not known whether it was decided.
    step: Step | None = None
    tag: Tag | None = field(default=None, compare=False)

    @property
    def folder(self) -> PurePosixPath:
        return REPLAYS / self.name

    def mark(self, partition: int) -> Mark:
        return self.marks.get(partition, START)

    def is_over(self, step: Step) -> None:
        """It was decided."""
        self.marks, self.rows, self.steps = step.marks, self.rows + step.rows, step.number
        self.step = None

    def save(self, root: CaptureRoot) -> None:
        """Raises JobFailed when another process has taken over."""
        path, text = self.folder / _STATE, self._text()
        if root.objects is None:
            root.write_text(path, text)
            return
        try:
            self.tag = root.objects.put_if(root.key(path), text.encode(), self.tag)
        except Overtaken as error:
            raise JobFailed(
                "Another process goes on with this replay, because this one was silent for too long. Nothing is lost."
            ) from error

    def _text(self) -> str:
        facts: dict[str, object] = {
            "run": self.run,
            "ends": self.ends,
            "marks": self.marks,
            "counts": self.counts,
            "rows": self.rows,
            "done": self.is_done,
            "writing": uuid4().hex,  # no two are alike
        }
        if self.write is None:
            return note_text(facts, _SENT)
        step = None if self.step is None else asdict(self.step)
        more = {"write": self.write, "made_ms": self.made_ms, "steps": self.steps, "step": step}
        return note_text({**facts, **more}, _STAGED)


def replay_name(facts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def load_state(root: CaptureRoot, name: str) -> ReplayState | None:
    """Raises JobFailed when it is damaged."""
    path = REPLAYS / name / _STATE
    data, tag = _read(root, path)
    if data is None:
        return None
    note = parsed_note(root, path, data, (_SENT, _STAGED))
    try:
        state = ReplayState(
            name,
            int(note["run"]),
            _marks(note["ends"]),
            _marks(note["marks"]),
            {str(partition): int(count) for partition, count in note["counts"].items()},
            int(note["rows"]),
            bool(note["done"]),
            tag=tag,
        )
        if "write" in note:
            state.write, state.made_ms = str(note["write"]), int(note["made_ms"])
            state.steps, state.step = int(note["steps"]), _step(note["step"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFailed(f"{root.full(path)} is damaged; remove it to begin anew.") from error
    return state


def _read(root: CaptureRoot, path: PurePosixPath) -> tuple[bytes | None, Tag | None]:
    if root.objects is None:
        return root.read_bytes(path), None
    found = root.objects.get(root.key(path))
    return (None, None) if found is None else (found.data, found.tag)


def _step(found: dict[str, Any] | None) -> Step | None:
    if found is None:
        return None
    return Step(int(found["number"]), _marks(found["marks"]), int(found["rows"]))


def _marks(found: dict[str, Any]) -> dict[int, Mark]:
    return {int(partition): Mark(int(hour), int(number)) for partition, (hour, number) in found.items()}


class ChosenNumbers(RowSelection):
    def __init__(self, root: CaptureRoot, folder: PurePosixPath) -> None:
        self._root = root
        self._folder = folder

    def numbers(self, file: CapturedFile) -> NDArray[np.int64]:
        place = self._folder.joinpath(*folder_of(file.entity, file.hour, file.partition).parts[1:])
        found = [self._read(path) for path, _ in self._root.files(place) if path.suffix == ".parquet"]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _read(self, path: PurePosixPath) -> NDArray[np.int64]:
        with self._root.filesystem.open_input_file(self._root.full(path)) as source:
            numbers: Any = pq.ParquetFile(source).read([_NUMBER]).column(0).to_numpy()
        return np.asarray(numbers, np.int64)


def chosen(
    place: Place, root: CaptureRoot, history: History, where: str | None, state: ReplayState
) -> RowSelection:
    """Raises JobFailed when Spark does not take the condition."""
    if where is None:
        return RowSelection()
    folder = state.folder / f"chosen-{state.run}"
    if not root.exists(folder / _COMPLETE):
        _choose(place, root, history, where, folder)
    return ChosenNumbers(root, folder)


def _choose(place: Place, root: CaptureRoot, history: History, where: str, folder: PurePosixPath) -> None:
    from pyspark.errors import PySparkException

    spark = place.session("replay")
    try:
        rows = captured_frame(spark, root, history.files, history_schema()).where(where)
        chosen_rows = rows.select("date", "hour", "partition", _NUMBER)
        chosen_rows.write.mode("overwrite").partitionBy("date", "hour", "partition").parquet(
            f"{root.spark_location}/{folder}"
        )
    except PySparkException as error:
        raise JobFailed(f"The condition '{where[:200]}' cannot be used: {str(error)[:_WORDS_MAX]}") from error


def history_schema() -> StructType:
    """As Spark reads captured files: with the folders' columns, the hour as it is written."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    folders = [StructField(name, IntegerType() if name == "partition" else StringType()) for name in FOLDERS]
    return StructType([*from_arrow_schema(SCHEMA).fields, *folders])
