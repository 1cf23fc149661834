"""Scheduled messages."""

import asyncio

import pytest

from busway.message.message import PLACE_SCHEDULED
from busway.model.errors import MessageNotFound
from busway.model.limits import Limits
from tests.unit.broker.rig import Rig, bodies, numbers, play, text


def test_a_scheduled_message_is_not_receivable_before_its_time() -> None:
    """S-30, S-31, S-36: seen by peek as scheduled, counted, not received."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 10_000
        receiver = rig.receiver(10)
        await rig.send(text("a", scheduled_at_ms=at_ms), text("b"))
        assert bodies(receiver.take()) == ["b"]
        assert [(m.sequence_number, m.state) for m in await rig.main.peek(0, 1)] == [(1, PLACE_SCHEDULED)]
        counts = rig.queue.counts()
        assert (counts.scheduled, counts.active, counts.size_bytes) == (1, 1, 2)
        await rig.advance(9.999)
        assert receiver.deliveries == []
        await rig.advance(0.001)
        assert bodies(receiver.deliveries) == ["a"]

    play(scenario)


def test_activation_gives_a_new_number_and_time() -> None:
    """S-34, S-35, M-38, M-16, M-41: as if sent now; the old number is dead; TTL starts."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 10_000
        await rig.send(text("a", scheduled_at_ms=at_ms, ttl_ms=5_000), text("b"))
        await rig.restart()
        await rig.advance(10)
        got = await rig.receive()
        assert [(d.message.bare, d.message.sequence_number) for d in got] == [(b"b", 2), (b"a", 3)]
        message = got[1].message
        assert message.enqueued_at_ms == at_ms
        assert message.scheduled_at_ms == at_ms
        assert message.expires_at_ms == at_ms + 5_000
        counts = rig.queue.counts()
        assert (counts.scheduled, counts.active) == (0, 2)
        with pytest.raises(MessageNotFound):
            await rig.queue.cancel_scheduled([1])

    play(scenario)


def test_a_time_in_the_past_is_immediate() -> None:
    """S-32: a time in the past is immediate."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", scheduled_at_ms=rig.clock.wall_ms()), text("b", scheduled_at_ms=5))
        assert bodies(await rig.receive()) == ["a", "b"]

    play(scenario)


def test_scheduling_returns_the_numbers() -> None:
    """S-30 b: scheduling returns the numbers."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 1_000
        assert await rig.queue.schedule([text("a", scheduled_at_ms=at_ms)]) == [1]
        assert await rig.queue.schedule([text(n, scheduled_at_ms=at_ms) for n in "bc"]) == [2, 3]
        await rig.advance(1)
        assert numbers(await rig.receive()) == [4, 5, 6]

    play(scenario)


def test_a_cancelled_message_is_gone() -> None:
    """S-33: deleted; a second cancellation does not find it."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 1_000
        await rig.queue.schedule([text(name, scheduled_at_ms=at_ms) for name in "abc"])
        await rig.queue.cancel_scheduled([1, 3])
        counts = rig.queue.counts()
        assert (counts.scheduled, counts.size_bytes) == (1, 1)
        await rig.restart()
        with pytest.raises(MessageNotFound, match=r"Messages not found\. Missing sequence numbers: 1, 7"):
            await rig.queue.cancel_scheduled([7, 2, 1])
        await rig.advance(1)
        assert bodies(await rig.receive()) == ["b"]

    play(scenario)


def test_activation_is_bounded_and_goes_on() -> None:
    """S-35: a crowd that is due at one instant is activated within the second, in order."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 1_000
        await rig.send(*[text(str(n), scheduled_at_ms=at_ms + (n % 2)) for n in range(30)])
        await rig.advance(1.002)
        got = await rig.receive(100)
        assert [int(body) % 2 for body in bodies(got)] == [0] * 15 + [1] * 15
        assert numbers(got) == list(range(31, 61))

    play(scenario, Limits(sweep_rows_max=4))


def test_an_earlier_schedule_that_comes_later_is_not_late() -> None:
    """S-35: an earlier schedule that comes later is not late."""

    async def scenario(rig: Rig) -> None:
        now_ms = rig.clock.wall_ms()
        await rig.send(text("late", scheduled_at_ms=now_ms + 100_000))
        await rig.send(text("early", scheduled_at_ms=now_ms + 1_000))
        await rig.advance(1)
        assert bodies(await rig.receive(deletes=True)) == ["early"]
        await rig.advance(99)
        assert bodies(await rig.receive(deletes=True)) == ["late"]

    play(scenario)


def test_a_scheduling_request_that_is_given_up_does_no_harm() -> None:
    """S-30: the message is stored all the same."""

    async def scenario(rig: Rig) -> None:
        rig.store.hold_commits()
        request = asyncio.create_task(rig.queue.schedule([text("a", scheduled_at_ms=1 << 45)]))
        await rig.calm()
        request.cancel()
        rig.store.release_commits()
        await rig.calm()
        assert rig.queue.counts().scheduled == 1

    play(scenario)
