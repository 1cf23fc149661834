"""A queue and its links."""

from dataclasses import replace

import pytest

from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.settings import FragmentSettings
from busway.model.descriptions import QueueDescription
from busway.model.errors import BrokerError, EntityDisabled, EntityNotFound, ServerBusy
from busway.model.settlement import Verb
from tests.unit.broker.rig import Rig, bodies, play, text


class Link(Attachment):
    def __init__(self) -> None:
        self.evicted_with: list[type[BrokerError]] = []

    def evict(self, error: BrokerError) -> None:
        self.evicted_with.append(type(error))


def _update(rig: Rig, description: QueueDescription) -> None:
    limits = rig.queue.main.runtime.limits
    rig.queue.replace_description(
        description,
        FragmentSettings.of_queue(description, limits),
        FragmentSettings.of_queue(description, limits, dead_letter=True),
    )


def test_a_change_of_status_detaches_links_that_are_no_longer_allowed() -> None:
    """E-82, E-84: senders, receivers, or both; the messages are kept."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        sender, gone = Link(), Link()
        rig.queue.attach(sender, sends=True)
        rig.queue.attach(gone, sends=True)
        rig.queue.detach(gone)
        receiver = rig.receiver(0)
        rig.queue.attach(receiver, sends=False)
        _update(rig, replace(rig.description, status="SendDisabled"))
        assert (sender.evicted_with, receiver.evicted_with) == ([EntityDisabled], [])
        _update(rig, replace(rig.description, status="ReceiveDisabled"))
        assert [type(error) for error in receiver.evicted_with] == [EntityDisabled]
        with pytest.raises(EntityDisabled):
            rig.queue.attach(Link(), sends=False)
        rig.queue.attach(sender, sends=True)
        _update(rig, rig.description)
        assert bodies(await rig.receive()) == ["a"]
        assert (sender.evicted_with, gone.evicted_with) == ([EntityDisabled], [])

    play(scenario)


def test_everybody_is_evicted_once() -> None:
    """E-86: links of both kinds, of the dead-letter queue too."""

    async def scenario(rig: Rig) -> None:
        sender = Link()
        rig.queue.attach(sender, sends=True)
        main, dead = rig.receiver(1), rig.receiver(1, dead_letter=True)
        rig.queue.attach(main, sends=False)
        rig.queue.evict(EntityNotFound())
        rig.queue.evict(EntityNotFound())
        assert sender.evicted_with == [EntityNotFound]
        for receiver in (main, dead):
            assert [type(error) for error in receiver.evicted_with] == [EntityNotFound]

    play(scenario)


def test_a_failed_store_evicts_everybody_once() -> None:
    """S-1: whoever holds the queue open must come again."""

    async def scenario(rig: Rig) -> None:
        sender, receiver = Link(), rig.receiver(1)
        rig.queue.attach(sender, sends=True)
        rig.queue.attach(receiver, sends=False)
        rig.queue.failed(ServerBusy())
        rig.queue.failed(ServerBusy())
        assert sender.evicted_with == [ServerBusy]
        assert [type(error) for error in receiver.evicted_with] == [ServerBusy]

    play(scenario)


def test_new_settings_apply_to_what_comes_next() -> None:
    """E-20, E-28, R-32: existing locks keep their time."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        first = await rig.receive(1)
        changed = replace(rig.description, lock_duration_ms=5_000, max_delivery_count=1)
        _update(rig, changed)
        second = await rig.receive(1)
        assert second[0].locked_until_ms == rig.clock.wall_ms() + 5_000
        await rig.advance(5)
        assert rig.queue.counts().dead_letter == 1
        assert await rig.settle(first) == []

    play(scenario)


def test_counts_add_up() -> None:
    """E-40, E-100, E-101, E-102: locked ones are active; deferred ones only count in the total."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text("x") for _ in range(5)], text("s", scheduled_at_ms=1 << 45))
        got = await rig.receive(4)
        await rig.settle(got[:1], Verb.DEFER)
        await rig.settle(got[1:2], Verb.DEAD_LETTER)
        for _ in range(2):
            counts = rig.queue.counts()
            assert (counts.active, counts.deferred, counts.dead_letter, counts.scheduled) == (3, 1, 1, 1)
            assert counts.total == 6
            await rig.restart()

    play(scenario)
