"""Deferred messages: received by number only."""

import pytest

from busway.message.message import PLACE_DEFERRED
from busway.model.errors import MessageLockLost, MessageNotFound
from busway.model.settlement import Verb
from tests.unit.broker.rig import Rig, bodies, numbers, play, text


def test_a_deferred_message_is_skipped_by_receive_and_seen_by_peek() -> None:
    """R-13, R-50, M-38, M-23: it stays under its number, in state deferred, also over a restart."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.settle(await rig.receive(1), Verb.DEFER, properties={"why": "later"})
        await rig.restart()
        assert bodies(await rig.receive()) == ["b"]
        peeked = await rig.main.peek(0, 10)
        assert [(m.sequence_number, m.state) for m in peeked] == [(1, PLACE_DEFERRED), (2, 0)]
        counts = rig.queue.counts()
        assert (counts.active, counts.deferred, counts.total) == (1, 1, 2)

    play(scenario)


def test_a_deferred_message_is_received_by_its_number() -> None:
    """R-51, R-44: under a lock; deferring raised the count, fetching does not; state is deferred."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        received = await rig.receive()
        assert [d.message.delivery_count for d in received] == [0, 0]
        await rig.settle(received, Verb.DEFER)
        await rig.restart()
        got = await rig.main.receive_by_number([2, 1], deletes=False)
        assert numbers(got) == [1, 2]
        assert [(d.message.delivery_count, d.message.state) for d in got] == [(1, PLACE_DEFERRED)] * 2
        assert got[0].locked_until_ms == rig.clock.wall_ms() + 60_000
        assert await rig.settle(got) == []
        counts = rig.queue.counts()
        assert (counts.deferred, counts.size_bytes) == (0, 0)

    play(scenario)


def test_a_deferred_message_can_be_received_and_deleted_by_number() -> None:
    """R-51: durable before it is handed out."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        got = await rig.main.receive_by_number([1], deletes=True)
        assert (bodies(got), got[0].token) == (["a"], b"")
        await rig.restart()
        assert rig.queue.counts().total == 0

    play(scenario)


@pytest.mark.parametrize("wanted", [[1, 99], [1, 3], [1, 2]])
def test_one_number_that_cannot_be_locked_fails_the_whole_request(wanted: list[int]) -> None:
    """R-52: unknown, not deferred, or locked now; nothing is locked."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        await rig.settle(await rig.receive(2), Verb.DEFER)
        await rig.main.receive_by_number([2], deletes=False)
        with pytest.raises(MessageNotFound, match="Failed to lock one or more specified messages"):
            await rig.main.receive_by_number(wanted, deletes=False)
        assert bodies(await rig.main.receive_by_number([1], deletes=False)) == ["a"]

    play(scenario)


def test_an_abandoned_deferred_message_stays_deferred() -> None:
    """R-44, R-53: the count rises, receive does not see it."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        got = await rig.main.receive_by_number([1], deletes=False)
        assert await rig.settle(got, Verb.ABANDON) == []
        assert await rig.receive() == []
        again = await rig.main.receive_by_number([1], deletes=False)
        assert again[0].message.delivery_count == 2
        await rig.advance(60)
        assert await rig.settle(again) == [MessageLockLost]
        last = await rig.main.receive_by_number([1], deletes=False)
        assert last[0].message.delivery_count == 3
        assert await rig.receive() == []

    play(scenario)


def test_a_deferred_message_can_be_released_deferred_again_and_dead_lettered() -> None:
    """R-12, R-13, R-14 on the lock of a deferred message."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        for verb, count in ((Verb.RELEASE, 1), (Verb.DEFER, 1), (Verb.DEAD_LETTER, 2)):
            got = await rig.main.receive_by_number([1], deletes=False)
            assert got[0].message.delivery_count == count
            assert await rig.settle(got, verb) == []
        counts = rig.queue.counts()
        assert (counts.deferred, counts.dead_letter, counts.active) == (0, 1, 0)
        dead = await rig.receive(dead_letter=True)
        assert (bodies(dead), dead[0].message.delivery_count) == (["a"], 2)

    play(scenario)


def test_no_number_of_deferrals_is_one_too_many() -> None:
    """R-41, R-44: deferring counts but is no failure; the failure that follows finds the count used up."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        for count in range(1, 6):
            got = await rig.main.receive_by_number([1], deletes=False)
            assert got[0].message.delivery_count == count
            assert await rig.settle(got, Verb.DEFER) == []
        await rig.settle(await rig.main.receive_by_number([1], deletes=False), Verb.ABANDON)
        dead = await rig.receive(dead_letter=True)
        assert [d.message.delivery_count for d in dead] == [7]

    play(scenario, max_delivery_count=2)


def test_a_lock_on_a_deferred_message_can_be_renewed() -> None:
    """R-30: a lock on a deferred message can be renewed."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        got = await rig.main.receive_by_number([1], deletes=False)
        await rig.advance(50)
        await rig.main.renew([got[0].token])
        await rig.advance(50)
        assert await rig.settle(got) == []

    play(scenario)


def test_too_many_failed_deliveries_of_a_deferred_message_make_it_a_dead_letter() -> None:
    """R-41: too many failed deliveries of a deferred message make it a dead letter."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        for _ in range(2):
            got = await rig.main.receive_by_number([1], deletes=False)
            await rig.settle(got, Verb.ABANDON)
        with pytest.raises(MessageNotFound):
            await rig.main.receive_by_number([1], deletes=False)
        assert bodies(await rig.receive(dead_letter=True)) == ["a"]

    play(scenario, max_delivery_count=3)


@pytest.mark.parametrize("dead_letters", [False, True])
def test_an_expired_deferred_message_is_not_swept_but_cannot_be_received(dead_letters: bool) -> None:
    """M-45: it leaves when somebody asks for it."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=10_000))
        await rig.settle(await rig.receive(), Verb.DEFER)
        await rig.advance(100)
        assert rig.queue.counts().deferred == 1
        with pytest.raises(MessageNotFound):
            await rig.main.receive_by_number([1], deletes=False)
        await rig.calm()
        counts = rig.queue.counts()
        assert (counts.deferred, counts.dead_letter) == (0, int(dead_letters))

    play(scenario, dead_lettering_on_message_expiration=dead_letters)


def test_the_same_number_twice_is_one_message() -> None:
    """R-51: the same number twice is one message."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEFER)
        assert numbers(await rig.main.receive_by_number([1, 1], deletes=False)) == [1]
        assert await rig.main.receive_by_number([], deletes=False) == []

    play(scenario)
