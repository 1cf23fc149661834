"""`busway pipeline replay`: captured history back into a hub, a queue or a topic.

Theory of operation. The partitions of the history are merged by the times at which messages were enqueued; those
of a partition stay in their order. The first message goes at once and every other one as much later as it came
then, divided by the speed. What is due is sent together. The places that were reached are noted, and a replay that
is started again goes on there. What was stored behind the note is not stored again: on Busway because each step is
noted before the bus decides about it (`ReplayStage`), elsewhere as far as the service can tell (`replay_target`);
there a note is made once a second, when everything before is stored.

How far a replay has come is in one note below the root of the captured files:

    ROOT/_capture/replay/3f9a…/state.json

A replay is known by what it replays and where to: the same call goes on with it. What it may replay is fixed when
it begins, so that messages that are captured meanwhile do not change it. A replay into a bus that stages has a
step in its note as well: rows behind the marks that may have been decided about, or not. In a store of objects the
note is written only over the one that was read or written before, so that a process that slept, and was taken for
dead, cannot go on beside its heir.

With a condition (`where`) Spark evaluates it over all files first and writes down the numbers of the messages that
it holds for, once for a replay, and only these are kept. Without one there is no Spark at all.

    ROOT/_capture/replay/3f9a…/chosen-1/date=2026-11-15/hour=09/partition=3/….parquet
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway.client.errors import ClientError
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.pipeline.captured.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.captured.captured import (
    FOLDERS,
    SCHEMA,
    CapturedFile,
    folder_of,
    note_text,
    parsed_note,
)
from busway_spark.pipeline.captured.captured_files import (
    START,
    History,
    HistoryRow,
    Mark,
    RowSelection,
    captured_frame,
)
from busway_spark.pipeline.captured.object_store import Overtaken, Tag
from busway_spark.pipeline.job import (
    HUB,
    SUBSCRIPTION_KIND,
    EntityFacts,
    JobFailed,
    JobPlace,
    JobProgress,
    find_entity,
)
from busway_spark.pipeline.replay_target import (
    MessageNaming,
    ReplayStage,
    ReplayTarget,
    Sourced,
    new_write,
    target_of,
)
from busway_spark.writing.two_phase import can_stage

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
class ReplayStep:
    """Rows that are decided about together."""

    #: Counted from 1.
    number: int
    #: Of all partitions, behind it.
    marks: dict[int, Mark]
    rows: int


@dataclass
class ReplayState:
    """How far a replay has come, in one note below the root of the captured files."""

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
    step: ReplayStep | None = None
    tag: Tag | None = field(default=None, compare=False)

    @property
    def folder(self) -> PurePosixPath:
        return REPLAYS / self.name

    def mark(self, partition: int) -> Mark:
        return self.marks.get(partition, START)

    def is_over(self, step: ReplayStep) -> None:
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


def _step(found: dict[str, Any] | None) -> ReplayStep | None:
    if found is None:
        return None
    return ReplayStep(int(found["number"]), _marks(found["marks"]), int(found["rows"]))


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
    place: JobPlace, root: CaptureRoot, history: History, where: str | None, state: ReplayState
) -> RowSelection:
    """Raises JobFailed when Spark does not take the condition."""
    if where is None:
        return RowSelection()
    folder = state.folder / f"chosen-{state.run}"
    if not root.exists(folder / _COMPLETE):
        _choose(place, root, history, where, folder)
    return ChosenNumbers(root, folder)


def _choose(place: JobPlace, root: CaptureRoot, history: History, where: str, folder: PurePosixPath) -> None:
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


#: As fast as it goes.
MAX: Final = 0.0
_LOT_ROWS: Final = 1_000
_NOTE_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 1.0
_NAP_S: Final = 0.05
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True)
class ReplayOptions:
    root: str
    #: Whose history.
    entity: str
    #: Where it goes.
    into: str
    since_us: int | None = None
    until_us: int | None = None
    #: How many times faster than it was; MAX without any pause.
    speed: float = 1.0
    #: A condition of Spark SQL on the columns of captured messages.
    where: str | None = None
    #: Message ids as they were, instead of ids that tell repeats.
    keeps_ids: bool = False
    #: Once more, although it is done or begun.
    again: bool = False


@dataclass
class ReplayResult:
    rows: int = 0
    #: Before this run.
    rows_before: int = 0
    seconds: float = 0.0
    is_done: bool = False


def replay(place: JobPlace, options: ReplayOptions, progress: JobProgress) -> ReplayResult:
    """Raises JobFailed."""
    root = CaptureRoot(options.root)
    target = find_entity(place.bus, options.into.strip("/"))
    if target.kind == SUBSCRIPTION_KIND:
        raise JobFailed(f"'{options.into}' is a subscription: messages are sent to its topic.")
    with root.telling():
        history = History(root, options.entity, options.since_us, options.until_us)
    if not history.files:
        raise JobFailed(f"{root.location} holds no messages of '{options.entity}' of that time.")
    name = _name(place, options)
    with (
        root.telling(),
        root.locked(ReplayState(name, 1, {}).folder / "lock", "The same replay is running already."),
    ):
        state = _state(place, root, history, target, options, name)
        if state.is_done:
            progress.tell("This replay is done already; --again replays once more.", rows=state.rows)
            return ReplayResult(0, state.rows, is_done=True)
        _check_hub(target, state)
        _warn(target, state, progress)
        selection = chosen(place, root, history, options.where, state)
        running = _Replay(place, root, history, target, options, state, progress)
        return running.run(selection)


def _name(place: JobPlace, options: ReplayOptions) -> str:
    return replay_name(
        {
            "bus": place.bus.target.authority,
            "entity": options.entity,
            "into": options.into.lower(),
            "since": options.since_us,
            "until": options.until_us,
            "where": options.where,
        }
    )


def _state(
    place: JobPlace,
    root: CaptureRoot,
    history: History,
    target: EntityFacts,
    options: ReplayOptions,
    name: str,
) -> ReplayState:
    """The one that is noted, or a new one, whose write has a new name: nothing of an earlier run passes for it."""
    found = load_state(root, name)
    if found is not None and not options.again:
        return found
    state = ReplayState(name, 1 if found is None else found.run + 1, history.partitions())
    state.tag = None if found is None else found.tag
    if _can_stage(place):
        state.write, state.made_ms = new_write(name), target.created_at_ms
    state.save(root)
    return state


def _can_stage(place: JobPlace) -> bool:
    try:
        return can_stage(place.bus)
    except ClientError as error:
        raise JobFailed(f"The bus cannot be reached: {error}") from error


def _check_hub(target: EntityFacts, state: ReplayState) -> None:
    """What it had is gone with it."""
    if state.write is not None and state.made_ms != target.created_at_ms:
        raise JobFailed(
            f"The hub '{target.name}' was made again since this replay began. Say --again to begin anew."
        )


def _warn(target: EntityFacts, state: ReplayState, progress: JobProgress) -> None:
    if state.write is None and target.kind != HUB and not target.detects_duplicates:
        progress.tell(
            f"'{target.name}' does not detect duplicates: if this is killed, what it sent in its last second is sent"
            " twice.",
            detects_duplicates=False,
        )


@dataclass
class _Pace:
    """When each message is due, on the clock of this run."""

    speed: float
    started_s: float = field(default_factory=time.monotonic)
    first_us: int | None = None

    def wait_s(self, time_us: int) -> float:
        """Until it is due; negative when it is late."""
        if self.first_us is None:
            self.first_us, self.started_s = time_us, time.monotonic()
        if self.speed == MAX:
            return 0.0
        due_s = self.started_s + (time_us - self.first_us) / 1e6 / self.speed
        return due_s - time.monotonic()


class _Replay:
    def __init__(
        self,
        place: JobPlace,
        root: CaptureRoot,
        history: History,
        target: EntityFacts,
        options: ReplayOptions,
        state: ReplayState,
        progress: JobProgress,
    ) -> None:
        self._place = place
        self._root = root
        self._history = history
        self._entity = target
        self._options = options
        self._state = state
        self._progress = progress
        self._naming = MessageNaming(options.entity, state.name, state.run, keeps_ids=options.keeps_ids)
        self._pace = _Pace(options.speed)
        self._result = ReplayResult(rows_before=state.rows)
        self._marks = dict(state.marks)
        self._noted_s = self._told_s = time.monotonic()
        self._told_rows = 0
        self._lateness_s = 0.0
        self._reached_us = 0

    def run(self, selection: RowSelection) -> ReplayResult:
        started_s = time.monotonic()
        try:
            asyncio.run(self._run(selection))
        except ClientError as error:
            raise JobFailed(
                f"'{self._entity.name}' cannot be sent to: {error} Start the same replay again to go on."
            ) from error
        self._result.seconds = time.monotonic() - started_s
        return self._result

    async def _run(self, selection: RowSelection) -> None:
        async with self._place.bus.client() as client:
            target = self._target(client)
            await target.open()
            try:
                if self._state.step is not None:
                    await self._repeat(target, self._state.step, selection)
                ended = await self._send_all(target, selection)
                await self._note(target, is_done=ended)
                if ended:
                    await target.end()
            finally:
                # What the server refused is told by the error that is on its way.
                with suppress(ClientError):
                    await target.close()
        self._tell()

    def _target(self, client: ServiceBusClient) -> ReplayTarget:
        bus, state = self._place.bus, self._state
        if state.write is None:
            return target_of(client, bus, self._entity, self._naming, state.counts)
        return ReplayStage(bus, self._entity, self._naming, state.write, state.steps)

    async def _repeat(self, target: ReplayTarget, step: ReplayStep, selection: RowSelection) -> None:
        """The step of the note: the same rows under the same number, whether it was decided or not."""
        rows = self._merged(selection, step.marks)
        while lot := list(islice(rows, _LOT_ROWS)):
            await target.put(lot)
        await target.flush()
        if await target.decide():
            self._result.rows += step.rows
        else:
            self._result.rows_before += step.rows
        self._state.is_over(step)
        self._marks = dict(step.marks)

    async def _send_all(self, target: ReplayTarget, selection: RowSelection) -> bool:
        """False when somebody stopped it."""
        lot: list[Sourced] = []
        for partition, row in self._merged(selection, self._state.ends):
            if len(lot) >= _LOT_ROWS:
                await self._send(target, lot)
                lot = []
            if self._options.speed != MAX and self._pace.wait_s(row.time_us) > 0:
                if lot:
                    await self._send(target, lot)
                    lot = []
                await self._wait(target, row)
            if self._progress.is_stopping:
                return False
            lot.append((partition, row))
        if lot:
            await self._send(target, lot)
        return True

    def _merged(self, selection: RowSelection, ends: Mapping[int, Mark]) -> Iterator[Sourced]:
        """By time; which one comes next depends on nothing but the marks."""
        streams = [self._sourced(partition, end, selection) for partition, end in ends.items()]
        return heapq.merge(*streams, key=lambda each: (each[1].time_us, each[0]))

    def _sourced(self, partition: int, end: Mark, selection: RowSelection) -> Iterator[Sourced]:
        for row in self._history.rows(partition, self._state.mark(partition), end, selection):
            yield partition, row

    async def _send(self, target: ReplayTarget, lot: list[Sourced]) -> None:
        last = lot[-1][1]
        self._lateness_s = max(0.0, -self._pace.wait_s(last.time_us)) if self._options.speed != MAX else 0.0
        await target.put(lot)
        for partition, row in lot:
            self._marks[partition] = Mark(_hour(row), row.number)
        self._reached_us = last.time_us
        self._result.rows += len(lot)
        now_s = time.monotonic()
        is_due = target.is_staged and self._options.speed != MAX  # and nobody sees it before
        if is_due or now_s - self._noted_s >= _NOTE_EVERY_S:
            await self._note(target)
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._tell()

    async def _wait(self, target: ReplayTarget, row: HistoryRow) -> None:
        """Until the row is due; what was sent is noted meanwhile."""
        while not self._progress.is_stopping:
            left_s = self._pace.wait_s(row.time_us)
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, _NAP_S))
            if time.monotonic() - self._noted_s >= _NOTE_EVERY_S and self._marks != self._state.marks:
                await self._note(target)

    async def _note(self, target: ReplayTarget, *, is_done: bool = False) -> None:
        state = self._state
        state.counts = await target.flush()
        rows = self._result.rows_before + self._result.rows
        if target.is_staged and self._marks != state.marks:
            state.step = ReplayStep(state.steps + 1, dict(self._marks), rows - state.rows)
            state.save(self._root)
            await target.decide()
            state.is_over(state.step)
        state.marks, state.rows = dict(self._marks), rows
        if is_done or not target.is_staged:
            state.is_done = self._result.is_done = is_done
            state.save(self._root)
        self._noted_s = time.monotonic()

    def _tell(self) -> None:
        now_s, rows = time.monotonic(), self._result.rows
        rate = (rows - self._told_rows) / max(now_s - self._told_s, 1e-3)
        reached = datetime.fromtimestamp(self._reached_us / 1e6, UTC).isoformat(timespec="seconds")
        late = f", {self._lateness_s:.1f} s late" if self._options.speed != MAX else ""
        self._progress.tell(
            f"{self._options.entity} into {self._entity.name}: {self._state.rows:,} replayed, {rate:,.0f}/s, at"
            f" {reached}{late}",
            replayed=self._state.rows,
            rows_per_second=round(rate),
            reached=reached,
            late_seconds=round(self._lateness_s, 3),
        )
        self._told_s, self._told_rows = now_s, rows


def _hour(row: HistoryRow) -> int:
    return row.time_us // _HOUR_US
