"""Queues that nobody uses go away; queues in use stay."""

from dataclasses import replace

import pytest

from busway.model.errors import BrokerError, EntityNotFound
from tests.unit.broker.namespace_bench import Link, NamespaceBench, Reader, on_a_bench

_IDLE_S = 300
_IDLE_MS = _IDLE_S * 1000


async def _create(bench: NamespaceBench) -> None:
    await bench.create("q", auto_delete_on_idle_ms=_IDLE_MS)


def test_an_unused_queue_is_deleted_and_its_links_are_told() -> None:
    """E-30, E-110, E-86: after its idle time, not before, with not-found."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("stays")
        await _create(bench)
        link = Link()
        bench.namespace.queue("q").attach(link, sends=True)
        await bench.advance(_IDLE_S - 1)
        assert bench.namespace.exists("q")
        await bench.advance(2)
        assert not bench.namespace.exists("q")
        assert isinstance(link.error, EntityNotFound)
        assert bench.namespace.exists("stays")
        assert not (await bench.restart()).exists("q")

    on_a_bench(test)


def test_stored_messages_do_not_keep_a_queue_alive() -> None:
    """E-113: unread messages go with it; sending was a use."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.advance(200)
        await bench.send("q", 3)
        await bench.advance(_IDLE_S - 1)
        assert bench.namespace.exists("q")
        await bench.advance(12)
        assert not bench.namespace.exists("q")

    on_a_bench(test)


@pytest.mark.parametrize("use", ["send", "update", "peek", "wake"])
def test_a_use_starts_the_time_anew(use: str) -> None:
    """E-111: send, receive, update and peek."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.send("q")
        await bench.advance(290)
        queue = bench.namespace.queue("q")
        if use == "send":
            await bench.send("q")
        elif use == "update":
            await bench.namespace.update(replace(queue.description, max_delivery_count=3))
        elif use == "peek":
            await queue.outlet(False).peek(0, 1)
        else:
            reader = Reader()
            queue.outlet(False).add_receiver(reader)
            queue.outlet(False).wake(reader)
            queue.outlet(False).remove_receiver(reader)
        await bench.advance(_IDLE_S - 1)
        assert bench.namespace.exists("q")
        await bench.advance(62)
        assert not bench.namespace.exists("q")

    on_a_bench(test)


def test_a_scheduled_message_keeps_a_queue_alive() -> None:
    """E-111, E-113: until it has become active and the idle time has passed."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.send("q", scheduled_at_ms=bench.clock.wall_ms() + 1_000_000)
        await bench.advance(999)
        assert bench.namespace.exists("q")
        await bench.advance(_IDLE_S - 10)
        assert bench.namespace.exists("q")
        await bench.advance(80)
        assert not bench.namespace.exists("q")

    on_a_bench(test)


def test_a_waiting_receiver_keeps_a_queue_alive() -> None:
    """E-111: a receive request that waits is a use that lasts."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        reader = Reader()
        bench.namespace.queue("q").outlet(False).add_receiver(reader)
        await bench.advance(1000)
        assert bench.namespace.exists("q")
        bench.namespace.queue("q").outlet(False).remove_receiver(reader)
        await bench.advance(_IDLE_S - 1)
        assert bench.namespace.exists("q")
        await bench.advance(65)
        assert not bench.namespace.exists("q")

    on_a_bench(test)


def test_time_during_which_the_bus_was_down_does_not_count() -> None:
    """E-110: nobody could use it then."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.namespace.close()
        bench.clock.advance(10_000)
        namespace = await bench.restart()
        await bench.advance(_IDLE_S - 1)
        assert namespace.exists("q")
        await bench.advance(2)
        assert not namespace.exists("q")

    on_a_bench(test)


def test_the_time_can_be_changed() -> None:
    """E-30: shorter, and to never."""

    async def test(bench: NamespaceBench) -> None:
        first = await bench.create("q", auto_delete_on_idle_ms=86_400_000)
        second = await bench.create("r", auto_delete_on_idle_ms=_IDLE_MS)
        forever = (await bench.create("s")).auto_delete_on_idle_ms
        await bench.namespace.update(replace(first, auto_delete_on_idle_ms=_IDLE_MS))
        await bench.namespace.update(replace(second, auto_delete_on_idle_ms=forever))
        await bench.advance(_IDLE_S + 2)
        assert [description.path for description in bench.namespace.queues()] == ["r", "s"]

    on_a_bench(test)


def test_a_deletion_that_fails_is_tried_again() -> None:
    """E-110: the home may be away for a moment."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.create("other")
        await bench.advance(_IDLE_S - 1)
        bench.stores[0].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send("other")
        assert bench.namespace.exists("q")
        await bench.advance(10, 0.5)
        assert not bench.namespace.exists("q")

    on_a_bench(test)


def test_a_name_made_again_starts_afresh() -> None:
    """E-86, E-110: the use of the old one is not the use of the new one, and the other way round."""

    async def test(bench: NamespaceBench) -> None:
        await _create(bench)
        await bench.send("q", scheduled_at_ms=bench.clock.wall_ms() + 10_000_000)
        await bench.advance(120)
        await bench.namespace.delete("q")
        await _create(bench)
        await bench.advance(_IDLE_S + 2)
        assert not bench.namespace.exists("q")

    on_a_bench(test)
