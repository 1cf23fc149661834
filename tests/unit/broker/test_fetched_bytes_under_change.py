"""Receive by sequence number while its entity, its messages or its store change: between the look at sizes and the
read, and while the rows are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from busway.model.errors import BrokerError, EntityNotFound
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.namespace_bench import NamespaceBench, Reader, on_a_bench, settle

KIB = 1024
LIMITS = Limits(fetch_bytes_max=64 * KIB)
COUNT = 4
Change = Callable[[NamespaceBench], Awaitable[None]]


async def defer(bench: NamespaceBench, path: str = "q", count: int = COUNT) -> list[int]:
    """The numbers of new deferred messages, each of a few kilobytes."""
    await bench.send(path, count)
    outlet, reader = bench.namespace.queue(path).outlet(False), Reader()
    outlet.add_receiver(reader)
    outlet.wake(reader)
    await settle()
    told: list[object] = []
    tokens = [delivery.token for delivery in reader.taken]
    outlet.settle(tokens, Settlement(Verb.DEFER), told.append)
    await settle()
    outlet.remove_receiver(reader)
    return [delivery.message.sequence_number for delivery in reader.taken]


class SlowRead:
    """Holds up the first read of rows by number, or that of their sizes."""

    def __init__(self, store: Any, verb: str) -> None:
        self.is_reached = asyncio.Event()
        self.may_go = asyncio.Event()
        self._read = getattr(store, verb)
        setattr(store, verb, self._slowly)

    async def _slowly(self, *arguments: object) -> object:
        self.is_reached.set()
        await self.may_go.wait()
        return await self._read(*arguments)


async def delete(bench: NamespaceBench) -> None:
    await bench.namespace.delete("q")


async def create_again(bench: NamespaceBench) -> None:
    await bench.namespace.delete("q")
    await bench.create("q")
    await defer(bench)


async def disable_store(bench: NamespaceBench) -> None:
    await bench.namespace.stores.disable("store-0")


async def disable_receiving(bench: NamespaceBench) -> None:
    present = bench.namespace.description("q")
    await bench.namespace.update(type(present)(**{**vars(present), "status": "ReceiveDisabled"}))


async def forward_away(bench: NamespaceBench) -> None:
    await bench.create("target")
    present = bench.namespace.description("q")
    await bench.namespace.update(type(present)(**{**vars(present), "forward_to": "target"}))


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (delete, create_again, disable_store, disable_receiving, forward_away)
}


@pytest.mark.parametrize("deletes", [False, True], ids=["peek-lock", "receive and delete"])
@pytest.mark.parametrize("verb", ["sizes", "by_number"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_fetch_that_meets_a_change_gets_all_or_nothing(name: str, verb: str, deletes: bool) -> None:
    """R-51, R-52: nothing of a queue that has gone, and nothing is taken from one that stays and answers nobody."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        numbers = await defer(bench)
        outlet = bench.namespace.queue("q").outlet(False)
        slow = SlowRead(bench.stores[0], verb)
        fetching = asyncio.ensure_future(outlet.receive_by_number(numbers, deletes=deletes))
        await slow.is_reached.wait()
        changing = asyncio.ensure_future(CHANGES[name](bench))
        await settle(60)
        slow.may_go.set()
        got: list[object] = []
        with contextlib.suppress(BrokerError):  # whoever asked is told, and asks again
            got = list(await asyncio.wait_for(fetching, 100))
        await changing
        await settle(60)
        if name == "disable_store":
            await bench.namespace.stores.enable("store-0")
        assert len(got) in (0, COUNT)
        if name == "delete":
            with pytest.raises(EntityNotFound):
                bench.namespace.queue("q")
            return
        left = bench.namespace.queue("q").counts().deferred
        taken = COUNT if deletes and got and name != "create_again" else 0
        assert left == COUNT - taken, "what nobody was given is still there"

    on_a_bench(test, limits=LIMITS)


@pytest.mark.parametrize("verb", ["sizes", "by_number"])
def test_a_fetch_whose_messages_somebody_else_takes_meanwhile_finds_nothing(verb: str) -> None:
    """R-52: one of two who ask for the same messages gets them, the other is told; none gets half."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        numbers = await defer(bench)
        outlet = bench.namespace.queue("q").outlet(False)
        slow = SlowRead(bench.stores[0], verb)
        first = asyncio.ensure_future(outlet.receive_by_number(numbers, deletes=True))
        second = asyncio.ensure_future(outlet.receive_by_number(numbers[:2], deletes=True))
        await slow.is_reached.wait()
        await settle()
        slow.may_go.set()
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        got = [len(outcome) if isinstance(outcome, list) else 0 for outcome in outcomes]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["MessageNotFound", "list"]
        assert bench.namespace.queue("q").counts().deferred == COUNT - sum(got)

    on_a_bench(test, limits=LIMITS)
