"""Peek and batch delete."""

import pytest

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.model.errors import ArgumentOutOfRange, EntityDisabled
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.unit.broker.rig import Rig, bodies, numbers, play, text, unheard


def test_peek_shows_every_state_by_number_and_changes_nothing() -> None:
    """R-60, R-61, R-63, M-23, M-50: active, locked, deferred and scheduled; no lock, no count."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        got = await rig.receive(2)
        await rig.settle(got[:1], Verb.DEFER)
        await rig.send(text("d", scheduled_at_ms=rig.clock.wall_ms() + 60_000))
        await rig.settle(got[1:], Verb.ABANDON)
        locked = await rig.receive(1)
        peeked = await rig.main.peek(1, 100)
        assert [(m.sequence_number, m.state) for m in peeked] == [
            (1, PLACE_DEFERRED),
            (2, PLACE_ACTIVE),
            (3, PLACE_ACTIVE),
            (4, PLACE_SCHEDULED),
        ]
        assert [m.sequence_number for m in await rig.main.peek(3, 1)] == [3]
        assert await rig.main.peek(5, 1) == []
        assert await rig.settle(locked) == []

    play(scenario)


def test_peek_is_bounded_in_messages_and_bytes() -> None:
    """R-65, L-15: truncated, but never empty while something is left."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text("x" * 100) for _ in range(6)])
        assert len(await rig.main.peek(0, 1_000)) == 3
        assert len(await rig.main.peek(0, 2)) == 2
        await rig.send(text("y" * 1_000))
        assert [m.sequence_number for m in await rig.main.peek(7, 10)] == [7]

    play(scenario, Limits(peek_messages_max=4, peek_bytes_max=350))


def test_peek_does_not_show_what_is_not_durable() -> None:
    """R-60, S-1: peek does not show what is not durable."""

    async def scenario(rig: Rig) -> None:
        rig.store.hold_commits()
        rig.queue.send([text("a")], unheard)
        assert await rig.main.peek(0, 10) == []
        rig.store.release_commits()
        await rig.calm()
        assert len(await rig.main.peek(0, 10)) == 1

    play(scenario)


def test_a_peek_for_nothing_is_out_of_range() -> None:
    """R-65: a peek for nothing is out of range."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(ArgumentOutOfRange):
            await rig.main.peek(0, 0)

    play(scenario)


def test_peek_is_refused_when_receive_is_disabled() -> None:
    """E-82, E-85: peek is refused when receive is disabled."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(EntityDisabled):
            await rig.main.peek(0, 1)

    play(scenario, status="ReceiveDisabled")


def test_batch_delete_removes_the_oldest_that_nobody_holds() -> None:
    """R-80, R-81, R-84: active ones enqueued before the cut-off; locked, deferred and scheduled stay."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c", "d")
        got = await rig.receive(2)
        await rig.settle(got[1:], Verb.DEFER)
        await rig.send(text("e", scheduled_at_ms=rig.clock.wall_ms() + 3_600_000))
        await rig.advance(1)
        cut_off = rig.clock.wall_ms()
        await rig.send_texts("f")
        assert await rig.main.delete_messages(1, cut_off) == 1
        assert await rig.main.delete_messages(100, cut_off) == 1
        assert await rig.main.delete_messages(100, cut_off) == 0
        counts = rig.queue.counts()
        assert (counts.active, counts.deferred, counts.scheduled) == (2, 1, 1)
        await rig.restart()
        assert numbers(await rig.receive()) == [1, 6]

    play(scenario)


def test_batch_delete_takes_messages_out_of_the_window() -> None:
    """R-80: what is deleted is not delivered, though it was in memory."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(1)
        await rig.send_texts(*"abcde")
        await rig.settle(receiver.take(), Verb.RELEASE)
        receiver.credit = 0
        assert await rig.main.delete_messages(3, rig.clock.wall_ms() + 1) == 3
        assert bodies(await rig.receive()) == ["d", "e"]
        assert rig.budget.bytes_used == 0

    play(scenario)


@pytest.mark.parametrize("count", [0, -1, 501])
def test_batch_delete_is_bounded(count: int) -> None:
    """L-16, R-80: argument out of range."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(ArgumentOutOfRange):
            await rig.main.delete_messages(count, 1 << 50)

    play(scenario)


def test_a_purge_is_a_loop_of_batch_deletes() -> None:
    """R-83, D-2: also of a dead-letter queue."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text("x") for _ in range(25)])
        await rig.settle(await rig.receive(30), Verb.DEAD_LETTER)
        deleted = []
        while count := await rig.dead_letter.delete_messages(10, 1 << 50):
            deleted.append(count)
        assert deleted == [10, 10, 5]
        assert rig.queue.counts().size_bytes == 0

    play(scenario)
