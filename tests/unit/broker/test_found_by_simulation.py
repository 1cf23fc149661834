"""What the simulator found (`tests.simulator`), each as small as it can be made."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from busway.broker.fragment.outlet import Outlet
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.store.contract import FragmentKey, Page, StoreError, TimedRow, TransferMark
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import PartitionBench, on_partitions, text
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

Refused = list[tuple[int, BrokerError]]


def _send(bench: TopicBench, path: str, *messages: Message) -> list[Refused]:
    """Not waited for."""
    answers: list[Refused] = []
    bench.namespace.sender(path).send(list(messages), answers.append)
    return answers


def _later(bench: TopicBench, body: str, seconds: float) -> Message:
    message = message_of(encoded(body), False)
    message.scheduled_at_ms = bench.clock.wall_ms() + round(seconds * 1000)
    return message


def test_a_schedule_whose_commit_is_under_way_when_an_earlier_one_is_due_is_not_forgotten() -> None:
    """S-34, S-35: the look for the next time could not see it yet."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        _send(bench, "q", _later(bench, "first", 1))
        await bench.advance(0.9, 0.1)
        bench.stores[0].hold_commits()
        answers = _send(bench, "q", _later(bench, "second", 5))
        await bench.advance(0.2, 0.05)
        bench.stores[0].release_commits()
        await settle()
        assert answers == [[]]
        await bench.advance(10, 0.5)
        counts = await bench.namespace.counts("q")
        assert (counts.active, counts.scheduled) == (2, 0)

    on_a_topic_bench(test)


def test_a_schedule_that_falls_due_during_a_slow_look_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S-34, S-35: it rang while the activator was busy with what it had read before."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        await bench.advance(0.1)  # the first look is over
        store = bench.stores[0]
        read, gate = store.next_due_ms, asyncio.Event()

        async def slow(after_ms: int) -> int | None:
            found = await read(after_ms)
            await gate.wait()
            return found

        monkeypatch.setattr(store, "next_due_ms", slow)
        _send(bench, "q", _later(bench, "first", 1))
        await bench.advance(1.1, 0.1)
        _send(bench, "q", _later(bench, "second", 1))
        await bench.advance(2, 0.1)
        gate.set()
        await bench.advance(2, 0.1)
        counts = await bench.namespace.counts("q")
        assert (counts.active, counts.scheduled) == (2, 0)

    on_a_topic_bench(test)


def test_a_schedule_whose_commit_is_under_way_at_its_own_time_is_not_forgotten() -> None:
    """S-34, S-35: the look at what is due could not see it yet, and the next one asked for what comes later."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        await bench.advance(0.1)
        bench.stores[0].hold_commits()
        answers = _send(bench, "q", _later(bench, "due", 1))
        await bench.advance(1.5, 0.2)  # it rings between two milliseconds, as clocks do
        bench.stores[0].release_commits()
        await settle()
        assert answers == [[]]
        await bench.advance(10, 0.5)
        counts = await bench.namespace.counts("q")
        assert (counts.active, counts.scheduled) == (1, 0)

    on_a_topic_bench(test)


def test_an_expiry_out_of_order_whose_commit_is_under_way_at_a_sweep_is_not_forgotten() -> None:
    """M-44, D-11: the sweep of entries could not see it yet."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", dead_lettering_on_message_expiration=True)
        never, first = message_of(encoded("never"), False), message_of(encoded("first"), False)
        first.ttl_ms = 1_000
        _send(bench, "q", never, first)
        await bench.advance(0.9, 0.1)
        bench.stores[0].hold_commits()
        second = message_of(encoded("second"), False)
        second.ttl_ms = 5_000
        answers = _send(bench, "q", second)
        await bench.advance(0.2, 0.05)
        bench.stores[0].release_commits()
        await settle()
        assert answers == [[]]
        await bench.advance(10, 0.5)
        assert await bench.bodies("q", dead_letter=True) == ["first", "second"]

    on_a_topic_bench(test)


def test_an_expiry_out_of_order_whose_commit_is_under_way_at_its_own_time_is_not_forgotten() -> None:
    """M-44, D-11: as of a schedule."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", dead_lettering_on_message_expiration=True)
        _send(bench, "q", message_of(encoded("never"), False))
        await bench.advance(0.1)
        bench.stores[0].hold_commits()
        brief = message_of(encoded("brief"), False)
        brief.ttl_ms = 1_000
        answers = _send(bench, "q", brief)
        await bench.advance(1.5, 0.2)
        bench.stores[0].release_commits()
        await settle()
        assert answers == [[]]
        await bench.advance(10, 0.5)
        assert await bench.bodies("q", dead_letter=True) == ["brief"]

    on_a_topic_bench(test)


def test_an_activator_whose_store_failed_leaves_it_to_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-34: after outages one looks for what is due, not one more for each of them."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        store, looks = bench.stores[0], 0
        _send(bench, "q", _later(bench, "due", 60))
        await bench.advance(0.1)
        read = store.due

        async def slow(now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
            nonlocal looks
            looks += 1
            await settle(60)
            return await read(now_ms, limit, after)

        monkeypatch.setattr(store, "due", slow)
        for _ in range(5):
            store.refuse_next_commit()
            _send(bench, "q", message_of(encoded("lost"), False))
            await bench.advance(0.5, 0.1)  # comes back, and looks
        await settle(200)
        await bench.advance(40)
        looks = 0
        await bench.advance(30)
        await settle(300)
        assert (await bench.namespace.counts("q")).active == 1
        assert looks <= 3

    on_a_topic_bench(test)


REQUESTS: dict[str, Callable[[Outlet, list[int]], Awaitable[object]]] = {
    "peek": lambda outlet, _numbers: outlet.peek(0, 10),
    "cancel": lambda outlet, numbers: outlet.cancel_scheduled(numbers),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_read_that_fails_on_one_fragment_asks_the_client_to_come_again(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-17, P-50: server-busy, as on a plain entity, not a fault of ours."""

    async def fails(*arguments: object) -> object:
        raise StoreError(f"The disk cannot be read: {len(arguments)}")

    async def test(bench: PartitionBench) -> None:
        due_ms = bench.clock.wall_ms() + 10_000
        numbers = await bench.put(*[text(f"{n}", scheduled_at_ms=due_ms) for n in range(4)])
        for name in ("peek", "by_number"):
            monkeypatch.setattr(bench.stores[2], name, fails)
        with pytest.raises(ServerBusy):
            await REQUESTS[request_name](bench.outlet(), numbers)

    on_partitions(test)


def test_an_entity_whose_creation_has_an_unknown_outcome_can_be_used_if_it_turns_out_to_exist() -> None:
    """E-1, P-60: its fragments lie in stores that never failed; only the catalogue's home did."""

    async def test(bench: TopicBench) -> None:
        bench.stores[0].lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.queue("q", enable_partitioning=True)
        await bench.advance(5, 0.5)
        assert bench.namespace.exists("q")
        answers = _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(80)])
        await settle(60)
        assert answers == [[]]
        assert (await bench.namespace.counts("q")).active == 80

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_fragments_that_belong_to_nobody_go_when_the_home_is_back(verb: str, is_applied: bool) -> None:
    """E-86, P-60: they lie in stores that never failed, where nobody would look for them until the next start."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("kept", enable_partitioning=True)
        if verb == "delete":
            await bench.queue("q", enable_partitioning=True)
            answers = _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(80)])
            await settle(60)
            assert answers == [[]]
        bench.stores[0].lose_next_commit(is_applied=is_applied)
        with pytest.raises(StoreOutcomeUnknown):
            await (
                bench.queue("q", enable_partitioning=True)
                if verb == "create"
                else bench.namespace.delete("q")
            )
        await bench.advance(5, 0.5)
        exists = is_applied is (verb == "create")
        assert bench.namespace.exists("q") is exists
        owners = {"kept", "q"} if exists else {"kept"}
        for store in bench.stores:
            assert {row.owner.partition("/")[0] for row in await store.fragments()} == owners
        if not exists:
            await bench.queue("q", enable_partitioning=True)
        answers = _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(80)])
        await settle(60)
        assert answers == [[]]
        assert (await bench.namespace.counts("q")).active == (160 if exists and verb == "delete" else 80)

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


def test_a_creation_that_turns_out_to_be_is_known_though_a_store_could_not_be_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E-1, P-60: the entity was there, and nobody knew its counters in a store that had stayed in service."""

    async def test(bench: TopicBench) -> None:
        store = bench.stores[1]
        read, faults = store.fragments, [StoreError("It could not be read.")]

        async def failing(*keys: object) -> object:
            if faults:
                raise faults.pop()
            return await read(*keys)  # type: ignore[arg-type]

        bench.stores[0].lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.queue("q", enable_partitioning=True)
        monkeypatch.setattr(store, "fragments", failing)
        await bench.advance(10, 0.5)
        assert not faults
        answers = _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(80)])
        await settle(60)
        assert answers == [[]]
        assert (await bench.namespace.counts("q")).active == 80

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


def test_a_store_that_is_opened_while_a_creation_is_in_doubt_keeps_its_part_of_it() -> None:
    """E-1, P-60: its fragments looked as if they were nobody's, because the home had not said yet whose they are."""

    async def test(bench: TopicBench) -> None:
        bench.stores[0].lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.queue("q", enable_partitioning=True)
        keeper = bench.namespace.contents.keepers["store-1"]
        await keeper.disable()
        await keeper.enable()
        await bench.advance(5, 0.5)
        answers = _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(80)])
        await settle(60)
        assert answers == [[]]
        assert (await bench.namespace.counts("q")).active == 80

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


def test_rows_on_their_way_are_counted_once_when_a_destination_store_comes_back_meanwhile() -> None:
    """F-1, E-101, P-48: what has arrived there is deleted by the run that is still under way, by nobody else."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target", enable_partitioning=True)
        await bench.queue("source", forward_to="target")
        home = bench.namespace.contents.entities.rows["source"].store_name
        slow, lost = [store for store in bench.stores if store.name not in (home, "store-0")][:2]
        slow.hold_commits()
        for key in ("key-0", "key-1", "key-2", "key-3", "key-4", "key-5", "key-6", "key-7"):
            message = message_of(encoded(key), False)
            message.partition_key = key
            _send(bench, "source", message)
        await settle(60)
        counters = bench.namespace.queue("source").main.counters
        assert counters.active > 0, "a run is under way"
        await bench.namespace.stores.disable(lost.name)
        await bench.namespace.stores.enable(lost.name)
        await settle(60)
        slow.release_commits()
        await bench.advance(10, 0.5)
        assert (counters.active, counters.bytes) == (0, 0)
        assert (await bench.namespace.counts("target")).active == 8

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


def test_a_store_that_is_disabled_while_it_comes_back_leaves_nothing_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P-30, D-11: a fragment that outlived such a moment shared its rows with the next one, and each hid some."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", enable_partitioning=True)
        store, gate = bench.stores[1], asyncio.Event()
        reopen = store.reopen

        async def slow() -> None:
            await gate.wait()
            await reopen()

        monkeypatch.setattr(store, "reopen", slow)
        store.refuse_next_commit()
        _send(bench, "q", *[message_of(encoded(f"{n}"), False) for n in range(8)])
        await bench.advance(0.5, 0.1)  # it failed, and an attempt to open it is under way
        disabling = asyncio.create_task(bench.namespace.stores.disable(store.name))
        await settle(60)
        gate.set()
        await settle(60)
        await disabling
        fragments = bench.namespace.queue("q").outlet(False).fragments()
        assert [fragment.store.name for fragment in fragments] == ["store-0", "store-2", "store-3"]

    on_a_topic_bench(test, 4, replace(Limits(), partition_count=4))


@pytest.mark.parametrize("then", ["another", None])
def test_a_forwarder_that_was_reading_when_its_entity_turned_elsewhere_sends_nothing(
    then: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-1: what it read belongs to its successor; it went to both targets, or stayed and went."""

    async def test(bench: TopicBench) -> None:
        for path in ("source", "one", "another"):
            await bench.queue(path)
        _send(bench, "source", message_of(encoded("a"), False))
        await settle(60)
        source = bench.namespace.queue("source").main
        read, gate = source.store.messages, asyncio.Event()

        async def slow(fragment: FragmentKey, place: int, after: int, count: int, size: int) -> Page:
            found = await read(fragment, place, after, count, size)
            await gate.wait()
            return found

        monkeypatch.setattr(source.store, "messages", slow)
        await bench.change("source", forward_to="one")
        await settle(20)
        monkeypatch.setattr(source.store, "messages", read)
        await bench.change("source", forward_to=then)
        gate.set()
        await bench.advance(5, 0.5)
        where = {path: await bench.bodies(path) for path in ("source", "one", "another")}
        assert where == {"source": [], "one": [], "another": [], then or "source": ["a"]}

    on_a_topic_bench(test, 3)


def test_an_update_of_forwarding_whose_outcome_was_unknown_counts_when_it_took_place() -> None:
    """F-1, E-33: the catalogue's home is back and tells of it; the entity lies in another store and is loaded."""

    async def test(bench: TopicBench) -> None:
        home = bench.namespace.contents.catalogue.home.name
        for path in ("source", "other", "target"):
            await bench.queue(path)
        rows = bench.namespace.contents.entities.rows
        path = next(path for path in ("source", "other") if rows[path].store_name != home)
        assert rows["target"].store_name != home
        _send(bench, path, message_of(encoded("a"), False))
        await settle(60)
        next(store for store in bench.stores if store.name == home).lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.change(path, forward_to="target")
        await bench.advance(5, 0.5)
        assert bench.namespace.description(path).forward_to == "target"  # type: ignore[union-attr]
        assert await bench.bodies("target") == ["a"]

    on_a_topic_bench(test, 3)


def test_an_entity_that_is_updated_meanwhile_is_still_prepared_to_be_sent_via() -> None:
    """TX-3, TX-22: who waited for the update was told that there is no such entity."""

    async def test(bench: TopicBench) -> None:
        for path in ("via", "target"):
            await bench.queue(path)
        updating = asyncio.create_task(bench.change("via", user_metadata="new"))
        await asyncio.sleep(0)
        await bench.namespace.transfer_queues.prepare("via")
        await updating
        assert bench.namespace.transfer_queues.send_via("via", "target") is not None

    on_a_topic_bench(test)


def test_what_has_arrived_in_a_store_that_is_opened_last_is_not_sent_elsewhere_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F-1: the process died after forwarding was turned elsewhere and before the source had deleted what had gone."""

    async def test(bench: TopicBench) -> None:
        for path in ("first", "source", "before", "now"):  # the first and the last lie in one store
            await bench.queue(path)
        rows = bench.namespace.contents.entities.rows
        source, last = rows["source"], bench.stores[-1]
        assert (rows["before"].store_name, rows["now"].store_name) == (last.name, "store-0")
        _send(bench, "source", message_of(encoded("gone"), False), message_of(encoded("here"), False))
        await settle(60)
        last.batch().transfer_marks.append(TransferMark(source.store_name, source.main, 1))
        await last.flush()
        read = last.transfer_marks
        bench.stores[1].hold_commits()
        _send(bench, "source", message_of(encoded("never committed"), False))
        updating = asyncio.create_task(bench.change("source", forward_to="now"))
        await settle(60)
        bench.stores[1].crash()

        async def slow() -> list[TransferMark]:
            await settle(100)
            return await read()

        monkeypatch.setattr(last, "transfer_marks", slow)
        bench.stores[1].release_commits()
        await bench.restart()
        await bench.advance(5, 0.5)
        updating.cancel()
        assert await bench.bodies("now") == ["here"]

    on_a_topic_bench(test, 3)


def test_a_store_that_is_enabled_before_it_is_closed_comes_back_with_all_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P-61, M-35: what was read before the last commit of its life before knew nothing of that commit's numbers."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("first")  # in the home, which cannot be disabled while its commits hang
        await bench.queue("q")
        store, gate = bench.stores[1], asyncio.Event()
        assert bench.namespace.contents.entities.rows["q"].store_name == store.name
        close = store.close

        async def slow() -> None:
            await gate.wait()
            await close()

        monkeypatch.setattr(store, "close", slow)
        store.hold_commits()
        _send(bench, "q", message_of(encoded("a"), False))
        await settle()
        disabling = asyncio.create_task(bench.namespace.stores.disable(store.name))
        await settle()
        enabling = asyncio.create_task(bench.namespace.stores.enable(store.name))
        await settle()
        with contextlib.suppress(ServerBusy):
            _send(bench, "q", message_of(encoded("b"), False))
        await settle()
        gate.set()
        await asyncio.gather(disabling, enabling)
        await bench.advance(60, 1)
        await bench.publish("q", encoded("c"))
        assert await bench.bodies("q") in (["a", "c"], ["a", "b", "c"])

    on_a_topic_bench(test, 2)
