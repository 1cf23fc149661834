"""Partitioned topics, and forwarding from, to and between partitioned entities."""

from __future__ import annotations

from random import Random

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.broker.fragment.locks import Delivery
from busway.message.message import Message
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.errors import QuotaExceeded, ServerBusy
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.rules.rule import Rule, SqlFilter
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, bodies, index_of, on_stores, spread, text
from tests.unit.broker.rig import Answer, Recorder, numbers
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

KEYS = {fragment_of_key(f"key-{n}", COUNT): f"key-{n}" for n in range(100)}
TOPIC = "t"


def subscription(name: str) -> str:
    return f"{TOPIC}/Subscriptions/{name}"


async def make(bench: PartitionBench, *wanted: object) -> None:
    for each in wanted:
        assert isinstance(each, QueueDescription | TopicDescription | SubscriptionDescription)
        await bench.namespace.create([NewEntity(each)])


async def publish(bench: PartitionBench, *messages: Message, path: str = TOPIC) -> Answer:
    answer = Answer()
    bench.namespace.sender(path).send(list(messages), answer)
    await settle()
    return answer


async def taken(bench: PartitionBench, path: str, *, dead_letter: bool = False) -> list[Delivery]:
    """Everything there, completed."""
    outlet = bench.namespace.queue(path).outlet(dead_letter)
    recorder = Recorder(1000)
    outlet.add_receiver(recorder)
    outlet.wake(recorder)
    await settle()
    outlet.remove_receiver(recorder)
    answer = Answer()
    if recorder.deliveries:
        outlet.settle(recorder.tokens(), Settlement(Verb.COMPLETE), answer)
        await settle()
        assert answer.refused == []
    return recorder.deliveries


def partitioned_topic() -> TopicDescription:
    return TopicDescription(TOPIC, enable_partitioning=True)


def test_copies_stay_in_the_fragment_of_their_message() -> None:
    """P-1, P-3, M-39, T-9: fragment i of every subscription lies beside fragment i of the topic."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, partitioned_topic(), SubscriptionDescription(subscription("a")))
        await make(bench, SubscriptionDescription(subscription("b")))
        rows = bench.namespace.contents.entities.rows
        for row in list(rows.values()):
            assert [share.store_name for share in row.shares] == [s.store_name for s in rows[TOPIC].shares]
        messages = [text(f"{n}") for n in range(8)]
        for message in messages:
            assert (await publish(bench, message)).refused == []
        assert spread([m.sequence_number for m in messages]) == dict.fromkeys(range(COUNT), 2)
        keyed = [text(f"{n}", partition_key=KEYS[2]) for n in range(5)]
        assert (await publish(bench, *keyed)).refused == []
        for name in ("a", "b"):
            found = await taken(bench, subscription(name))
            assert spread(numbers(found)) == {0: 2, 1: 2, 2: 7, 3: 2}
            assert [b for b, n in zip(bodies(found), numbers(found), strict=True) if index_of(n) == 2][-5:] == [
                "0", "1", "2", "3", "4",
            ]  # fmt: skip

    on_stores(test)


def test_rules_count_in_every_fragment_from_the_moment_they_are_added() -> None:
    """P-62, T-13, T-8: added and removed once, for all fragments."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, partitioned_topic(), SubscriptionDescription(subscription("a")))
        path = subscription("a")
        await bench.namespace.rules.remove(path, "$Default")
        for _ in range(COUNT):
            await publish(bench, text("none"))
        assert await taken(bench, path) == []
        await bench.namespace.rules.add(path, Rule("all", SqlFilter("1=1")))
        for _ in range(COUNT):
            await publish(bench, text("all"))
        assert spread(numbers(await taken(bench, path))) == dict.fromkeys(range(COUNT), 1)
        await bench.lose(1)
        await bench.namespace.rules.remove(path, "all")
        await bench.namespace.rules.add(path, Rule("again", SqlFilter("2=2")))
        await bench.regain(1)
        for _ in range(COUNT):
            await publish(bench, text("again"))
        assert spread(numbers(await taken(bench, path))) == dict.fromkeys(range(COUNT), 1)

    on_stores(test)


def test_a_session_id_that_an_action_sets_leaves_the_copy_in_its_fragment() -> None:
    """X-21: only a look at that very fragment finds it."""

    async def test(bench: TopicBench) -> None:
        await bench.namespace.create([NewEntity(partitioned_topic())])
        wanted = SubscriptionDescription(subscription("a"), requires_session=True)
        rule = sql("1=1", f"SET sys.SessionId = '{KEYS[3]}'")
        await bench.namespace.create([NewEntity(wanted, (rule,))])
        await bench.publish(TOPIC, encoded("x", group_id=KEYS[1]))
        inlet = bench.namespace.queue(subscription("a")).inlet
        assert [fragment.counters.active for fragment in inlet.fragments()] == [0, 1, 0, 0]
        assert await inlet.peek(0, 10, KEYS[3]) == []
        assert [message.session_id for message in await inlet.peek(0, 10)] == [KEYS[3]]

    on_a_topic_bench(test, COUNT, Limits(partition_count=COUNT))


def test_a_store_takes_one_fragment_of_topic_and_subscriptions_away() -> None:
    """P-2, P-25, P-31, P-48: publishing and receiving go on beside it; it heals by itself."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, partitioned_topic(), SubscriptionDescription(subscription("a")))
        path = subscription("a")
        topic = bench.namespace.sender(TOPIC)
        for _ in range(COUNT):
            await publish(bench, text())
        await bench.lose(3)
        for _ in range(6):
            assert (await publish(bench, text())).refused == []
        assert (await publish(bench, text(session_id=KEYS[3]))).errors() == [ServerBusy]
        assert spread(numbers(await taken(bench, path))) == {0: 3, 1: 3, 2: 3}
        assert (await bench.namespace.counts(TOPIC)).availability == "Limited"
        await bench.regain(3)
        assert bench.namespace.sender(TOPIC) is topic
        assert (await publish(bench, text(session_id=KEYS[3]))).refused == []
        assert spread(numbers(await taken(bench, path))) == {3: 2}

    on_stores(test)


def test_scheduled_messages_of_a_topic_are_distributed_in_their_fragment() -> None:
    """S-38, S-34: the topic's number carries the fragment; copies come in the same one."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, partitioned_topic(), SubscriptionDescription(subscription("a")))
        later_ms = bench.clock.wall_ms() + 30_000
        sender = bench.namespace.sender(TOPIC)
        made = [(await sender.schedule([text(scheduled_at_ms=later_ms)]))[0] for _ in range(COUNT)]
        assert sorted(map(index_of, made)) == list(range(COUNT))
        await sender.cancel_scheduled(made[:1])
        await bench.advance(31)
        found = await taken(bench, subscription("a"))
        assert sorted(map(index_of, numbers(found))) == sorted(map(index_of, made[1:]))

    on_stores(test)


def test_a_fragment_of_a_topic_is_full_by_itself() -> None:
    """P-10, E-56: its own bytes and its copies beside it."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, partitioned_topic(), SubscriptionDescription(subscription("a")))
        beside = bench.namespace.queue(subscription("a")).inlet.member(2)
        beside.counters.bytes = 1024 * 1024 * 1024
        for _ in range(6):
            assert (await publish(bench, text())).refused == []
        assert spread(numbers(await taken(bench, subscription("a")))) == {0: 2, 1: 2, 3: 2}
        assert (await publish(bench, text(partition_key=KEYS[2]))).errors() == [QuotaExceeded]

    on_stores(test)


@pytest.mark.parametrize("source_is_partitioned", [True, False])
@pytest.mark.parametrize("target_is_partitioned", [True, False])
def test_forwarding_works_from_to_and_between(
    source_is_partitioned: bool, target_is_partitioned: bool
) -> None:
    """F-8, F-9: everything arrives once; keys choose the fragment at the destination by its own rules."""

    async def test(bench: PartitionBench) -> None:
        target = QueueDescription("target", enable_partitioning=target_is_partitioned)
        source = QueueDescription("source", enable_partitioning=source_is_partitioned, forward_to="target")
        await make(bench, target, source)
        for n in range(20):
            assert (await publish(bench, text(f"{n}"), path="source")).refused == []
        for n in range(20, 30):
            await publish(bench, text(f"{n}", partition_key=KEYS[1]), path="source")
        await settle(300)
        found = await taken(bench, "target")
        assert sorted(map(int, bodies(found))) == list(range(30))
        assert (await bench.namespace.counts("source")).total == 0
        if target_is_partitioned:
            keyed = [d for d in found if d.message.partition_key is not None]
            assert set(spread(numbers(keyed))) == {1}
            assert [int(body) for body in bodies(keyed)] == list(range(20, 30))
            assert set(spread(numbers(found))) == set(range(COUNT))

    on_stores(test)


def test_a_forward_waits_for_the_fragment_that_it_is_for() -> None:
    """F-8, F-12: nothing arrives twice or elsewhere while a store of the destination is away."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("target", enable_partitioning=True))
        await make(bench, QueueDescription("source", enable_partitioning=True, forward_to="target"))
        await bench.lose(1)
        for n in range(24):
            assert (await publish(bench, text(f"{n}"), path="source")).refused == []
        await bench.advance(3, 1.0)
        first = await taken(bench, "target")
        assert 0 < len(first) < 24
        await bench.regain(1)
        await bench.advance(3, 1.0)
        await settle(300)
        found = [*first, *await taken(bench, "target")]
        assert sorted(map(int, bodies(found))) == list(range(24))
        assert (await bench.namespace.counts("source")).total == 0
        for store in bench.stores:
            assert await store.transfer_marks() == []

    on_stores(test)


def test_dead_letters_of_a_partitioned_queue_are_forwarded() -> None:
    """D-20, F-8: each fragment of the dead-letter queue moves its own on."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("target", enable_partitioning=True))
        await make(
            bench,
            QueueDescription("source", enable_partitioning=True, forward_dead_lettered_messages_to="target"),
        )
        for n in range(8):
            await publish(bench, text(f"{n}"), path="source")
        outlet = bench.namespace.queue("source").outlet(False)
        recorder = Recorder(100)
        outlet.add_receiver(recorder)
        outlet.wake(recorder)
        await settle()
        outlet.settle(recorder.tokens(), Settlement(Verb.DEAD_LETTER), Answer())
        await settle(300)
        found = await taken(bench, "target")
        assert sorted(map(int, bodies(found))) == list(range(8))

    on_stores(test)


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_in_the_middle_of_forwards_between_stores_neither_loses_nor_doubles(seed: int) -> None:
    """F-8, F-9, F-12: at any moment, and with a store of the destination away at the next start."""
    chance = Random(seed)

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("target", enable_partitioning=True))
        source = QueueDescription("source", enable_partitioning=seed % 2 == 0, forward_to="target")
        await make(bench, source)
        await settle()
        acknowledged: set[int] = set()
        slow = chance.randrange(COUNT)
        for n in range(30):
            if n == 10:
                bench.stores[slow].hold_commits()
            answer = Answer()
            key = chance.choice([None, KEYS[1], KEYS[2]])
            bench.namespace.sender("source").send([text(f"{n}", partition_key=key)], answer)
            await settle(chance.randrange(6))
            if answer.refused == []:
                acknowledged.add(n)
        await settle(chance.randrange(30))
        for store in bench.stores:
            store.crash()
            store.release_commits()
        await bench.namespace.background.close()  # nothing of the old life goes on
        away = bench.stores[1 + seed % (COUNT - 1)].name
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await bench.namespace.stores.disable(away)
        await bench.advance(5, 1.0)
        found = await taken(bench, "target")
        await bench.namespace.stores.enable(away)
        await bench.advance(10, 1.0)
        await settle(300)
        found += await taken(bench, "target")
        arrived = [int(body) for body in bodies(found)]
        assert len(arrived) == len(set(arrived)), "nothing comes twice"
        assert set(arrived) >= acknowledged, "nothing is lost"
        assert (await bench.namespace.counts("source")).total == 0

    on_stores(test)
