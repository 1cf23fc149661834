"""The formats with faults: a writer that, at a chosen place in a chosen batch, fails, does harm or waits for it.

    .format("eventhubs-faulty").option("fault", Fault(…).text)

The place is `rows` (in a task, which has been given some of its rows), `task` (all of its rows are written, and Spark
does not know it) or `commit` (on the driver: all tasks have written, and Spark has not noted the batch). Each fault
strikes once, also over restarts: a file remembers.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_eventhubs import DefaultSource as EventHubs
from pyspark_servicebus import DefaultSource as ServiceBus

ROWS = "rows"
TASK = "task"
COMMIT = "commit"
KILL_EXECUTOR = "kill the executor"
KILL_DRIVER = "kill the driver"
WAIT = "wait"
FAIL = "fail"
#: Of jobs, whose batches have no numbers.
ANY = -1
WAIT_S_MAX = 90.0


@dataclass(frozen=True)
class Fault:
    #: Names the file that remembers it.
    name: str
    place: str
    batch: int
    act: str
    folder: str
    #: Strikes when so many faults of the folder are in place: several queries can be hit at once.
    together: int = 1

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def reached(self) -> Path:
        return Path(self.folder) / f"{self.name}.reached"

    def strike(self, place: str, batch: int) -> None:
        if place != self.place or self.batch not in (batch, ANY) or not self._is_first():
            return
        if self.act == FAIL:
            raise RuntimeError(f"a fault at {place}")
        if self.act == WAIT:
            _wait_until(lambda: (Path(self.folder) / "go-on").exists())
            return
        _wait_until(lambda: len(list(Path(self.folder).glob("*.reached"))) >= self.together)
        _kill_java(with_parent=self.act == KILL_DRIVER)

    def _is_first(self) -> bool:
        try:
            self.reached.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _wait_until(holds: Any) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("nobody did what the fault waits for")
        time.sleep(0.02)


def _kill_java(*, with_parent: bool) -> None:
    """kill -9 of the Java that this process works for; of a driver, also of the program that started it."""
    pid = os.getppid()
    while pid > 1 and Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = _parent(pid)
    if pid <= 1:
        raise RuntimeError("this process does not work for a Java")
    parent = _parent(pid)
    os.kill(pid, signal.SIGKILL)
    if with_parent:
        os.kill(parent, signal.SIGKILL)
    time.sleep(WAIT_S_MAX)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class FaultyWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: DataSourceStreamWriter, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        written = self._inner.write(self._passed(iterator, batch))
        self._fault.strike(TASK, batch)
        return written

    def _passed(self, rows: Iterator[Any], batch: int) -> Iterator[Any]:
        """Strikes behind the first rows."""
        for each in rows:
            yield each
            self._fault.strike(ROWS, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.commit(messages, batchId)
        self._fault.strike(COMMIT, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.abort(messages, batchId)


class FaultyJobWriter(DataSourceArrowWriter):
    """Of batch jobs, also inside of foreachBatch."""

    def __init__(self, inner: DataSourceWriter, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        written = self._inner.write(self._passed(iterator))
        self._fault.strike(TASK, ANY)
        return written

    def _passed(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Strikes behind the first rows."""
        for each in rows:
            yield each
            self._fault.strike(ROWS, ANY)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(messages)
        self._fault.strike(COMMIT, ANY)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.abort(messages)


def _without_fault(options: MutableMapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() != "fault"}


class FaultyEventHubs(EventHubs):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(_without_fault(options))
        self._fault = Fault(**json.loads(options["fault"]))

    @classmethod
    def name(cls) -> str:
        return "eventhubs-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FaultyWriter(super().streamWriter(schema, overwrite), self._fault)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FaultyJobWriter(super().writer(schema, overwrite), self._fault)


class FaultyServiceBus(ServiceBus):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(_without_fault(options))
        self._fault = Fault(**json.loads(options["fault"]))

    @classmethod
    def name(cls) -> str:
        return "servicebus-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FaultyWriter(super().streamWriter(schema, overwrite), self._fault)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FaultyJobWriter(super().writer(schema, overwrite), self._fault)
