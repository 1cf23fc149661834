"""ForwardTo is removed or moved while messages are on their way to another store: none is in two queues, and none of
the others waits."""

import asyncio

import pytest

from busway.broker.entity.entity import Queue
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from busway.store.contract import FragmentKey, StoreUnavailable, TransferMark
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import Reader, settle
from tests.unit.broker.rig import unheard
from tests.unit.broker.topic_bench import Seen, TopicBench, encoded, on_a_topic_bench

HOURS_S = 6 * 3600


async def two_queues(bench: TopicBench, **values: object) -> MemoryStore:
    """`source`, which forwards to `target` in another store: that store."""
    await bench.queue("first")  # the home is nobody's destination
    await bench.queue("target")
    await bench.queue("source", forward_to="target", **values)
    rows = bench.namespace.contents.entities.rows
    home = bench.namespace.contents.catalogue.home.name
    assert rows["target"].store_name not in (rows["source"].store_name, home)
    return next(store for store in bench.stores if store.name == rows["target"].store_name)


def read(bench: TopicBench, path: str, *, dead_letter: bool = False) -> Reader:
    reader = Reader()
    outlet = bench.namespace.queue(path).outlet(dead_letter)
    outlet.add_receiver(reader)
    outlet.wake(reader)
    return reader


def bodies(reader: Reader) -> list[str]:
    return [Seen(delivery.message).body for delivery in reader.taken]


async def ended(bench: TopicBench, *paths: str) -> None:
    """Nothing is left of the transfer but what the queues show."""
    assert [await store.transfer_marks() for store in bench.stores] == [[]] * len(bench.stores)
    for path in paths:
        queue = bench.namespace.queue(path)
        for fragment in (queue.main, queue.dead_letter):
            rows = await fragment.store.messages(fragment.key, 0, 0, 1000, 1 << 20)
            assert fragment.counters.active == len(rows.messages)
            assert fragment.counters.bytes == sum(message.size() for message in rows.messages)


def test_what_is_on_its_way_when_forwarding_is_removed_lies_in_one_queue_only() -> None:
    """F-1, F-4: it is held back until its fate is known; everything else is served at once, for hours."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"), encoded("c"))
        await settle(60)
        await bench.change("source", forward_to=None)
        reader = read(bench, "source")
        await settle(60)
        assert bodies(reader) == []
        await bench.publish("source", encoded("new"))
        await settle(60)
        assert bodies(reader) == ["new"]
        await bench.advance(HOURS_S, 600)
        store.release_commits()
        await settle(100)
        assert await bench.bodies("target") == ["a", "b", "c"]
        assert set(bodies(reader)) == {"new"}, "delivered again and again, as nobody completes it"
        assert (await bench.namespace.counts("source")).total == 1
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_what_the_destination_refuses_after_forwarding_was_removed_is_served_here() -> None:
    """F-1: what certainly did not arrive belongs to the source, in its place."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"))
        await settle(60)
        await bench.change("source", forward_to=None)
        reader = read(bench, "source")
        await settle(60)
        assert bodies(reader) == []
        store.refuse_next_commit()
        store.release_commits()
        await settle(100)
        assert bodies(reader) == ["a", "b"]
        await bench.advance(5, 0.5)
        assert await bench.bodies("target") == []
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("is_removed_first", [True, False])
def test_a_commit_of_unknown_outcome_holds_its_rows_back_until_its_store_is_read(
    is_applied: bool, is_removed_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1, F-12: for hours if need be; then they are in one of the queues, whichever it is."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"))
        await settle(60)
        if is_removed_first:
            await bench.change("source", forward_to=None)
        _keep_shut(store, monkeypatch)
        store.lose_next_commit(is_applied=is_applied)
        store.release_commits()
        await settle(100)
        if not is_removed_first:
            await bench.change("source", forward_to=None)
        reader = read(bench, "source")
        await bench.publish("source", encoded("new"))
        await settle(60)
        assert bodies(reader) == ["new"]
        await bench.advance(HOURS_S, 600)
        assert set(bodies(reader)) == {"new"}
        monkeypatch.undo()
        await bench.advance(40, 1)
        await settle(100)
        assert await bench.bodies("target") == (["a", "b"] if is_applied else [])
        assert set(bodies(reader)) == ({"new"} if is_applied else {"new", "a", "b"})
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def _keep_shut(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def shut() -> None:
        raise StoreUnavailable("The disk is away.")

    monkeypatch.setattr(store, "open", shut)


@pytest.mark.parametrize("is_applied", [True, False])
def test_rows_of_unknown_fate_do_not_expire_at_the_source(
    is_applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1, D-11: a message that may have arrived is not dead-lettered here as well."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(
            bench, default_message_time_to_live_ms=60_000, dead_lettering_on_message_expiration=True
        )
        store.hold_commits()
        await bench.publish("source", encoded("a"))
        await settle(60)
        _keep_shut(store, monkeypatch)
        store.lose_next_commit(is_applied=is_applied)
        store.release_commits()
        await settle(100)
        await bench.advance(600)
        assert await bench.bodies("source", dead_letter=True) == []
        monkeypatch.undo()
        await bench.advance(60, 1)
        await settle(100)
        assert await bench.bodies("target") == (["a"] if is_applied else [])
        assert await bench.bodies("source", dead_letter=True) == ([] if is_applied else ["a"])
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_forwarding_to_another_queue_does_not_wait_for_the_first() -> None:
    """F-1: what is on its way arrives there, and only there; all others take the new way at once."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.queue("other")
        assert bench.namespace.contents.entities.rows["other"].store_name != store.name
        store.hold_commits()
        await bench.publish("source", encoded("a"))
        await settle(60)
        await bench.publish("source", encoded("b"))
        await bench.change("source", forward_to="other")
        await settle(60)
        assert await bench.bodies("other") == ["b"]
        await bench.advance(HOURS_S, 600)
        store.release_commits()
        await settle(60)
        await bench.advance(5, 1)
        assert await bench.bodies("target") == ["a"]
        assert await bench.bodies("other") == ["b"]
        assert (await bench.namespace.counts("source")).transfer == 0
        await ended(bench, "source", "target", "other")

    on_a_topic_bench(test, 3)


@pytest.mark.parametrize("is_refused", [True, False])
def test_forwarding_that_is_set_again_keeps_the_order(is_refused: bool) -> None:
    """F-7: rows behind those on their way to the same queue do not overtake them."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"))
        await settle(60)
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("c"))
        await bench.change("source", forward_to="target")
        await bench.publish("source", encoded("d"))
        await bench.advance(30, 1)
        if is_refused:
            store.refuse_next_commit()
        store.release_commits()
        await settle(60)
        await bench.advance(5, 0.5)
        assert await bench.bodies("target") == ["a", "b", "c", "d"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_dead_letters_on_their_way_are_in_one_queue_only() -> None:
    """D-20: the same for ForwardDeadLetteredMessagesTo."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.change("source", forward_to=None, forward_dead_lettered_messages_to="target")
        store.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"))
        await _dead_letter_all(bench, "source")
        await settle(60)
        await bench.change("source", forward_dead_lettered_messages_to=None)
        reader = read(bench, "source", dead_letter=True)
        await bench.publish("source", encoded("new"))
        await _dead_letter_all(bench, "source")
        await settle(60)
        assert bodies(reader) == ["new"]
        store.release_commits()
        await settle(100)
        assert await bench.bodies("target") == ["a", "b"]
        assert bodies(reader) == ["new"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


async def _dead_letter_all(bench: TopicBench, path: str) -> None:
    reader = read(bench, path)
    await settle(30)
    queue = bench.namespace.queue(path)
    queue.main.settle([d.token for d in reader.taken], Settlement(Verb.DEAD_LETTER), unheard)
    queue.main.remove_receiver(reader)
    await settle(30)


def test_a_session_whose_first_messages_are_on_their_way_gives_the_others_out() -> None:
    """F-1, X-5: the next available session is found by what can be had of it."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench, requires_session=True)
        store.hold_commits()
        await bench.publish("source", encoded("a", group_id="x"), encoded("b", group_id="y"))
        await settle(60)
        await bench.publish("source", encoded("c", group_id="x"))
        await bench.change("source", forward_to=None)
        queue = bench.namespace.queue("source")
        reader = Reader()
        session = await queue.main.accept_session(reader, None, 5)
        assert session.session_id == "x"
        queue.main.wake(reader)
        await settle(60)
        assert bodies(reader) == ["c"]
        waiting = asyncio.ensure_future(queue.main.accept_session(Reader(), None, 5))
        await settle(60)
        assert not waiting.done(), "y has nothing to give"
        waiting.cancel()
        store.refuse_next_commit()
        store.release_commits()
        await settle(100)
        assert bodies(reader) == ["c", "a"]
        assert (await queue.main.accept_session(Reader(), None, 5)).session_id == "y"
        await bench.advance(2, 0.5)
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_rows_that_wait_for_a_look_at_ids_are_held_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """F-1, S-49: a destination in the same store may take them in after forwarding was removed."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target", requires_duplicate_detection=True)
        await bench.queue("source", forward_to="target")
        (store,) = bench.stores
        looked = asyncio.Event()
        known_ids = store.known_ids

        async def slow(fragment: FragmentKey, ids: list[str], since_ms: int) -> set[str]:
            await looked.wait()
            return await known_ids(fragment, ids, since_ms)

        monkeypatch.setattr(store, "known_ids", slow)
        await bench.publish("source", encoded("a", message_id="1"), encoded("b", message_id="2"))
        await settle(60)
        await bench.change("source", forward_to=None)
        reader = read(bench, "source")
        await bench.publish("source", encoded("new"))
        await settle(60)
        assert bodies(reader) == ["new"]
        looked.set()
        await settle(100)
        assert await bench.bodies("target") == ["a", "b"]
        assert bodies(reader) == ["new"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 1)


def test_a_store_that_is_opened_while_the_source_changes_forgets_no_mark() -> None:
    """F-1: an entity that is being updated is not gone."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("arrived"), encoded("not yet"))
        source = bench.namespace.contents.entities.rows["source"]
        store.batch().transfer_marks.append(TransferMark(source.store_name, source.main, 1))
        await store.flush()
        entities = bench.namespace.contents.entities
        entities.park("source", BrokerError())
        await bench.namespace.stores.disable(store.name)
        await bench.namespace.stores.enable(store.name)
        await settle(60)
        entities.unpark("source")
        entities.load(source)
        await settle(60)
        assert await bench.bodies("source") == ["not yet"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_rows_that_turn_out_to_have_arrived_leave_even_from_a_receivers_hands() -> None:
    """F-1, R-17: counted once; whoever holds one has lost its lock."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("arrived"), encoded("not yet"))
        reader = read(bench, "source")
        await settle(60)
        assert bodies(reader) == ["arrived", "not yet"]
        source = bench.namespace.contents.entities.rows["source"]
        store.batch().transfer_marks.append(TransferMark(source.store_name, source.main, 1))
        await store.flush()
        await bench.namespace.stores.disable(store.name)
        await bench.namespace.stores.enable(store.name)
        await settle(60)
        assert await _completed(bench.namespace.queue("source"), reader) == [0]
        assert (await bench.namespace.counts("source")).total == 0
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


async def _completed(queue: Queue, reader: Reader) -> list[int]:
    """Which of its deliveries could not be completed."""
    told: list[int] = []
    tokens = [delivery.token for delivery in reader.taken]
    queue.main.settle(
        tokens, Settlement(Verb.COMPLETE), lambda refused: told.extend(place for place, _ in refused)
    )
    await settle(60)
    return told


@pytest.mark.parametrize("is_applied", [True, False])
def test_after_a_restart_without_the_destinations_store_nothing_of_before_is_handed_out(
    is_applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1: a run may have been under way when the process died, and only the other store knows."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("a"), encoded("b"))
        await bench.change("target", status="SendDisabled")
        await bench.change("source", forward_to="target")
        source = bench.namespace.contents.entities.rows["source"]
        if is_applied:
            store.batch().transfer_marks.append(TransferMark(source.store_name, source.main, 1))
            await store.flush()
        _keep_shut(store, monkeypatch)
        await bench.restart()
        await settle(60)
        await bench.publish("source", encoded("since"))
        await bench.change("source", forward_to=None)
        reader = read(bench, "source")
        await bench.publish("source", encoded("new"))
        await settle(60)
        assert bodies(reader) == ["since", "new"]
        monkeypatch.undo()
        await bench.advance(60, 1)
        await settle(100)
        assert set(bodies(reader)) == ({"since", "new", "b"} if is_applied else {"since", "new", "a", "b"})
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)


def test_a_source_that_is_deleted_while_its_rows_are_on_their_way_leaves_no_mark() -> None:
    """E-86: nor does it when a queue of that name is made again."""

    async def test(bench: TopicBench) -> None:
        store = await two_queues(bench)
        store.hold_commits()
        await bench.publish("source", encoded("a"))
        await settle(60)
        await bench.namespace.delete("source")
        await bench.queue("source")
        await bench.publish("source", encoded("mine"))
        store.release_commits()
        await settle(100)
        assert await bench.bodies("target") == ["a"]
        assert await bench.bodies("source") == ["mine"]
        await ended(bench, "source", "target")

    on_a_topic_bench(test, 3)
