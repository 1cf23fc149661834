"""A namespace made as new: what its stores hold afterwards, whom it tells, and what is written again."""

from __future__ import annotations

import asyncio

import pytest

from busway.model.descriptions import (
    ROOT_RULE_NAME,
    AuthorizationRule,
    NewEntity,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import EntityNotFound, ServerBusy
from busway.rules.rule import Rule, TrueFilter
from busway.store.contract import StoreError
from tests.unit.broker.namespace_bench import Reader, settle
from tests.unit.staging.staging_bench import StagingBench, on_a_staging_bench, texts


async def _furnish(bench: StagingBench) -> None:
    """A bus with some of everything, over all stores."""
    await bench.create("orders", requires_duplicate_detection=True)
    await bench.create("parts", enable_partitioning=True)
    await bench.namespace.create(
        [
            NewEntity(TopicDescription("news")),
            NewEntity(SubscriptionDescription("news/Subscriptions/all"), (Rule("every", TrueFilter()),)),
        ]
    )
    await bench.hub("clicks", 4)
    await bench.send("orders", 3)
    root = bench.namespace.access.rules()
    await bench.namespace.access.set((*root, AuthorizationRule("worker", frozenset({"Listen"}), "", "", 0)))
    await settle()


async def _rows(bench: StagingBench) -> list[set[str]]:
    """By store the kinds of rows that its catalogue has."""
    return [{key.partition(":")[0] for key in (await store.catalogue())[1]} for store in bench.stores]


def test_nothing_is_left_but_what_a_new_namespace_has() -> None:
    """Reset: in memory, in every store's catalogue, and of fragments."""

    async def test(bench: StagingBench) -> None:
        await settle()
        empty = await _rows(bench)
        await _furnish(bench)
        key = bench.namespace.access.root_key
        await bench.namespace.reset()
        await settle(200)
        assert bench.namespace.queues() == []
        assert bench.namespace.topics() == []
        assert bench.hubs.hubs() == []
        assert [rule.name for rule in bench.namespace.access.rules()] == [ROOT_RULE_NAME]
        assert bench.namespace.access.root_key == key
        assert await _rows(bench) == empty
        assert [await store.fragments() for store in bench.stores] == [[]] * len(bench.stores)
        assert [store["fragments"] for store in bench.namespace.stores.shown()] == [0] * len(bench.stores)

    on_a_staging_bench(test, 3)


def test_it_is_as_new_after_a_restart_too() -> None:
    """Reset: what was emptied stays empty."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        await bench.namespace.reset()
        await bench.crash()
        assert bench.namespace.queues() == []
        assert bench.hubs.hubs() == []
        assert await bench.leftovers() == []

    on_a_staging_bench(test, 3)


def test_entities_of_the_same_names_begin_anew() -> None:
    """Reset: neither messages nor numbers nor the history of duplicates come back."""

    async def test(bench: StagingBench) -> None:
        for _ in range(2):
            await _furnish(bench)
            counts = await bench.namespace.counts("orders")
            assert (counts.active, counts.size_bytes > 0) == (3, True)
            peeked = await bench.namespace.queue("orders").outlet(False).peek(0, 250)
            assert [message.sequence_number for message in peeked] == [1, 2, 3]
            assert [rule.name for rule in bench.namespace.rules.of("news/subscriptions/all")] == ["every"]
            await bench.namespace.reset()
            await settle(200)

    on_a_staging_bench(test, 3)


def test_whoever_holds_an_entity_is_told_that_it_is_gone() -> None:
    """E-86: links end as at a deletion."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        reader = Reader()
        bench.namespace.queue("orders").outlet(False).add_receiver(reader)
        await bench.namespace.reset()
        assert isinstance(reader.error, EntityNotFound)

    on_a_staging_bench(test, 3)


def test_staged_and_written_batches_are_forgotten() -> None:
    """Reset: a job of the next test may write under the same name, and the rows of this one are nobody's."""

    async def test(bench: StagingBench) -> None:
        for _ in range(2):
            await bench.create("orders")
            await bench.stage("orders", 1, *texts(0, 3))
            assert not (await bench.decide({1: 3})).is_known
            await bench.publish_all()
            assert len(await bench.rows("orders")) == 3
            await bench.stage("orders", 2, *texts(3, 2), batch=1)
            await bench.namespace.reset()
            await settle(400)
            assert await bench.leftovers() == []
            assert bench.stagings.figures()[:3] == [0, 0, 0]

    on_a_staging_bench(test, 2)


def test_what_is_decided_and_not_yet_published_goes_too() -> None:
    """Reset: a decision whose entity is gone publishes to nobody."""

    async def test(bench: StagingBench) -> None:
        await bench.create("orders")
        await bench.stage("orders", 1, *texts(0, 500))
        await bench.decide({1: 500})
        await bench.namespace.reset()
        await settle(400)
        assert await bench.leftovers() == []
        await bench.create("orders")
        assert await bench.rows("orders") == []

    on_a_staging_bench(test, 2)


def test_a_store_that_was_out_of_service_is_back() -> None:
    """Reset: as a new bus, whose stores are all in service."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        await bench.namespace.stores.disable("store-1")
        await bench.namespace.reset()
        await settle(200)
        assert [store["state"] for store in bench.namespace.stores.shown()] == ["open"] * 3
        assert await bench.stores[1].fragments() == []
        await bench.crash()
        assert [store["state"] for store in bench.namespace.stores.shown()] == ["open"] * 3

    on_a_staging_bench(test, 3)


def test_without_the_home_nothing_is_changed() -> None:
    """ERR-17: all or nothing; the sentence says so."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        bench.stores[0].refuse_next_commit()
        with pytest.raises(ServerBusy, match="nothing was changed"):
            await bench.namespace.reset()
        await bench.advance(1.0, 0.1)
        assert [queue.path for queue in bench.namespace.queues()] == ["orders", "parts"]
        assert (await bench.namespace.counts("orders")).active == 3

    on_a_staging_bench(test, 3)


def test_a_store_that_is_away_is_emptied_when_it_is_back() -> None:
    """Reset: no row names its fragments any more."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        bench.stores[1].refuse_next_commit()
        with pytest.raises(StoreError):
            await bench.namespace.contents.keepers["store-1"].commit(lambda _batch: None)
        await bench.namespace.reset()
        await bench.advance(1.0, 0.1)
        await settle(200)
        assert await bench.stores[1].fragments() == []

    on_a_staging_bench(test, 3)


def test_what_cannot_be_forgotten_yet_is_told_and_goes_the_next_time() -> None:
    """ERR-17: rows of a decided batch lie in a store that hangs; nobody is told that the bus is empty."""

    async def test(bench: StagingBench) -> None:
        await bench.create("home")
        await bench.create("hanging")  # in store-1
        await bench.stage("hanging", 1, *texts(0, 3))
        bench.stores[1].hold_commits()
        await bench.decide({1: 3})
        asked = asyncio.create_task(bench.namespace.reset())
        await settle()
        await bench.advance(11.0, 1.0)
        with pytest.raises(ServerBusy, match="still being published"):
            await asked
        assert await bench.leftovers() != []
        bench.stores[1].release_commits()
        await bench.namespace.reset()
        await settle(400)
        assert await bench.leftovers() == []
        assert bench.namespace.queues() == []

    on_a_staging_bench(test, 2)


def test_whoever_asked_and_has_gone_gets_it_done_all_the_same() -> None:
    """Reset: half a reset would be worse than none."""

    async def test(bench: StagingBench) -> None:
        await _furnish(bench)
        asked = asyncio.create_task(bench.namespace.reset())
        await asyncio.sleep(0)
        asked.cancel()
        await settle(200)
        assert bench.namespace.queues() == []

    on_a_staging_bench(test, 3)
