"""A subscription of whose making nobody knows, at a topic that somebody asked for while its store was away."""

from __future__ import annotations

import asyncio

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.message.message import Message
from busway.model.descriptions import NewEntity, SubscriptionDescription, TopicDescription
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore

PATH = "news/Subscriptions/new"


def test_a_subscription_that_turns_out_to_be_there_gets_copies() -> None:
    """E-60 E-70: its commit was reported as unknown and had been made. Whoever tried to publish meanwhile must not
    have fixed what the topic selects by."""

    async def scenario() -> None:
        clock, store = ManualClock(), MemoryStore("a")
        namespace = Namespace("ns", [store], clock, SeededEntropy(), Limits())
        await namespace.open()
        await namespace.create([NewEntity(TopicDescription("news"))])
        store.lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await namespace.create([NewEntity(SubscriptionDescription(PATH))])
        with pytest.raises(ServerBusy):
            namespace.sender("news")
        clock.advance(10)
        namespace.tick()
        for _ in range(20):
            await asyncio.sleep(0)
        assert namespace.exists(PATH)
        stored: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()
        namespace.sender("news").send([Message(b"", b"\x00\x53\x75\xa0\x01x")], stored.set_result)
        assert await stored == []
        assert (await namespace.counts(PATH)).active == 1
        await namespace.close()

    asyncio.run(scenario())
