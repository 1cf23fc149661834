"""A scrape goes turn by turn, and entities and stores come and go between the turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.errors import BrokerError
from busway.signals import exposition as exposition_module
from busway.signals.exposition import Exposition
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.harness.manual_clock import SeededEntropy
from tests.unit.broker.namespace_bench import NamespaceBench

Change = Callable[[NamespaceBench, EventHubs], Awaitable[None]]


async def delete_and_create(bench: NamespaceBench, hubs: EventHubs) -> None:
    del hubs
    await bench.namespace.delete("q1")
    await bench.namespace.create([NewEntity(QueueDescription("q1"))])


async def delete_a_topic(bench: NamespaceBench, hubs: EventHubs) -> None:
    del hubs
    await bench.namespace.delete("t")


async def delete_a_subscription(bench: NamespaceBench, hubs: EventHubs) -> None:
    del hubs
    await bench.namespace.delete("t/Subscriptions/s1")


async def delete_a_hub(bench: NamespaceBench, hubs: EventHubs) -> None:
    del bench
    await hubs.delete("h")


async def switch_a_store_off(bench: NamespaceBench, hubs: EventHubs) -> None:
    del hubs
    await bench.namespace.stores.disable("store-1")


async def switch_the_home_off(bench: NamespaceBench, hubs: EventHubs) -> None:
    del hubs
    await bench.namespace.stores.disable("store-0")


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        delete_and_create,
        delete_a_topic,
        delete_a_subscription,
        delete_a_hub,
        switch_a_store_off,
        switch_the_home_off,
    )
}
#: A scrape of this namespace has fewer turns.
TURNS = 40


async def filled() -> tuple[NamespaceBench, EventHubs]:
    bench = NamespaceBench(2)
    hubs = EventHubs(bench.namespace, bench.clock, SeededEntropy(2))
    await bench.namespace.open()
    await bench.namespace.create(
        [
            *(NewEntity(QueueDescription(f"q{number}")) for number in range(5)),
            NewEntity(QueueDescription("p", enable_partitioning=True)),
            NewEntity(TopicDescription("t")),
        ]
    )
    for number in range(3):
        await bench.namespace.create([NewEntity(SubscriptionDescription(f"t/Subscriptions/s{number}"))])
    await hubs.create(EventHubDescription("h", partition_count=2))
    for number in range(5):
        await bench.send(f"q{number}")
    return bench, hubs


@pytest.mark.parametrize("name", CHANGES)
def test_a_scrape_survives_a_change_in_any_of_its_turns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-1: whatever goes in whichever turn, the answer is whole, readable, and tells of those that stayed."""
    monkeypatch.setattr(exposition_module, "_SLICE_ENTITIES", 1)

    async def scene(turn: int) -> bool:
        """False when the scrape was over before its turn came."""
        bench, hubs = await filled()
        try:
            exposition = Exposition(bench.namespace, hubs)
            scraping = asyncio.ensure_future(exposition.text())
            for _ in range(turn):
                await asyncio.sleep(0)
            if scraping.done():
                return False
            with contextlib.suppress(BrokerError):
                await CHANGES[name](bench, hubs)
            text = (await asyncio.wait_for(scraping, 100)).decode()
            assert exposition._scrape is None
        finally:
            await bench.namespace.close()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        entities = [sample.labels["entity"] for sample in families["busway_messages"].samples]
        assert len(set(entities)) == len(entities), "nobody is told twice"
        if "store" not in name and "home" not in name:
            assert {"q0", "q2", "q3", "q4", "p"} <= set(entities)
        return True

    for turn in range(0, TURNS, 5):
        if not asyncio.run(scene(turn)):
            break
