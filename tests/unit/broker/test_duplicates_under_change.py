"""Duplicate detection while something is in the way: an id is remembered with its rows, or not at all."""

from __future__ import annotations

import asyncio

from busway.broker.fragment.numbering import NUMBER_MAX
from busway.broker.transaction.rules import RuleStep
from busway.gateway.amqp.message_mapping import message_of
from busway.model.entity_path import subscription_path
from busway.model.errors import (
    BrokerError,
    EntityUpdated,
    QuotaExceeded,
    ServerBusy,
    TransactionRolledBack,
)
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.rig import Rig, bodies, play, text
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

#: With two subscriptions these make a batch full.
MANY = 5_000
A, B = subscription_path("t", "a"), subscription_path("t", "b")
CONTROL = object()
Answers = list[list[tuple[int, BrokerError]]]


def _named(message_id: str) -> bytes:
    return encoded(message_id, message_id=message_id)


async def _detecting_topic(bench: TopicBench) -> None:
    await bench.topic("t", requires_duplicate_detection=True)
    await bench.subscription("t", "a")
    await bench.subscription("t", "b")


async def _refused(bench: TopicBench, message_id: str) -> bool:
    """Whether a publish was."""
    ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()
    bench.namespace.sender("t").send([message_of(_named(message_id), True)], ended.set_result)
    return bool(await ended)


def _park(bench: TopicBench, path: str) -> None:
    """As an update of where its messages go does, for as long as its store needs."""
    bench.namespace.contents.entities.park(path.lower(), EntityUpdated())


def _unpark(bench: TopicBench, path: str) -> None:
    bench.namespace.contents.entities.unpark(path.lower())


def test_a_publish_that_is_refused_is_not_taken_for_a_duplicate_when_it_comes_again() -> None:
    """Found by review: S-40, T-9: another subscription was being updated, and the retry was accepted and dropped."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        _park(bench, B)
        refused = await bench.try_publish("t", _named("1"), _named("2"))
        assert [(place, type(error)) for place, error in refused] == [(0, ServerBusy), (1, ServerBusy)]
        _unpark(bench, B)
        await bench.publish("t", _named("1"), _named("2"))
        await bench.publish("t", _named("2"), _named("3"))
        assert await bench.bodies(A) == await bench.bodies(B) == ["1", "2", "3"]

    on_a_topic_bench(test)


def test_nothing_is_lost_while_a_subscription_is_updated_again_and_again() -> None:
    """Found by review: S-40, E-80: senders that try again until they are accepted, during real updates."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        await bench.queue("q")
        refusals = 0

        async def send(message_id: str) -> None:
            nonlocal refusals
            while await _refused(bench, message_id):
                refusals += 1

        async def update() -> None:
            for number in range(60):
                change = bench.change(B, forward_dead_lettered_messages_to="q" if number % 2 else None)
                changing = asyncio.create_task(change)
                while not changing.done():  # a disk that needs its time
                    bench.stores[0].hold_commits()
                    await settle(number % 7)
                    bench.stores[0].release_commits()
                    await settle(5)
                await changing

        updating = asyncio.create_task(update())
        sending: list[asyncio.Task[None]] = []
        while not updating.done():
            sending.append(asyncio.create_task(send(f"{len(sending)}")))
            await settle(1 + len(sending) % 3)
        await updating
        await asyncio.gather(*sending)
        got = (await bench.namespace.counts(A)).active, (await bench.namespace.counts(B)).active
        assert got == (len(sending), len(sending))
        assert refusals > 0, "no publish met an update: this test tests nothing"

    on_a_topic_bench(test)


def test_a_crash_between_two_batches_leaves_no_id_without_its_message() -> None:
    """Found by review: S-40, S-1: the open batch was full, and the run waited for the next one."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        store = bench.stores[0]
        store.hold_commits()
        store.batch().callbacks.append(lambda _error: None)
        await settle()  # one batch is being written, so the next stays open
        answers: Answers = []
        sender = bench.namespace.sender("t")
        sender.send([message_of(_named(f"first {n}"), True) for n in range(MANY)], answers.append)
        await settle()
        assert len(store.batch().puts) == 2 * MANY
        sender.send([message_of(_named("late"), True)], answers.append)
        await settle()
        assert "late" not in [message_id for _, message_id, _ in store.batch().duplicate_ids]
        store.batch().callbacks.append(lambda _error: store.hold_commits())
        store.release_commits()
        await settle()
        assert answers == [[]], "the full batch is durable, the late one is not"
        store.crash()
        await bench.namespace.close()
        store.release_commits()
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await bench.publish("t", _named("late"), _named("first 1"))
        assert (await bench.namespace.counts(A)).active == MANY + 1

    on_a_topic_bench(test)


def test_runs_that_wait_for_a_full_batch_keep_their_order_and_drop_their_duplicates() -> None:
    """S-4, S-40: also those that repeat what waits with them."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        store = bench.stores[0]
        store.hold_commits()
        store.batch().callbacks.append(lambda _error: None)
        await settle()
        answers: Answers = []
        sender = bench.namespace.sender("t")
        sender.send([message_of(_named(f"first {n}"), True) for n in range(MANY)], answers.append)
        await settle()
        for message_id in ("x", "y", "x", "first 7", "z", "y"):
            sender.send([message_of(_named(message_id), True)], answers.append)
            await settle(3)
        assert answers == []
        store.release_commits()
        await settle(100)
        assert answers == [[]] * 7
        last = await bench.namespace.queue(A).main.peek(MANY + 1, 10)
        assert [message.bare for message in last] == [_named(name) for name in "xyz"]

    on_a_topic_bench(test)


def test_a_message_that_is_forwarded_into_a_topic_waits_for_its_subscriptions() -> None:
    """Found by review: F-11, S-49: refused once, it was a duplicate of itself the next time, and vanished."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        await bench.queue("q", forward_to="t")
        _park(bench, B)
        await bench.publish("q", _named("1"))
        await bench.advance(3, step_s=1)
        assert (await bench.namespace.counts(A)).active == 0
        _unpark(bench, B)
        await bench.advance(3, step_s=1)
        assert await bench.bodies(A) == await bench.bodies(B) == ["1"]
        assert (await bench.namespace.counts("q")).transfer == 0

    on_a_topic_bench(test)


def test_a_transaction_whose_rule_change_fails_leaves_no_id() -> None:
    """Found by review: S-46, T-13: the rule was the last thing that could be refused."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        among = bench.namespace.transactions()
        transaction = among.find(among.declare(CONTROL))
        transaction.send(bench.namespace.sender("t").inlet, [message_of(_named("1"), True)])
        outlet = bench.namespace.queue(A).outlet(False)
        there_already = RuleStep(A, "$Default", sql("1=1", name="$Default"))
        transaction.change_rules(outlet, bench.namespace.rules.work, there_already)
        told: list[BrokerError | None] = []
        among.discharge(CONTROL, transaction.txn_id, fail=False, done=told.append)
        await settle(60)
        assert [type(error) for error in told] == [TransactionRolledBack]
        await bench.publish("t", _named("1"))
        assert await bench.bodies(A) == ["1"]

    on_a_topic_bench(test)


def test_a_transaction_that_a_subscription_refuses_leaves_no_id() -> None:
    """S-46, T-9: what it schedules counts too."""

    async def test(bench: TopicBench) -> None:
        await _detecting_topic(bench)
        among = bench.namespace.transactions()
        inlet = bench.namespace.sender("t").inlet
        for is_refused in (True, False):
            transaction = among.find(among.declare(CONTROL))
            later = message_of(_named("later"), True)
            later.scheduled_at_ms = bench.clock.wall_ms() + 1_000
            transaction.send(inlet, [message_of(_named("now"), True)])
            transaction.schedule(inlet, [later])
            if is_refused:
                _park(bench, B)
            told: list[BrokerError | None] = []
            among.discharge(CONTROL, transaction.txn_id, fail=False, done=told.append)
            await settle(60)
            assert [type(error) for error in told] == [TransactionRolledBack if is_refused else type(None)]
            _unpark(bench, B)
        await bench.publish("t", _named("now"), _named("later"))
        assert await bench.bodies(B) == ["now"]
        await bench.advance(2, step_s=1)
        assert await bench.bodies(B) == ["now", "later"]

    on_a_topic_bench(test)


def test_a_message_that_finds_no_number_leaves_no_id() -> None:
    """M-37, S-40: the numbers were used up while the history was looked at."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("stays", message_id="0"))
        refused: list[list[tuple[int, BrokerError]]] = []
        rig.queue.send([text("x", message_id="1")], refused.append)
        rig.main.counters.last_counter = NUMBER_MAX
        await rig.calm()
        assert [type(error) for _, error in refused[0]] == [QuotaExceeded]
        rig.main.counters.last_counter = 1
        await rig.send(text("x", message_id="1"))
        assert bodies(await rig.receive()) == ["stays", "x"]

    play(scenario, requires_duplicate_detection=True)
