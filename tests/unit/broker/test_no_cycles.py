"""Memory is given back at once: no kind of traffic leaves a message behind for the cyclic collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from busway.broker.fragment.locks import Delivery
from busway.broker.fragment.outlet import Outlet
from busway.broker.transaction.transactions import Transactions
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import Message
from busway.model.descriptions import NewEntity, QueueDescription, with_values
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.rig import Recorder, unheard
from tests.unit.broker.topic_bench import TopicBench, encoded, sql

Traffic = Callable[[TopicBench], Awaitable[None]]


@pytest.fixture(scope="module", autouse=True)
def _what_was_there_before() -> None:
    """What other tests left in this process is none of ours, and walking over it again and again takes seconds."""
    gc.collect()
    gc.freeze()


@contextmanager
def without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def messages_alive() -> list[Message]:
    return [each for each in gc.get_objects() if isinstance(each, Message)]


def made(body: str, **fields: Any) -> Message:
    message = message_of(encoded(body), False)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


async def send(bench: TopicBench, path: str, *messages: Message) -> list[tuple[int, BrokerError]]:
    told: list[list[tuple[int, BrokerError]]] = []
    bench.namespace.sender(path).send(list(messages), told.append)
    await settle(60)
    return told[0]


async def send_many(bench: TopicBench, path: str = "q", **fields: Any) -> None:
    assert await send(bench, path, *[made(str(n), **fields) for n in range(20)]) == []


def outlet_of(bench: TopicBench, path: str = "q", *, dead_letter: bool = False) -> Outlet:
    return bench.namespace.queue(path).outlet(dead_letter)


async def take(outlet: Outlet, *, deletes: bool = False) -> list[Delivery]:
    receiver = Recorder(100, deletes=deletes)
    outlet.add_receiver(receiver)
    outlet.wake(receiver)
    await settle(60)
    outlet.remove_receiver(receiver)
    return receiver.deliveries


async def end(outlet: Outlet, deliveries: list[Delivery], verb: Verb = Verb.COMPLETE, **more: Any) -> None:
    outlet.settle([delivery.token for delivery in deliveries], Settlement(verb), unheard, **more)
    await settle(60)


async def completed(bench: TopicBench) -> None:
    await send_many(bench)
    await end(outlet_of(bench), await take(outlet_of(bench)))


async def deleted_on_receipt(bench: TopicBench) -> None:
    await send_many(bench)
    assert len(await take(outlet_of(bench), deletes=True)) == 20


async def put_back(bench: TopicBench) -> None:
    await send_many(bench)
    receiver = Recorder(20, deletes=True)
    receiver.refuses = 1
    outlet_of(bench).add_receiver(receiver)
    outlet_of(bench).wake(receiver)
    await settle(60)
    outlet_of(bench).remove_receiver(receiver)
    await take(outlet_of(bench), deletes=True)


async def abandoned(bench: TopicBench) -> None:
    await send_many(bench)
    await end(outlet_of(bench), await take(outlet_of(bench)), Verb.ABANDON)
    await end(outlet_of(bench), await take(outlet_of(bench)))


async def lock_lost(bench: TopicBench) -> None:
    await send_many(bench)
    late = await take(outlet_of(bench))
    await bench.advance(120)
    await end(outlet_of(bench), late)
    await end(outlet_of(bench), await take(outlet_of(bench)))


async def dead_lettered(bench: TopicBench) -> None:
    await send_many(bench)
    await end(outlet_of(bench), await take(outlet_of(bench)), Verb.DEAD_LETTER)
    dead = outlet_of(bench, dead_letter=True)
    await end(dead, await take(dead))


async def deferred(bench: TopicBench) -> None:
    await send_many(bench)
    taken = await take(outlet_of(bench))
    await end(outlet_of(bench), taken, Verb.DEFER)
    numbers = [delivery.message.sequence_number for delivery in taken]
    await end(outlet_of(bench), await outlet_of(bench).receive_by_number(numbers[:10], deletes=False))
    assert len(await outlet_of(bench).receive_by_number(numbers[10:], deletes=True)) == 10


async def scheduled(bench: TopicBench) -> None:
    at_ms = bench.clock.wall_ms() + 5_000
    numbers = await bench.namespace.queue("q").schedule(
        [made(str(n), scheduled_at_ms=at_ms) for n in range(4)]
    )
    await bench.namespace.queue("q").cancel_scheduled(numbers[:2])
    await bench.advance(10)
    await settle(60)
    await end(outlet_of(bench), await take(outlet_of(bench)))


async def expired(bench: TopicBench) -> None:
    await send_many(bench, ttl_ms=5_000)
    await bench.advance(30)
    await settle(60)


async def peeked(bench: TopicBench) -> None:
    await send_many(bench)
    await outlet_of(bench).peek(0, 10)
    await take(outlet_of(bench), deletes=True)


async def refused(bench: TopicBench) -> None:
    assert len(await send(bench, "q", made("x" * 2_000_000), made("y" * 2_000_000))) == 2


async def in_a_session(bench: TopicBench) -> None:
    for name in ("a", "b"):
        await send_many(bench, "grouped", session_id=name)
    outlet = outlet_of(bench, "grouped")
    for name in (None, "b"):
        receiver = Recorder(100)
        session = await outlet.accept_session(receiver, name, 1)
        outlet.wake(receiver)
        await settle(60)
        await end(outlet, receiver.take()[:10], session_id=session.session_id)
        outlet.remove_receiver(receiver)
        del session
    for name in ("a", "b"):
        receiver = Recorder(100, deletes=True)
        await outlet.accept_session(receiver, name, 1)
        outlet.wake(receiver)
        await settle(60)
        outlet.remove_receiver(receiver)


async def detected_twice(bench: TopicBench) -> None:
    for _ in range(2):
        await send_many(bench, "once", message_id="same")
    await take(outlet_of(bench, "once"), deletes=True)


async def forwarded(bench: TopicBench) -> None:
    await send_many(bench, "forwarding")
    await bench.advance(2, 0.5)
    await settle(60)
    assert len(await take(outlet_of(bench, "q"), deletes=True)) == 20


async def published(bench: TopicBench) -> None:
    await send_many(bench, "t")
    for name in ("plain", "acting"):
        outlet = outlet_of(bench, subscription_path("t", name))
        await end(outlet, await take(outlet))


async def in_transactions(bench: TopicBench) -> None:
    transactions = Transactions(bench.namespace.runtime)
    for fail in (False, True):
        control = object()
        transaction = transactions.find(transactions.declare(control))
        transaction.send(bench.namespace.queue("q").inlet, [made("a", partition_key="k")])
        told: list[BrokerError | None] = []
        transactions.discharge(control, transaction.txn_id, fail=fail, done=told.append)
        await settle(60)
        assert told == [None]
    await take(outlet_of(bench), deletes=True)


async def updated(bench: TopicBench) -> None:
    await send_many(bench)
    receiver = Recorder(5)
    outlet_of(bench).add_receiver(receiver)
    outlet_of(bench).wake(receiver)
    await settle(60)
    await bench.change("q", forward_dead_lettered_messages_to="once")
    await bench.change("q", forward_dead_lettered_messages_to=None)
    await settle(60)
    await take(outlet_of(bench), deletes=True)


async def failed_commit(bench: TopicBench) -> None:
    await send_many(bench)
    for store in bench.stores:
        store.refuse_next_commit()
    told: list[object] = []
    bench.namespace.queue("q").send([made(str(n)) for n in range(20)], told.append)
    await settle(60)
    for _ in range(4):  # each store fails once
        await bench.advance(30, 0.5)
        await settle(60)
        await take(outlet_of(bench), deletes=True)
    assert (await bench.namespace.counts("q")).total == 0


def send_at_once(bench: TopicBench) -> None:
    """To every fragment."""
    for _ in range(8):
        bench.namespace.sender("q").send([made(str(n)) for n in range(5)], unheard)


async def in_one_commit(bench: TopicBench) -> None:
    """Settlements of every kind in the batch that takes in new messages."""
    for verb in Verb:
        await send_many(bench)
        taken = await take(outlet_of(bench))
        send_at_once(bench)
        await end(outlet_of(bench), taken, verb)
        del taken
        await take(outlet_of(bench), deletes=True)
    dead = outlet_of(bench, dead_letter=True)
    taken = await take(dead)
    send_at_once(bench)
    await end(dead, taken)
    await take(outlet_of(bench), deletes=True)
    found = [message.sequence_number for message in await outlet_of(bench).peek(0, 100)]
    await outlet_of(bench).receive_by_number(found, deletes=True)


ALL: tuple[Traffic, ...] = (
    completed,
    deleted_on_receipt,
    put_back,
    abandoned,
    lock_lost,
    dead_lettered,
    deferred,
    scheduled,
    expired,
    peeked,
    refused,
    in_a_session,
    detected_twice,
    forwarded,
    published,
    in_transactions,
    updated,
    failed_commit,
    in_one_commit,
)


async def entities(bench: TopicBench, *, is_partitioned: bool) -> None:
    shape = {"enable_partitioning": is_partitioned}
    for path, values in (
        ("q", {}),
        ("grouped", {"requires_session": True}),
        ("once", {"requires_duplicate_detection": True}),
        ("forwarding", {"forward_to": "q"}),
    ):
        await bench.namespace.create([NewEntity(with_values(QueueDescription(path), {**shape, **values}))])
    await bench.topic("t", **shape)
    await bench.subscription("t", "plain")
    await bench.subscription("t", "acting", sql("1=1", "SET n = 1"))


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("traffic", ALL, ids=lambda traffic: traffic.__name__)
def test_no_message_is_left_behind(traffic: Traffic, is_partitioned: bool) -> None:
    """Found by review: a batch and what waited for it held one another, and with them every message."""

    async def run() -> None:
        bench = TopicBench(4, replace(Limits(), partition_count=4))
        await bench.namespace.open()
        await entities(bench, is_partitioned=is_partitioned)
        await settle(60)
        with without_the_collector():
            before = len(messages_alive())
            await traffic(bench)
            await settle(100)
            left = messages_alive()
            assert len(left) - before == 0, [gc.get_referrers(each) for each in left[:1]]
        await bench.namespace.close()

    asyncio.run(run())
