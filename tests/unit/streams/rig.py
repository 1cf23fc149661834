"""An event hub on memory stores under a manual clock, and readers that remember what they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.runtime import BrokerRuntime
from busway.message.event_chunk import Chunk, ChunkBuilder
from busway.message.event_record import Event, event_of
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.store.contract import ChunkHead, ChunkPage, Counters, FragmentKey, FragmentRow, Store, StoreError
from busway.streams.cursor import Cursor, EventReader
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import EventHubDescription, RetentionDescription
from busway.streams.partition_log import PartitionLog
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.quiet_loop import is_quiet

GROUP = "$Default"


class DamagingStore(MemoryStore):
    """Counts the reads of chunks, can refuse them, and can show some as damaged."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.reads = 0
        self.head_reads = 0
        self.refuses_reads = False
        #: Those whose chunks cannot be read.
        self.refused_logs: set[FragmentKey] = set()
        #: First numbers of damaged chunks.
        self.damaged: set[int] = set()

    async def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        self.reads += 1
        if self.refuses_reads or log in self.refused_logs:
            raise StoreError("The test wanted this read to fail.")
        page = await super().chunks(log, from_number, bytes_max)
        if not self.damaged:
            return page
        good: list[bytes] = []
        bad: list[ChunkHead] = []
        for data in page.chunks:
            chunk = Chunk(data)
            if chunk.first_number in self.damaged:
                bad.append(_head_of(chunk))
            else:
                good.append(data)
        return ChunkPage(good, bad, page.more)

    async def chunk_heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        self.head_reads += 1
        return await super().chunk_heads(log, from_number, limit)


def _head_of(chunk: Chunk) -> ChunkHead:
    last = chunk.count - 1
    return ChunkHead(
        chunk.first_number, chunk.last_number, chunk.at_ms(0), chunk.at_ms(last), chunk.count, len(chunk.data)
    )


class Recorder(EventReader):
    """A reader with credit; keeps what it reads."""

    def __init__(self, credit: int = 0, name: str = "", epoch: int = -1, bytes_max: int = 1 << 30) -> None:
        self.credit = credit
        self.name = name
        self.epoch = epoch
        self.bytes_max = bytes_max
        self.cursor: Cursor | None = None
        self.records: list[bytes] = []
        self.numbers: list[int] = []
        self.times: list[int] = []
        self.runs: list[int] = []
        self.wakes = 0
        self.evicted_with: list[BrokerError] = []

    def wake(self) -> None:
        self.wakes += 1
        self.pull()

    def pull(self) -> None:
        cursor = self.cursor
        while cursor is not None and self.credit > 0:
            run = cursor.next_run(self.credit, self.bytes_max)
            if run is None:
                return
            self.credit -= run.count
            self.runs.append(run.count)
            for index in range(run.first, run.end):
                self.records.append(run.chunk.record(index))
                self.numbers.append(run.chunk.number(index))
                self.times.append(run.chunk.at_ms(index))

    def bodies(self) -> list[str]:
        return [body_of(record) for record in self.records]

    def evict(self, error: BrokerError) -> None:
        self.evicted_with.append(error)
        if self.cursor is not None:
            self.cursor.close()


class Told:
    """An `AppendDone` that remembers."""

    def __init__(self) -> None:
        self.outcomes: list[BrokerError | None] = []

    def __call__(self, outcome: BrokerError | None) -> None:
        assert not self.outcomes, "told twice"
        self.outcomes.append(outcome)

    @property
    def is_told(self) -> bool:
        return bool(self.outcomes)

    @property
    def error(self) -> BrokerError | None:
        assert self.outcomes, "not told yet"
        return self.outcomes[0]


class HubRig:
    """One hub with everything it needs. Its partitions lie over the stores in turn."""

    hub: EventHub

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        partitions: int = 1,
        stores: int = 1,
        batch_bytes_max: int = 32 << 20,
        retention: RetentionDescription | None = None,
        **description: Any,
    ) -> None:
        self.clock = ManualClock()
        self.limits = Limits() if limits is None else limits
        plain = EventHubDescription(
            "clicks", partition_count=partitions, retention=retention or RetentionDescription()
        )
        self.description = replace(plain, **description)
        self.stores = [
            DamagingStore(f"store-{index}", batch_bytes_max=batch_bytes_max) for index in range(stores)
        ]
        self.timers = Timers()
        self.tasks: set[asyncio.Task[None]] = set()
        self.store_failures: list[StoreError] = []
        self.runtime = self._new_runtime()

    @property
    def store(self) -> DamagingStore:
        return self.stores[0]

    @property
    def log(self) -> PartitionLog:
        return self.hub.partition("0")

    def _new_runtime(self) -> BrokerRuntime:
        self.timers = Timers()
        budget = WindowBudget(self.limits.window_bytes_max)
        return BrokerRuntime(
            self.clock,
            SeededEntropy(),
            self.limits,
            self.timers,
            budget,
            self.spawn,
            self._note_store_failure,
        )

    def _note_store_failure(self, _store: Store, error: StoreError) -> None:
        self.store_failures.append(error)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "background work failed", "exception": task.exception()}
            )

    # -- life

    async def open(self) -> HubRig:
        asyncio.get_running_loop().set_exception_handler(_fail_loudly)
        for store in self.stores:
            await store.open()
        for index in range(self.description.partition_count):
            store = self._store_of(index)
            row = FragmentRow(store.next_fragment_key(), f"clicks {index}", index, Counters())
            store.batch().fragments_created.append(row)
        for store in self.stores:
            await store.flush()
        await self.load()
        return self

    def _store_of(self, index: int) -> DamagingStore:
        return self.stores[index % len(self.stores)]

    async def load(self) -> None:
        """A new life: logs are made from what the stores have."""
        self.runtime = self._new_runtime()
        logs = [await self.new_log(index) for index in range(self.description.partition_count)]
        self.hub = EventHub(self.description, logs, [GROUP, "second"], self.runtime)

    async def new_log(self, index: int) -> PartitionLog:
        store = self._store_of(index)
        row = (await store.fragments())[index // len(self.stores)]
        return PartitionLog(row.key, index, row.counters, store, self.description, self.runtime)

    async def restart(self) -> None:
        """The process dies and comes back."""
        await self.calm()
        for store in self.stores:
            store.crash()
            await store.open()
        await self.load()

    async def reopen(self) -> None:
        """The store failed; its owner opens it again and makes the log anew."""
        await self.calm()
        await self.store.reopen()
        self.hub.lose_partition(0, BrokerError("The store failed."))
        self.hub.regain_partition(0, await self.new_log(0))

    async def turns(self, count: int) -> None:
        """Of the loop, while something is held up."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def calm(self) -> None:
        """Lets commits, reads and background work come to an end; pauses end at once."""
        for _ in range(40):
            await asyncio.sleep(0)
            if is_quiet():
                break
        for _ in range(4000):
            if not self.tasks:
                return
            deadline = self.timers.next_deadline()
            if deadline is not None and deadline <= self.clock.monotonic() + 0.1:
                self.clock.advance(max(0.0, deadline - self.clock.monotonic()))
                self.timers.run(self.clock.monotonic())
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Time passes; everything it brings happens."""
        self.clock.advance(seconds)
        for _ in range(60):
            self.timers.run(self.clock.monotonic())
            await self.calm()
            deadline = self.timers.next_deadline()
            if deadline is None or deadline > self.clock.monotonic():
                return

    # -- what clients do

    def append_later(self, *texts: str, key: str | None = None, log: PartitionLog | None = None) -> Told:
        told = Told()
        (log or self.log).append([event(text, key) for text in texts], told)
        return told

    async def append(self, *texts: str, key: str | None = None) -> BrokerError | None:
        told = self.append_later(*texts, key=key)
        await self.calm()
        return told.error

    async def fill(self, *texts: str, key: str | None = None) -> None:
        """Each in a chunk of its own."""
        for text in texts:
            assert await self.append(text, key=key) is None

    def reader(self, from_number: int = 0, credit: int = 1000, **options: Any) -> Recorder:
        recorder = Recorder(credit, **options)
        recorder.cursor = self.log.cursor(from_number, recorder)
        recorder.pull()
        return recorder

    async def read(self, from_number: int = 0, credit: int = 100_000) -> Recorder:
        """What there is, by a reader that leaves again."""
        recorder = self.reader(from_number, credit)
        await self.calm()
        assert recorder.cursor is not None
        recorder.cursor.close()
        return recorder

    async def numbers(self) -> list[int]:
        return (await self.read()).numbers


def _fail_loudly(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise AssertionError(f"{context.get('message')}: {context.get('exception')!r}") from context.get(
        "exception"
    )


def event(text: str, key: str | None = None) -> Event:
    """One data section."""
    body = text.encode()
    made = event_of(b"\x00Su\xb0" + len(body).to_bytes(4, "big") + body)
    if key is not None:
        made.set_partition_key(key)
    return made


def body_of(record: bytes) -> str:
    """Of a record whose event was made by `event`."""
    at = record.rindex(b"\x00Su\xb0")
    return record[at + 8 :].decode()


def chunk_of(*records: tuple[int, int, bytes]) -> Chunk:
    """(number, time, record)"""
    builder = ChunkBuilder()
    for number, at_ms, record in records:
        builder.add(number, at_ms, record, 0)
    return Chunk(builder.data())


def play(
    scenario: Callable[[HubRig], Awaitable[None]], limits: Limits | None = None, **options: Any
) -> HubRig:
    """Runs one scenario on a fresh hub."""
    rig = HubRig(limits, **options)

    async def run() -> None:
        await rig.open()
        await scenario(rig)
        await rig.calm()
        assert not rig.tasks, "background work does not end"

    asyncio.run(run())
    return rig
