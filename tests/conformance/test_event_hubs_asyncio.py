"""EH-2xx: event hubs with the asynchronous Python SDK, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import ConnectionLostError

from tests.conformance.event_traffic import QUICK, WAIT_S, Hub

pytestmark = pytest.mark.sdk

NewHub = Callable[..., Hub]


class MemoryCheckpoints:
    """A checkpoint store as its users write them, for one process."""

    def __init__(self) -> None:
        self.ownership: dict[tuple[str, ...], dict[str, Any]] = {}
        self.checkpoints: dict[tuple[str, ...], dict[str, Any]] = {}

    async def list_ownership(self, *scope: str, **_: Any) -> list[dict[str, Any]]:
        return [entry for key, entry in self.ownership.items() if key[:3] == scope]

    async def claim_ownership(self, wanted: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        claimed = []
        for entry in wanted:
            key = _key(entry)
            present = self.ownership.get(key)
            if present is None or present["etag"] == entry.get("etag"):
                number = 1 if present is None else int(present["etag"]) + 1
                now = asyncio.get_running_loop().time()
                self.ownership[key] = {**entry, "etag": str(number), "last_modified_time": now}
                claimed.append(self.ownership[key])
        return claimed

    async def update_checkpoint(self, checkpoint: dict[str, Any], **_: Any) -> None:
        self.checkpoints[_key(checkpoint)] = checkpoint

    async def list_checkpoints(self, *scope: str, **_: Any) -> list[dict[str, Any]]:
        return [entry for key, entry in self.checkpoints.items() if key[:3] == scope]


def _key(entry: dict[str, Any]) -> tuple[str, ...]:
    names = ("fully_qualified_namespace", "eventhub_name", "consumer_group", "partition_id")
    return tuple(entry[name] for name in names)


class AsyncReading:
    """A consumer that runs as a task of its own."""

    def __init__(self, client: EventHubConsumerClient, **options: Any) -> None:
        self._client = client
        self._options = {"starting_position": "-1", **options}
        self.checkpoints_each = False
        self.events: list[tuple[str, EventData]] = []
        self.errors: list[Exception] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncReading:
        self._task = asyncio.create_task(
            self._client.receive(self._event_came, on_error=self._error_came, **self._options)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        assert self._task is not None
        self._task.cancel()  # it sleeps between two looks at who owns what
        await asyncio.gather(self._task, return_exceptions=True)

    async def _event_came(self, context: Any, event: EventData | None) -> None:
        if event is not None:
            self.events.append((context.partition_id, event))
            if self.checkpoints_each:
                await context.update_checkpoint(event)

    async def _error_came(self, context: Any, error: Exception) -> None:
        del context
        self.errors.append(error)

    async def wait_for(self, count: int) -> list[tuple[str, EventData]]:
        await until(lambda: len(self.events) >= count or self.errors)
        assert not self.errors, self.errors
        assert len(self.events) == count
        return self.events

    async def wait_for_error(self) -> Exception:
        await until(lambda: self.errors)
        return self.errors[0]


async def until(happened: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_S
    while not happened():
        assert loop.time() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def producer(hub: Hub) -> EventHubProducerClient:
    return EventHubProducerClient.from_connection_string(
        hub.connection_string, eventhub_name=hub.name, **QUICK
    )


def consumer(hub: Hub, **more: Any) -> EventHubConsumerClient:
    return EventHubConsumerClient.from_connection_string(
        hub.connection_string, "$Default", eventhub_name=hub.name, **{**QUICK, **more}
    )


async def send(hub: Hub, *bodies: str, **target: Any) -> None:
    async with producer(hub) as client:
        await client.send_batch([EventData(body) for body in bodies], **target)


def texts(found: list[tuple[str, EventData]]) -> list[str]:
    return [event.body_as_str() for _, event in found]


def test_eh_201_send_and_read(new_hub: NewHub) -> None:
    """H-10, H-12, H-16, H-17, H-20: batches, keys and partitions."""
    hub = new_hub(PartitionCount=2)

    async def work() -> None:
        async with producer(hub) as client:
            batch = await client.create_batch(partition_key="alphabet")
            batch.add(EventData("keyed"))
            await client.send_batch(batch)
            await client.send_event(EventData("here"), partition_id="0")
            await client.send_event(EventData("there"), partition_id="1")
        async with AsyncReading(consumer(hub)) as reading:
            found = await reading.wait_for(3)
        assert sorted(texts(found)) == ["here", "keyed", "there"]
        where = {event.body_as_str(): partition for partition, event in found}
        assert (where["here"], where["there"]) == ("0", "1")

    run(work())


def test_eh_202_runtime_information(new_hub: NewHub) -> None:
    """H-27: hub and partitions tell what they are."""
    hub = new_hub(PartitionCount=3)

    async def work() -> None:
        await send(hub, "a", partition_id="2")
        async with consumer(hub) as client:
            assert await client.get_partition_ids() == ["0", "1", "2"]
            assert (await client.get_eventhub_properties())["eventhub_name"] == hub.name
            told = await client.get_partition_properties("2")
            assert (told["last_enqueued_sequence_number"], told["is_empty"]) == (0, False)

    run(work())


def test_eh_203_a_checkpoint_is_where_the_next_one_goes_on(new_hub: NewHub) -> None:
    """H-20, H-21, H-24: the broker keeps no position; clients do, and take partitions with owner level 0."""
    hub = new_hub(PartitionCount=2)
    checkpoints = MemoryCheckpoints()

    async def work() -> None:
        for partition in ("0", "1"):
            await send(hub, f"{partition}a", f"{partition}b", partition_id=partition)
        first = AsyncReading(consumer(hub, checkpoint_store=checkpoints, load_balancing_interval=1))
        first.checkpoints_each = True
        async with first:
            await first.wait_for(4)
            await until(lambda: len(checkpoints.checkpoints) == 2)
        for entry in checkpoints.ownership.values():
            entry["owner_id"] = ""
        await send(hub, "later", partition_id="1")
        second = AsyncReading(consumer(hub, checkpoint_store=checkpoints, load_balancing_interval=1))
        async with second:
            assert texts(await second.wait_for(1)) == ["later"]

    run(work())


def test_eh_204_a_newcomer_with_the_same_owner_level_takes_over(new_hub: NewHub) -> None:
    """H-24: a newcomer with the same owner level takes over."""
    hub = new_hub(PartitionCount=1)

    async def work() -> None:
        await send(hub, "a")
        async with AsyncReading(consumer(hub), owner_level=0, partition_id="0") as first:
            await first.wait_for(1)
            async with AsyncReading(consumer(hub), owner_level=0, partition_id="0") as second:
                await second.wait_for(1)
                assert isinstance(await first.wait_for_error(), ConnectionLostError)

    run(work())


def test_eh_205_readers_and_writers_at_once(new_hub: NewHub) -> None:
    """H-1, H-10, H-20: three readers follow while two producers send; everybody gets all, each key in order."""
    hub = new_hub(PartitionCount=2)
    count = 200

    async def write(key: str) -> None:
        async with producer(hub) as client:
            for number in range(0, count, 20):
                batch = await client.create_batch(partition_key=key)
                for one in range(number, number + 20):
                    batch.add(EventData(f"{key}:{one}"))
                await client.send_batch(batch)

    async def work() -> None:
        readings = [AsyncReading(consumer(hub)) for _ in range(3)]
        for reading in readings:
            await reading.__aenter__()
        await asyncio.gather(write("one"), write("two"))
        for reading in readings:
            found = texts(await reading.wait_for(2 * count))
            for key in ("one", "two"):
                assert [text for text in found if text.startswith(key)] == [
                    f"{key}:{n}" for n in range(count)
                ]
            await reading.__aexit__()

    run(work())


def test_eh_206_a_buffering_producer(new_hub: NewHub) -> None:
    """H-11: what it gathers without a key arrives, on several partitions."""
    hub = new_hub(PartitionCount=2)
    sent: list[Any] = []
    failures: list[Any] = []

    async def succeeded(events: Any, _: Any) -> None:
        sent.extend(events)

    async def failed(*problem: Any) -> None:
        failures.append(problem)

    async def work() -> None:
        client = EventHubProducerClient.from_connection_string(
            hub.connection_string,
            eventhub_name=hub.name,
            buffered_mode=True,
            on_success=succeeded,
            on_error=failed,
            max_wait_time=0.2,
            **QUICK,
        )
        async with client:
            for number in range(20):
                await client.send_event(EventData(str(number)))
            await client.flush()
        assert (len(sent), failures) == (20, [])
        async with AsyncReading(consumer(hub)) as reading:
            assert sorted(map(int, texts(await reading.wait_for(20)))) == list(range(20))

    run(work())
