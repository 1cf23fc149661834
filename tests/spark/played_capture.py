"""Spark and the bus as a capture meets them, in this process and on a folder: batches that are planned once and
repeated until they are noted, writers built anew for each call, `abort` whenever `commit` raises, and messages that
are gone from the bus as soon as their batch is noted."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from busway_spark.pipeline.capture import capture
from busway_spark.pipeline.capture.capture import CaptureOptions
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import DELTA, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.job import HUB, QUEUE_KIND, SUBSCRIPTION_KIND, TOPIC_KIND, EntityFacts
from tests.spark.capture_rig import NINE, batch, event
from tests.spark.faulty_store import FaultyRoot

T = TypeVar("T")
KINDS = (HUB, QUEUE_KIND, TOPIC_KIND, SUBSCRIPTION_KIND)
#: Partition or fragment, and number.
Key = tuple[int, int]
Tasks = list[list[Key]]
_NAMES = {SUBSCRIPTION_KIND: "orders/Subscriptions/all"}
_BATCH_ROWS = 4
_ROWS = 8
_FRAGMENT_SHIFT = 48
_READ = ["sequenceNumber", "body"]
_MESSAGES = pa.schema(
    [
        pa.field("fragment", pa.int32()),
        pa.field("sequenceNumber", pa.int64()),
        pa.field("enqueuedTime", pa.timestamp("us", tz="UTC")),
        pa.field("body", pa.binary()),
        pa.field("sessionId", pa.string()),
        pa.field("properties", pa.string()),
    ]
)


class PlayedBus:
    """One entity. Two partitions of a hub, or two fragments whose sessions are taken in turn."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entity = EntityFacts(_NAMES.get(kind, "orders"), kind, 7 if kind == HUB else 0)
        half = range(_ROWS // 2)
        first = 0 if kind == HUB else 3 << _FRAGMENT_SHIFT
        self.keys: list[Key] = [
            key for at in half for key in ((0, at), (1 if kind == HUB else 3, first + at))
        ]
        self.settled: set[Key] = set()

    def plan(self, done: set[Key]) -> Tasks:
        """Nothing when all is done. A session is not in the order of numbers."""
        taken = [key for key in self.keys if key not in done][:_BATCH_ROWS]
        if self.kind == HUB:
            tasks = [[key for key in taken if key[0] == partition] for partition in (0, 1)]
        else:
            tasks = [taken[0::2], taken[3::2] + taken[1:2]]
        return [task for task in tasks if task]

    def read(self, task: list[Key]) -> pa.RecordBatch:
        gone = self.settled.intersection(task)
        assert not gone, f"{gone} are read again and are not on the bus any more"
        if self.kind == HUB:
            return batch([event(number, _time(number), partition) for partition, number in task])
        rows = [
            {
                "fragment": fragment,
                "sequenceNumber": number,
                "enqueuedTime": _time(number & 0xFFFF),
                "body": b"%d-%d" % (fragment, number),
                "sessionId": f"s{number % 3}",
                "properties": json.dumps({"n": number}),
            }
            for fragment, number in task
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_MESSAGES)

    def settle(self, tasks: Tasks) -> None:
        """A hub keeps its events."""
        if self.kind != HUB:
            self.settled.update(key for task in tasks for key in task)


def _time(number: int) -> Any:
    """The second batch is over the full hour."""
    return NINE + timedelta(minutes=57, seconds=55 * number)


@dataclass
class PlayedCheckpoint:
    query: str = field(default_factory=lambda: str(uuid4()))
    planned: list[Tasks] = field(default_factory=list)
    #: Batches that Spark knows to be done.
    noted: int = 0


class GivenUp(Exception):
    """Nobody hears any more what a task or a commit has to say."""


class PlayedCapture:
    """Starts as often as a test likes; what lives longer is the bus, the checkpoint and the folder."""

    def __init__(
        self, folder: Path, layout: str, bus: PlayedBus, store: type[CaptureRoot] = FaultyRoot
    ) -> None:
        self.folder = folder
        self.store = store
        self.layout = layout
        self.bus = bus
        self.checkpoint = PlayedCheckpoint()
        self.told: list[Key] = []
        self.lock = ExitStack()
        #: Of the batch that is under way; none between batches.
        self.messages: list[Any] = []
        self.is_given_up = False

    def start(self) -> None:
        """And no more."""
        with ExitStack() as stack:
            self._begin(stack)

    def _begin(self, stack: ExitStack) -> CaptureRoot:
        root = self.store(str(self.folder))
        options = CaptureOptions((self.bus.entity.name,), root.location, layout=self.layout, takes=True)
        stack.enter_context(root.telling())
        self.lock = stack
        capture._begin(stack, root, self.bus.entity, options)
        return root

    def run(self) -> None:
        """Until nothing waits. Raises what a start or a commit has raised."""
        with ExitStack() as stack:
            root = self._begin(stack)
            done = self._done(root)
            while True:
                if self.checkpoint.noted == len(self.checkpoint.planned):
                    tasks = self.bus.plan(done)
                    if not tasks:
                        return
                    self.checkpoint.planned.append(tasks)
                number = self.checkpoint.noted
                tasks = self.checkpoint.planned[number]
                done.update(key for task in tasks for key in task)
                self._batch(number, tasks)
                self.messages = []
                self.checkpoint.noted += 1
                self.told += [key for task in tasks for key in task]
                self.bus.settle(tasks)

    def _done(self, root: CaptureRoot) -> set[Key]:
        """What is planned is not planned again. A new checkpoint of a hub begins behind the captured files."""
        planned = {key for tasks in self.checkpoint.planned for task in tasks for key in task}
        if planned or self.bus.kind != HUB:
            return planned
        positions: dict[str, Any] = capture._captured_positions(root, self.bus.entity.name)
        return {
            (partition, number)
            for partition, number in self.bus.keys
            if number < positions.get(str(partition), {"seqNo": 0})["seqNo"]
        }

    def _batch(self, number: int, tasks: Tasks) -> None:
        self.messages = messages = [None] * len(tasks)
        try:
            for at, task in enumerate(tasks):
                rows: Iterator[pa.RecordBatch] = iter([self.bus.read(task)])
                name = BatchName(self.checkpoint.query, number)
                messages[at] = travelled(self._writer().write_batch(name, rows))
                self._listen()
            self._writer().commit(travelled(messages), number)
            self._listen()
        except Exception as error:
            self._listen()
            try:
                self._writer().abort(travelled(messages), number)
            except Exception as suppressed:
                error.add_note(f"and abort: {suppressed!r}")
            raise

    def _listen(self) -> None:
        if self.is_given_up:
            raise GivenUp

    def give_up(self) -> None:
        """Spark is stopped, or dies, and does not wait for what is under way."""
        self.is_given_up = True
        self.lock.close()
        self._writer().abort(travelled(self.messages), self.checkpoint.noted)

    def _writer(self) -> CaptureStreamWriter:
        """New for each call, as Spark has it."""
        root = self.store(str(self.folder))
        return travelled(CaptureStreamWriter(root, self.bus.entity.name, self.layout, ZSTD))

    # -- what is there

    def lake(self) -> list[Key]:
        """As strangers read it: every file that is no hidden one, or every file of the table."""
        rows = [row for path in self.data_files() for row in pq.ParquetFile(path).read(_READ).to_pylist()]
        found = [tuple(map(int, row["body"].split(b"-"))) for row in rows]
        assert [row["sequenceNumber"] for row in rows] == [number for _, number in found]
        return sorted((partition, number) for partition, number in found)

    def data_files(self) -> list[Path]:
        if self.layout != DELTA:
            return sorted(self.folder.glob("entity=*/**/*.parquet"))
        if not DeltaTable.is_deltatable(str(self.folder)):
            return []
        return [Path(uri) for uri in DeltaTable(str(self.folder)).file_uris()]

    def check(self) -> None:
        """At any moment: nothing twice, nothing gone from the bus or told that is not there."""
        lake = self.lake()
        assert len(set(lake)) == len(lake), "captured twice"
        assert self.bus.settled <= set(lake), "gone from the bus and not captured"
        assert set(self.told) <= set(lake), "told and not captured"

    def check_all(self) -> None:
        missing = set(self.bus.keys) - set(self.lake())
        assert not missing, f"{len(missing)} of {len(self.bus.keys)} lost, {len(self.told)} told"
        assert self.lake() == sorted(self.bus.keys), "captured twice"
        assert sorted(self.told) == sorted(self.bus.keys)
        assert self.bus.settled == (set() if self.bus.kind == HUB else set(self.bus.keys))
        assert self.leftovers() == []

    def leftovers(self) -> list[str]:
        """Notes of what is under way, staged files, texts half written."""
        found = [path for path in (self.folder / "_capture").rglob("*") if path.is_file()]
        known = {"lock", "source.json", "committed.json"}
        return [str(path) for path in found if path.name not in known and path.parent.name != "manifests"]


def travelled(thing: T) -> T:
    """To another process and back."""
    found: T = pickle.loads(pickle.dumps(thing))
    return found
