"""Entities that are written to in two phases, on SQLite files whose disk fails when told to, and what others see.

One world is one process. Time is a manual clock, so that whatever waits for a retry comes as soon as the test says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.message.event_chunk import Chunk
from busway.model.descriptions import (
    Description,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.staging.decider import WriteName
from busway.staging.decisions import STREAM
from busway.staging.stagings import PartName, Stagings
from busway.store.contract import StoreError, StoreState
from busway.store.sqlite.store import SqliteStore
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.store_contract.faulty_disk import FaultyDisk
from tests.unit.broker.topic_bench import Seen, encoded
from tests.unit.staging.staging_bench import everybody, leftovers_in, part_of, stage_id

T = TypeVar("T")

TARGET: Final = "target"
#: Real time, far more than anything here needs.
_WAIT_S_MAX: Final = 100.0
_CHECKPOINT_BYTES: Final = 60_000
_TRIES_MAX: Final = 200
PARTS: Final = 2
PART_ROWS: Final = 3


class DeadWorld(Exception):
    """The process would not have come so far."""


class StagingWorld:
    """`disk`: None for the machine's own."""

    def __init__(self, folder: Path, disk: FaultyDisk | None, store_count: int) -> None:
        self.clock = ManualClock()
        self._disk = disk
        self.stores = [
            SqliteStore(
                f"store-{number}",
                folder / f"store-{number}.db",
                self.clock,
                reserve_bytes=0,
                space_low_bytes=0,
                checkpoint_bytes=_CHECKPOINT_BYTES,
                read_threads=1,
                vfs=None if disk is None else disk.name,
            )
            for number in range(store_count)
        ]
        self.namespace = Namespace(
            "bus", self.stores, self.clock, SeededEntropy(), Limits(partition_count=4), root_key="k" * 43
        )
        self.hubs = EventHubs(self.namespace, self.clock, SeededEntropy(3))
        self.stagings = Stagings(self.namespace, self.hubs, PayloadCodec(SeededEntropy(4)))

    async def open(self) -> None:
        await self.namespace.open()

    async def close(self) -> None:
        await self.namespace.close()

    def has_failed(self) -> bool:
        return any(store.state is not StoreState.OPEN for store in self.stores)

    # -- a writer, as Spark's tasks and driver are

    async def stage(self, stage: int, first: int, *, is_dying: bool) -> None:
        """A task: all parts of a stage, each until it is answered."""
        for part in range(PARTS):
            numbers = range(first + part * PART_ROWS, first + (part + 1) * PART_ROWS)
            body = part_of(*[encoded(f"row {number}", message_id=f"{number}") for number in numbers])
            tries = 0

            async def send(part: int = part, body: bytes = body) -> object:
                nonlocal tries
                tries += 1
                name = PartName(stage_id(stage), part, is_again=tries > 1)
                return await self.stagings.stage(WriteName("query", 0, STREAM), name, TARGET, None, body)

            await self._insist(send, is_dying=is_dying)

    async def decide(self, stages: dict[int, int], *, is_dying: bool) -> bool:
        """The driver's commit; whether the batch was known."""
        rows = {stage_id(stage): count for stage, count in stages.items()}
        decided = await self._insist(
            lambda: self.stagings.decide(WriteName("query", 0, STREAM), rows, everybody), is_dying=is_dying
        )
        return decided.is_known

    async def _insist(self, action: Callable[[], Awaitable[T]], *, is_dying: bool) -> T:
        for _ in range(_TRIES_MAX):
            try:
                return await self._watched(action())
            except BrokerError:
                if is_dying:
                    raise DeadWorld from None
            self._tick()
            await asyncio.sleep(0.0005)
        raise AssertionError("the server stays busy")

    async def _watched(self, action: Awaitable[T]) -> T:
        task = asyncio.ensure_future(action)
        await self._until(task.done, "an answer never came")
        return task.result()

    # -- what others see

    async def seen(self) -> list[list[str]]:
        """By place: a queue, each subscription, a hub."""
        if self.hubs.exists(TARGET):
            return [await self._events()]
        description = self.namespace.description(TARGET)
        paths = [TARGET]
        if isinstance(description, TopicDescription):
            paths = [each.path for each in self.namespace.subscriptions(TARGET)]
        return [await self._messages(path) for path in paths]

    async def seen_at_rest(self) -> list[list[str]]:
        """Of stores that are all there, before and after the look."""
        for _ in range(_TRIES_MAX):
            await self.until_at_rest()
            with contextlib.suppress(StoreError, BrokerError):
                for store in self.stores:
                    await store.flush()
                seen = await self.seen()
                if not self.has_failed():
                    return seen
        raise AssertionError("a store never stays")

    async def _messages(self, path: str) -> list[str]:
        return [Seen(message).body for message in await self.namespace.queue(path).inlet.peek(0, 250)]

    async def _events(self) -> list[str]:
        found: list[str] = []
        for log in self.hubs.hub(TARGET).logs():
            for data in (await log.store.chunks(log.key, 0, 1 << 30)).chunks:
                chunk = Chunk(data)
                numbers = [n for n in range(chunk.count) if chunk.number(n) < log.durable_end]
                found += [chunk.data[chunk.body_at(n) : chunk.end(n)].decode() for n in numbers]
        return found

    async def leftovers(self) -> list[str]:
        return [each for store in self.stores for each in await leftovers_in(store)]

    # -- time

    async def until_at_rest(self) -> None:
        """Stores that failed come back, and what is decided is published."""
        await self._until(self._is_at_rest, "publication never ends")

    async def until_published_or_failed(self) -> None:
        await self._until(lambda: self.has_failed() or self._is_published(), "publication never ends")

    def _is_at_rest(self) -> bool:
        self._tick()
        is_open = all(row["state"] == "open" for row in self.namespace.stores.shown())
        return is_open and not self.has_failed() and self._is_published()

    def _is_published(self) -> bool:
        return all(each.is_published and not each.stages for each in self.stagings.decisions.all())

    def _tick(self) -> None:
        self.clock.advance(0.5)
        self.namespace.tick()

    async def _until(self, happened: Callable[[], bool], otherwise: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAIT_S_MAX
        while not happened():
            assert loop.time() < deadline, otherwise
            await asyncio.sleep(0.0005)


async def make_queue(world: StagingWorld) -> None:
    await _create(world, QueueDescription(TARGET))


async def make_queue_without_duplicates(world: StagingWorld) -> None:
    await _create(world, QueueDescription(TARGET, requires_duplicate_detection=True))


async def make_partitioned_queue(world: StagingWorld) -> None:
    await _create(world, QueueDescription(TARGET, enable_partitioning=True))


async def make_topic(world: StagingWorld) -> None:
    names = ("one", "two")
    subscriptions = [SubscriptionDescription(f"{TARGET}/Subscriptions/{name}") for name in names]
    await _create(world, TopicDescription(TARGET), *subscriptions)


async def make_hub(world: StagingWorld) -> None:
    await world.hubs.create(EventHubDescription(TARGET, partition_count=4))


async def _create(world: StagingWorld, *descriptions: Description) -> None:
    await world.namespace.create([NewEntity(description) for description in descriptions])
