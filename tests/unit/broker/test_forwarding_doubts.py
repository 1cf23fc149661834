"""Rows that may have gone to a store which nobody has read since: what is known of them outlives the process."""

import asyncio

import pytest

from busway.broker.namespace.catalogue_rows import EntityRow
from busway.model.errors import BrokerError
from busway.store.contract import StoreUnavailable
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.test_forwarding_removed import bodies, ended, read, two_queues
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


def keep_shut(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def shut() -> None:
        raise StoreUnavailable("The disk is away.")

    monkeypatch.setattr(store, "open", shut)


async def of_unknown_outcome(
    bench: TopicBench, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, is_applied: bool
) -> None:
    """Two messages go to a store that fails at their commit and stays away."""
    store.hold_commits()
    await bench.publish("source", encoded("a"), encoded("b"))
    await settle(60)
    keep_shut(store, monkeypatch)
    store.lose_next_commit(is_applied=is_applied)
    store.release_commits()
    await settle(100)


async def die(bench: TopicBench, store: MemoryStore) -> None:
    """And begin a new life, without that store."""
    for other in bench.stores:
        if other is not store:
            await other.flush()
        other.crash()
    await bench.restart()
    await settle(60)


def row_of(bench: TopicBench, path: str = "source") -> EntityRow:
    key = f"queue:{path}"
    return EntityRow.parse(key, bench.namespace.contents.catalogue.rows[key])


@pytest.mark.parametrize("is_applied", [True, False])
def test_rows_of_unknown_outcome_are_held_back_in_the_next_life_too(
    is_applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1: forwarding was removed, and the process died, before the other store could tell."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await of_unknown_outcome(bench, store, monkeypatch, is_applied)
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("new"))
        for _ in range(2):
            await die(bench, store)
            reader = read(bench, "source")
            await settle(60)
            assert bodies(reader) == ["new"], "what came after the update is nobody else's"
        monkeypatch.undo()
        await bench.advance(60, 1)
        await settle(100)
        assert await bench.bodies("target") == (["a", "b"] if is_applied else [])
        assert set(bodies(reader)) == ({"new"} if is_applied else {"new", "a", "b"})
        await ended(bench, "source", "target")
        assert row_of(bench).doubts == ()

    on_a_topic_bench(test, 3)


@pytest.mark.parametrize("is_applied", [True, False])
def test_rows_of_a_former_life_are_held_back_in_all_lives_until_the_store_is_read(
    is_applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1: found by the simulator: the store was away for two lives, and forwarding was moved in the second."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.queue("other")
        assert bench.namespace.contents.entities.rows["other"].store_name != store.name
        await of_unknown_outcome(bench, store, monkeypatch, is_applied)
        await die(bench, store)
        await bench.publish("source", encoded("since"))
        await bench.change("source", forward_to="other")
        await bench.advance(5, 0.5)
        assert await bench.bodies("other") == ["since"]
        await die(bench, store)
        await bench.advance(5, 0.5)
        assert await bench.bodies("other") == ["since"]
        monkeypatch.undo()
        await bench.advance(60, 1)
        await settle(100)
        assert await bench.bodies("target") == (["a", "b"] if is_applied else [])
        assert await bench.bodies("other") == (["since"] if is_applied else ["since", "a", "b"])
        await ended(bench, "source", "target", "other")
        assert row_of(bench).doubts == ()

    on_a_topic_bench(test, 3)


def test_an_update_leaves_no_doubt_where_nothing_is_on_its_way() -> None:
    """F-1: the row says nothing more than it must."""

    async def test(bench: TopicBench) -> None:
        await two_queues(bench)
        await bench.publish("source", encoded("a"))
        await bench.advance(2, 0.5)
        await bench.change("source", forward_to=None)
        assert row_of(bench).doubts == ()
        assert "doubts" not in bench.namespace.contents.catalogue.rows["queue:source"]

    on_a_topic_bench(test, 3)


def test_a_doubt_ends_with_the_run_that_was_on_its_way() -> None:
    """F-1: within one life, without a restart."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"))
        await settle(60)
        await bench.change("source", forward_to=None)
        assert [doubt.gone_to for doubt in row_of(bench).doubts] == [store.name]
        store.release_commits()
        await settle(100)
        assert row_of(bench).doubts == ()
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_nothing_departs_by_the_old_way_while_the_update_is_written() -> None:
    """F-1: the doubt is written with the update and cannot know of what leaves after it."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        home = bench.stores[0]
        home.hold_commits()
        updating = asyncio.create_task(bench.change("source", forward_to=None))
        await settle(30)
        source = bench.namespace.contents.entities.rows["source"]
        here = next(each for each in bench.stores if each.name == source.store_name)
        assert here not in (home, store)
        await bench.publish("source", encoded("late"))
        await settle(60)
        assert await bench.bodies("target") == []
        home.release_commits()
        await updating
        await settle(60)
        assert await bench.bodies("source") == ["late"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


@pytest.mark.parametrize("is_applied", [True, False])
def test_after_an_update_of_unknown_outcome_messages_go_whichever_way_it_was(is_applied: bool) -> None:
    """F-1: they wait until the home says which."""

    async def test(bench: TopicBench) -> None:
        await two_queues(bench)
        home = bench.stores[0]
        home.lose_next_commit(is_applied=is_applied)
        with pytest.raises(BrokerError):
            await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("a"))
        await bench.advance(60, 0.5)
        assert await bench.bodies("source" if is_applied else "target") == ["a"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_an_update_that_is_refused_lets_messages_go_on() -> None:
    """F-1: nothing was changed."""

    async def test(bench: TopicBench) -> None:
        await two_queues(bench)
        bench.stores[0].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("a"))
        await bench.advance(60, 0.5)
        assert await bench.bodies("target") == ["a"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_a_source_whose_store_was_away_at_the_update_gives_out_nothing_that_may_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F-1, P-60: an update needs only the home, so nobody could say how many rows there are."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        source = bench.namespace.contents.entities.rows["source"]
        here = next(each for each in bench.stores if each.name == source.store_name)
        await of_unknown_outcome(bench, store, monkeypatch, True)
        keep_shut(here, monkeypatch)
        await die(bench, store)
        await bench.change("source", forward_to=None)
        monkeypatch.undo()
        keep_shut(store, monkeypatch)
        await bench.advance(60, 1)
        reader = read(bench, "source")
        await settle(60)
        assert bodies(reader) == []
        await bench.publish("source", encoded("new"))
        await settle(60)
        assert bodies(reader) == ["new"]
        monkeypatch.undo()
        await bench.advance(60, 1)
        await settle(100)
        assert await bench.bodies("target") == ["a", "b"]
        assert set(bodies(reader)) == {"new"}
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)
