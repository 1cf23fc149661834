"""Receive-and-delete while the entity is changed, or its store fails: what no receiver got comes back."""

from __future__ import annotations

import pytest

from busway.model.descriptions import Description
from busway.model.errors import EntityUpdated
from tests.unit.broker.namespace_bench import NamespaceBench, settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, on_partitions
from tests.unit.broker.rig import Recorder
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


def consumer(bench: NamespaceBench, path: str, credit: int = 100) -> Recorder:
    recorder = Recorder(credit, deletes=True)
    outlet = bench.namespace.queue(path).outlet(False)
    outlet.add_receiver(recorder)
    outlet.wake(recorder)
    return recorder


def test_messages_deleted_in_a_commit_that_takes_its_time_survive_too() -> None:
    """R-1: the deletion may become durable before the update, while it waits, or with it."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("home")
        await bench.queue("q")
        row = bench.namespace.contents.entities.rows["q"]
        store = next(store for store in bench.stores if store.name == row.store_name)
        assert store.name != bench.namespace.contents.catalogue.home.name
        await bench.publish("q", *[encoded(str(n)) for n in range(10)])
        store.hold_commits()
        gone = consumer(bench, "q", credit=4)
        await settle(30)
        changing = bench.namespace.background.start(bench.namespace.update(_forwarding(bench, "q", "home")))
        await settle(60)
        assert not changing.done()
        store.release_commits()
        await changing
        await settle(100)
        await bench.advance(2, 0.5)
        assert gone.numbers() == []
        assert sorted(await bench.bodies("home")) == [str(n) for n in range(10)]
        assert (await bench.namespace.counts("q")).total == 0

    on_a_topic_bench(test, 3)


def _forwarding(bench: NamespaceBench, path: str, target: str) -> Description:
    present = bench.namespace.description(path)
    return type(present)(**{**vars(present), "forward_to": target})


def test_messages_of_a_session_that_are_deleted_for_its_receiver_survive() -> None:
    """R-1, X-11: messages of a session that are deleted for its receiver survive."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("graveyard")
        await bench.queue("q", requires_session=True)
        await bench.publish("q", *[encoded(str(n), group_id="s") for n in range(5)])
        gone = Recorder(100, deletes=True)
        main = bench.namespace.queue("q").main
        await main.accept_session(gone, "s", 5)
        main.wake(gone)
        await settle(3)  # read, not yet committed
        await bench.change("q", forward_dead_lettered_messages_to="graveyard")
        again = Recorder(100, deletes=True)
        main = bench.namespace.queue("q").main
        await main.accept_session(again, "s", 5)
        main.wake(again)
        await settle(60)
        assert sorted(gone.numbers() + again.numbers()) == [1, 2, 3, 4, 5]

    on_a_topic_bench(test)


@pytest.mark.parametrize("turns", [0, 3, 30])
@pytest.mark.parametrize("is_released_first", [True, False])
def test_a_partitioned_queue_keeps_what_is_deleted_for_a_receiver(
    turns: int, is_released_first: bool
) -> None:
    """R-1, ERR-27, P-40: at whatever moment the update comes; receivers are told, and each message comes once."""

    async def test(bench: PartitionBench) -> None:
        await bench.create("graveyard")
        numbers = await bench.put_one_in_each()
        numbers += await bench.put_one_in_each()
        for store in bench.stores[1:]:
            store.hold_commits()
        gone = bench.receiver(deletes=True)
        await settle(turns)
        present = bench.namespace.description("orders")
        wanted = type(present)(**{**vars(present), "forward_dead_lettered_messages_to": "graveyard"})
        changing = bench.namespace.background.start(bench.namespace.update(wanted))
        await settle(0 if is_released_first else 30)
        for store in bench.stores:
            store.release_commits()
        await changing
        assert [type(error) for error in gone.evicted_with] == [EntityUpdated]
        again = bench.receiver(deletes=True)
        await settle(100)
        await bench.advance(1, 0.1)
        assert sorted(gone.numbers() + again.numbers()) == sorted(numbers)
        assert bench.queue.counts().total == 0

    on_partitions(test)


def test_a_message_that_cannot_be_answered_after_the_update_is_put_back() -> None:
    """R-1: over HTTP the answer may fail long after the message was handed over."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("graveyard")
        await bench.queue("q")
        await bench.publish("q", encoded("a"))
        gone = consumer(bench, "q")
        await settle(60)
        outlet = bench.namespace.queue("q").outlet(False)
        outlet.remove_receiver(gone)
        await bench.change("q", forward_dead_lettered_messages_to="graveyard")
        outlet.undeliver(gone.take())
        await bench.advance(1, 0.1)
        assert await bench.bodies("q") == ["a"]

    on_a_topic_bench(test)


def test_messages_to_put_back_wait_for_their_store() -> None:
    """R-1, P-48: it is away at that very moment."""

    async def test(bench: PartitionBench) -> None:
        numbers = await bench.put_one_in_each()
        gone = bench.receiver(deletes=True)
        await settle(60)
        assert sorted(gone.numbers()) == sorted(numbers)
        outlet = bench.outlet()
        outlet.remove_receiver(gone)
        await bench.lose(1)
        outlet.undeliver(gone.take())
        await settle(60)
        assert bench.queue.counts().active == COUNT - 1
        await bench.regain(1)
        await bench.advance(1, 0.1)
        assert sorted(d.message.sequence_number for d in await bench.receive()) == sorted(numbers)

    on_partitions(test)


def test_messages_of_an_entity_that_is_deleted_are_not_put_back() -> None:
    """E-86: messages of an entity that is deleted are not put back."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        await bench.publish("q", encoded("a"))
        gone = consumer(bench, "q")
        await settle(60)
        outlet = bench.namespace.queue("q").outlet(False)
        await bench.namespace.delete("q")
        await bench.queue("q")
        outlet.undeliver(gone.take())
        await bench.advance(1, 0.1)
        assert await bench.bodies("q") == []
        assert not bench.namespace.runtime.undelivered.fragment_ids()

    on_a_topic_bench(test)
