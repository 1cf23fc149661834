"""Forwarding while some of its destinations are not to be had: the others do not wait for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.broker.forward.transfers import DestinationsOnHold
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import Message, read_head
from busway.model.descriptions import QueueDescription
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, Page
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, bodies, text
from tests.unit.broker.test_partitioned_topics import make, on_stores, publish, taken
from tests.unit.broker.topic_bench import encoded

KEYS = {fragment_of_key(f"key-{n}", COUNT): f"key-{n}" for n in range(100)}
#: More than a forwarder reads at once.
BACKLOG = 1_100


async def send_via(bench: PartitionBench, via: str, *wanted: tuple[str, str]) -> None:
    """(destination, body) one after the other."""
    await bench.namespace.transfer_queues.prepare(via)
    for destination, body in wanted:
        link = bench.namespace.transfer_queues.send_via(via, destination)
        assert link is not None
        refused: list[tuple[int, BrokerError]] = []
        link.send([Message(b"", body.encode())], refused.extend)
        assert refused == []
        await settle()


async def on_different_stores(bench: PartitionBench, *names: str) -> dict[str, int]:
    """Plain queues, and the number of the store that each lies in."""
    places = {}
    for name in names:
        await make(bench, QueueDescription(name))
        row = bench.namespace.contents.entities.rows[name]
        places[name] = int(row.shares[0].store_name.removeprefix("store-"))
    assert len(set(places.values())) == len(names)
    return places


def test_one_destination_without_its_store_holds_nobody_up() -> None:
    """TX-3, F-12: of what is sent via one entity, only what is for that destination waits; then it comes in order."""

    async def test(bench: PartitionBench) -> None:
        places = await on_different_stores(bench, "via", "sick", "well")
        await send_via(bench, "via", ("well", "first"))
        await bench.lose(places["sick"])
        # The sick one cannot be attached to now: these were sent before, and wait in the transfer queue.
        await bench.regain(places["sick"])
        bench.stores[places["well"]].hold_commits()
        await send_via(bench, "via", ("well", "a0"))
        await send_via(bench, "via", *[("sick" if n % 2 else "well", str(n)) for n in range(1, 9)])
        await bench.lose(places["sick"])
        bench.stores[places["well"]].release_commits()
        await settle(200)
        await bench.advance(3, 1.0)
        assert bodies(await taken(bench, "well")) == ["first", "a0", "2", "4", "6", "8"]
        await bench.regain(places["sick"])
        await bench.advance(3, 1.0)
        await settle(200)
        assert bodies(await taken(bench, "sick")) == ["1", "3", "5", "7"]
        assert bodies(await taken(bench, "well")) == []
        assert [await store.transfer_marks() for store in bench.stores] == [[]] * COUNT

    on_stores(test)


def test_a_destination_that_refuses_costs_the_others_no_time() -> None:
    """TX-3, D-22, F-12: its messages are tried for some seconds, all of them at once, and dead-lettered."""

    async def test(bench: PartitionBench) -> None:
        await on_different_stores(bench, "via", "refusing", "well")
        await bench.namespace.update(QueueDescription("refusing", status="SendDisabled"))
        await send_via(bench, "via", *[("refusing" if n % 2 else "well", str(n)) for n in range(10)])
        await settle(200)
        assert bodies(await taken(bench, "well")) == ["0", "2", "4", "6", "8"]
        await bench.advance(8, 1.0)
        await settle(200)
        transfers = bench.namespace.transfer_queues.of("via")
        assert transfers is not None
        counts = transfers.counts()
        assert (counts.active, counts.dead_letter) == (0, 5)

    on_stores(test)


def test_a_backlog_for_one_fragment_holds_no_other_up() -> None:
    """F-8, F-12, P-65: keys whose fragment is there pass by more than one page of those whose is not."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("target", enable_partitioning=True), QueueDescription("source"))
        home = bench.namespace.contents.entities.rows["source"].shares[0].store_name
        lost = next(index for index in range(COUNT) if f"store-{index}" != home)
        other = next(index for index in range(COUNT) if index != lost)
        for start in range(0, BACKLOG, 100):
            stuck = [text(f"s{start + n}", partition_key=KEYS[lost]) for n in range(100)]
            assert (await publish(bench, *stuck, path="source")).refused == []
        await publish(bench, *[text(f"o{n}", partition_key=KEYS[other]) for n in range(5)], path="source")
        await bench.lose(lost)
        source = bench.namespace.description("source")
        assert isinstance(source, QueueDescription)
        await bench.namespace.update(replace(source, forward_to="target"))
        await settle(300)
        assert bodies(await taken(bench, "target")) == [f"o{n}" for n in range(5)]
        await publish(bench, text("later", partition_key=KEYS[other]), path="source")
        await settle(100)
        assert bodies(await taken(bench, "target")) == ["later"]
        await publish(bench, text(f"s{BACKLOG}", partition_key=KEYS[lost]), path="source")
        await bench.advance(4, 1.0)
        await bench.regain(lost)
        await bench.advance(3, 1.0)
        await settle(600)
        found = [*await taken(bench, "target"), *await taken(bench, "target")]
        assert bodies(found) == [f"s{n}" for n in range(BACKLOG + 1)]
        assert (await bench.namespace.counts("source")).total == 0

    on_stores(test)


def test_what_is_known_to_wait_is_not_read_again_for_each_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """F-12: neither for an arrival nor for each try, however long the backlog is."""
    reads: list[int] = []
    read = MemoryStore.messages

    async def counted(
        store: MemoryStore, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        reads.append(after)
        return await read(store, fragment, place, after, limit, bytes_max)

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("target", enable_partitioning=True))
        await make(bench, QueueDescription("source", forward_to="target"))
        home = bench.namespace.contents.entities.rows["source"].shares[0].store_name
        lost = next(index for index in range(COUNT) if f"store-{index}" != home)
        await bench.lose(lost)
        for start in range(0, 4_000, 100):
            stuck = [text(f"s{start + n}", partition_key=KEYS[lost]) for n in range(100)]
            await publish(bench, *stuck, path="source")
        await bench.advance(2, 1.0)
        await settle(100)
        monkeypatch.setattr(MemoryStore, "messages", counted)
        for n in range(10):
            await publish(bench, text(f"o{n}", partition_key=KEYS[(lost + 1) % COUNT]), path="source")
        assert len(reads) <= 2 * 10
        reads.clear()
        await bench.advance(5, 1.0)
        assert 5 <= len(reads) <= 4 * 5

    on_stores(test)


# -- the record itself


def test_a_try_that_finds_the_same_destinations_shut_skips_what_waits_for_them() -> None:
    """F-12: the mark of the last try counts again as soon as all of them are held again."""
    held = DestinationsOnHold()
    held.hold(("a", 0))
    held.hold(("b", 1))
    held.waits_up_to(900)
    assert (held.start, held.holds(("a", 0)), held.holds(("c", 0))) == (900, True, False)
    held.try_again()
    assert (held.start, held.holds(("a", 0))) == (0, False)
    held.hold(("a", 0))
    assert held.next_after(10) == 10
    held.hold(("b", 1))
    assert held.next_after(20) == 900
    assert held.start == 900
    assert held.next_after(950) == 950


def test_a_whole_entity_is_held_with_all_its_fragments() -> None:
    """F-12, E-86: a whole entity is held with all its fragments."""
    held = DestinationsOnHold()
    held.hold(("a", None))
    assert held.holds(("a", 3))
    assert not held.holds(("b", 3))


def test_a_row_that_comes_late_with_a_low_number_is_seen() -> None:
    """D-20, D-21: dead letters keep their numbers, and need not come in their order."""
    held = DestinationsOnHold()
    held.hold(("a", None))
    held.waits_up_to(10)
    held.arrived(12)
    assert held.start == 10
    held.arrived(5)
    assert held.start == 4
    held.waits_up_to(10)
    held.try_again()
    held.arrived(7)
    held.hold(("a", None))
    assert held.next_after(2) == 6


def test_dead_letters_behind_one_that_stays_for_ever_move_on() -> None:
    """D-20, D-21: one that went too far stays; one with a lower number that is dead-lettered later does not."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("graveyard"), QueueDescription("target", status="SendDisabled"))
        await make(
            bench,
            QueueDescription("source", forward_to="target", forward_dead_lettered_messages_to="graveyard"),
        )
        far, refused = (message_of(encoded(body), False, bench.limits) for body in ("far", "refused"))
        head = read_head(far.head)
        head.hops = bench.limits.forwarding_hops_max
        far.head = head.encoded()
        await publish(bench, refused, path="source")
        await publish(bench, far, path="source")
        await bench.advance(2, 1.0)
        counts = await bench.namespace.counts("source")
        assert (counts.transfer, counts.dead_letter) == (1, 1)
        await bench.advance(6, 1.0)
        await settle(200)
        (moved,) = await taken(bench, "graveyard")
        assert b"refused" in moved.message.bare
        assert (await bench.namespace.counts("source")).dead_letter == 1

    on_stores(test)


def test_a_destination_that_is_held_later_does_not_put_the_next_try_off() -> None:
    """F-12, TX-3: however often another one joins those that wait."""

    async def test(bench: PartitionBench) -> None:
        names = [f"q{n}" for n in range(8)]
        for name in ("via", *names):
            await make(bench, QueueDescription(name))
        for name in names:
            await bench.namespace.update(QueueDescription(name, status="SendDisabled"))
        await send_via(bench, "via", ("q0", "early"))
        await bench.namespace.update(QueueDescription("q0"))
        for name in names[1:4]:
            await bench.advance(0.4)
            await send_via(bench, "via", (name, "late"))
        await settle(100)
        assert bodies(await taken(bench, "q0")) == ["early"]

    on_stores(test)
