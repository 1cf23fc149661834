"""A hub and a queue below its name are created at the same time: one of them is refused, whatever happens to the
stores meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from busway.model.descriptions import NewEntity, QueueDescription, TopicDescription
from busway.model.errors import BrokerError, EntityAlreadyExists
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.broker.namespace_bench import settle
from tests.unit.streams.test_event_hubs import Bus, run

BELOW = ("h/publishers/x", "H/consumergroups/g/partitions/0", "h/deep/er")


def present(bus: Bus, path: str) -> tuple[bool, bool]:
    """(the hub is there, what lies below is there)"""
    return (
        any(hub.path.lower() == "h" for hub in bus.hubs.hubs()),
        path.lower() in {key.lower() for key in bus.namespace.contents.entities.rows},
    )


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription])
@pytest.mark.parametrize("hub_first", [False, True], ids=["queue first", "hub first"])
@pytest.mark.parametrize("path", BELOW)
def test_of_two_creations_at_once_one_is_refused(
    path: str, hub_first: bool, kind: type[QueueDescription] | type[TopicDescription]
) -> None:
    """Attack: E-2, A-2: both looked before either was there."""

    async def work(bus: Bus) -> None:
        bus.stores[0].hold_commits()
        makers: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: bus.hubs.create(EventHubDescription("h")),
            lambda: bus.namespace.create([NewEntity(kind(path))]),
        ]
        tasks = [asyncio.ensure_future(make()) for make in (makers if hub_first else makers[::-1])]
        await settle()
        assert [task.done() for task in tasks] == [False, False]
        bus.stores[0].release_commits()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(outcome, EntityAlreadyExists) for outcome in outcomes] == [False, True]
        assert present(bus, path) == ((True, False) if hub_first else (False, True))

    run(work)


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("hub_first", [False, True], ids=["queue first", "hub first"])
def test_a_creation_of_unknown_outcome_counts_for_the_next(hub_first: bool, is_applied: bool) -> None:
    """Attack: A-2: what may exist is waited for; when the home is back one of the two is there, or none."""

    async def work(bus: Bus) -> None:
        path = BELOW[0]

        async def make(hub: bool) -> BrokerError | None:
            try:
                if hub:
                    await bus.hubs.create(EventHubDescription("h"))
                else:
                    await bus.namespace.create([NewEntity(QueueDescription(path))])
            except BrokerError as error:
                return error
            return None

        bus.stores[0].lose_next_commit(is_applied=is_applied)
        first, second = await asyncio.gather(make(hub_first), make(not hub_first))
        assert first is not None
        assert second is None or isinstance(second, BrokerError)
        for _ in range(60):
            bus.clock.advance(1)
            bus.namespace.tick()
            await settle()
        again = await make(not hub_first)
        hub, below = present(bus, path)
        assert (hub, below) != (True, True), "the key of the one would open the other"
        assert hub or below
        if is_applied:
            assert (hub, below) == (hub_first, not hub_first)
            assert isinstance(again, EntityAlreadyExists)

    run(work)


def test_a_deletion_and_two_creations_at_once_leave_one_owner() -> None:
    """Attack: A-2: the hub goes while a queue below it and the hub itself are asked for again."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h"))
        outcomes = await asyncio.gather(
            bus.hubs.delete("h"),
            bus.namespace.create([NewEntity(QueueDescription(BELOW[0]))]),
            bus.hubs.create(EventHubDescription("h")),
            return_exceptions=True,
        )
        assert outcomes[0] is None
        assert sum(isinstance(outcome, EntityAlreadyExists) for outcome in outcomes) == 1
        assert sorted(present(bus, BELOW[0])) == [False, True]

    run(work)
