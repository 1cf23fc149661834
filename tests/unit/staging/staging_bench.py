"""A namespace with queues, topics, hubs and stagings under a manual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from struct import pack

from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.message.event_chunk import Chunk
from busway.model.errors import ServerBusy
from busway.model.limits import Limits
from busway.staging.decider import Decided, WriteName
from busway.staging.decisions import JOB, STREAM, WRITE
from busway.staging.stage_table import Stage
from busway.staging.stagings import PartName, Stagings
from busway.store.contract import Store
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.harness.manual_clock import SeededEntropy
from tests.harness.scene import play
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded


def part_of(*payloads: bytes) -> bytes:
    return b"".join(pack("<I", len(payload)) + payload for payload in payloads)


def texts(first: int, count: int, **fields: object) -> list[bytes]:
    return [encoded(f"row {number}", **fields) for number in range(first, first + count)]


def everybody(_paths: Iterable[str]) -> None:
    """Whoever asks may do it."""


def stage_id(number: int) -> str:
    return f"{number:032x}"


class StagingBench(TopicBench):
    hubs: EventHubs
    stagings: Stagings

    def new_namespace(self, **options: object) -> Namespace:
        namespace = super().new_namespace(**options)
        self.hubs = EventHubs(namespace, self.clock, self.entropy)
        self.stagings = Stagings(namespace, self.hubs, PayloadCodec(SeededEntropy(7)))
        return namespace

    async def crash(self) -> None:
        """The process dies; another one begins on what the stores have."""
        for store in self.stores:
            store.crash()
            store.release_commits()
        await self.namespace.background.close()
        self.namespace = self.new_namespace()
        await self.namespace.open()

    async def hub(self, path: str, partitions: int = 1) -> None:
        await self.hubs.create(EventHubDescription(path, partition_count=partitions))

    # -- a writer

    async def stage(
        self,
        entity: str,
        stage: int,
        *payloads: bytes,
        part: int = 0,
        batch: int = 0,
        write: str = "query",
        again: bool = False,
        kind: str = STREAM,
        partition: str | None = None,
    ) -> Stage | None:
        name, part_name = WriteName(write, batch, kind), PartName(stage_id(stage), part, again)
        return await self.stagings.stage(name, part_name, entity, partition, part_of(*payloads))

    async def decide(
        self, stages: Mapping[int, int], batch: int = 0, write: str = "query", kind: str = STREAM
    ) -> Decided:
        name = WriteName(write, batch, kind)
        return await self.stagings.decide(
            name, {stage_id(each): rows for each, rows in stages.items()}, everybody
        )

    async def drop(self, stage: int, batch: int = 0, write: str = "query") -> bool:
        return await self.stagings.drop(write, batch, stage_id(stage), everybody)

    async def publish_all(self) -> None:
        """Until nothing is under way that needs no time."""
        await settle(400)

    # -- what others see

    async def rows(self, path: str) -> list[str]:
        """In order; of an entity with several fragments sorted."""
        return await self.bodies(path)

    async def events(self, path: str) -> list[str]:
        hub = self.hubs.hub(path)
        found: list[str] = []
        for log in hub.logs():
            page = await log.store.chunks(log.key, 0, 1 << 30)
            for data in page.chunks:
                chunk = Chunk(data)
                for index in range(chunk.count):
                    if chunk.number(index) < log.durable_end:
                        found.append(chunk.data[chunk.body_at(index) : chunk.end(index)].decode())
        return found

    async def leftovers(self) -> list[str]:
        """What stores still hold of stages and decisions."""
        found: list[str] = []
        for store in self.stores:
            found += await leftovers_in(store)
        return found

    def is_clean(self) -> bool:
        """Nothing in memory either."""
        stagings = self.stagings
        return (
            not stagings.table.stages
            and stagings.table.undecided_bytes == 0
            and not self.namespace.runtime.reserved_bytes
            and stagings.decider.publisher.waiting_logs() == 0
        )


async def leftovers_in(store: Store) -> list[str]:
    rows = (await store.catalogue())[1]
    found = [key for key in rows if key.startswith(("stage:", "decision:"))]
    return found + [row.owner for row in await store.fragments() if row.owner.startswith("stage:")]


async def patiently(action: Callable[[], Awaitable[object]], bench: StagingBench) -> object:
    """As a client does: again after a while as long as the server is busy."""
    for _ in range(50):
        try:
            return await action()
        except ServerBusy:
            await bench.advance(2.0)
            await settle()
    raise AssertionError("the server stays busy")


def on_a_staging_bench(
    test: Callable[[StagingBench], Awaitable[None]], store_count: int = 1, limits: Limits | None = None
) -> None:
    play(lambda: StagingBench(store_count, limits), test)


__all__ = ["JOB", "STREAM", "WRITE", "StagingBench", "on_a_staging_bench", "texts"]
