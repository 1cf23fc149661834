"""Time to live."""

import pytest

from busway.broker.fragment.property_changes import read_changes
from busway.message.message import NEVER_MS
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.unit.broker.rig import Rig, bodies, numbers, play, text


def test_the_effective_time_to_live_is_the_smaller_one() -> None:
    """M-40, M-41: longer values are silently cut; it counts from the enqueued time."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a"), text("b", ttl_ms=5_000), text("c", ttl_ms=99_000))
        got = await rig.receive()
        now_ms = rig.clock.wall_ms()
        expected = [now_ms + 20_000, now_ms + 5_000, now_ms + 20_000]
        assert [d.message.expires_at_ms for d in got] == expected
        assert [d.message.ttl_ms for d in got] == [-1, 5_000, 99_000]

    play(scenario, default_message_time_to_live_ms=20_000)


def test_without_a_time_to_live_a_message_never_expires() -> None:
    """M-40, M-17: past the last date there is no expiry."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a"), text("b", ttl_ms=4_294_967_295))
        got = await rig.receive()
        assert got[0].message.expires_at_ms == NEVER_MS
        assert got[1].message.expires_at_ms == rig.clock.wall_ms() + 4_294_967_295

    play(scenario)


def test_an_expired_message_is_not_delivered_even_before_the_sweep() -> None:
    """M-42: delivery looks at the time itself."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=1_000), text("b"))
        rig.clock.advance(1)
        assert bodies(await rig.receive()) == ["b"]
        assert rig.queue.counts().active == 1

    play(scenario)


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_sweep_removes_what_expires_in_order(in_memory: bool) -> None:
    """M-44: the background sweep works without any receiver."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.advance(5)
        await rig.send_texts("b")
        if not in_memory:
            await rig.restart()
        await rig.advance(95)
        assert rig.queue.counts().active == 1
        await rig.advance(5)
        counts = rig.queue.counts()
        assert (counts.active, counts.size_bytes) == (0, 0)

    play(scenario, default_message_time_to_live_ms=100_000)


def test_a_message_that_expires_before_earlier_ones_is_swept_at_its_own_time() -> None:
    """M-44: only these have an entry of their own."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a"), text("b", ttl_ms=10_000), text("c", ttl_ms=5_000), text("d"))
        await rig.advance(5)
        assert rig.queue.counts().active == 3
        await rig.restart()
        await rig.advance(5)
        assert rig.queue.counts().active == 2
        assert bodies(await rig.receive()) == ["a", "d"]

    play(scenario)


def test_expired_messages_become_dead_letters_where_the_queue_says_so() -> None:
    """D-11, M-44, E-27: with the exact reason."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=1_000), text("b"), text("c", ttl_ms=500))
        await rig.advance(1)
        dead = await rig.receive(dead_letter=True)
        assert bodies(dead) == ["a", "c"]
        assert read_changes(dead[0].message.changes) == {
            "DeadLetterReason": "TTLExpiredException",
            "DeadLetterErrorDescription": "The message expired and was dead lettered.",
        }
        assert rig.queue.counts().active == 1

    play(scenario, dead_lettering_on_message_expiration=True)


def test_a_dead_letter_does_not_expire() -> None:
    """M-46, D-2: no time to live in a dead-letter queue."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=1_000))
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        await rig.advance(3_600)
        await rig.restart()
        await rig.advance(3_600)
        dead = await rig.receive(dead_letter=True)
        assert bodies(dead) == ["a"]
        await rig.settle(dead, Verb.ABANDON, dead_letter=True)
        assert bodies(await rig.receive(dead_letter=True)) == ["a"]

    play(scenario, default_message_time_to_live_ms=5_000)


def test_a_locked_message_can_be_completed_after_its_expiry() -> None:
    """M-43: expiry does not touch it until the lock ends."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=10_000), text("b"), text("c", ttl_ms=9_000))
        got = await rig.receive()
        await rig.advance(30)
        assert rig.queue.counts().active == 3
        assert await rig.settle(got) == []

    play(scenario)


@pytest.mark.parametrize("verb", [Verb.ABANDON, Verb.RELEASE, None])
@pytest.mark.parametrize("dead_letters", [False, True])
def test_expiry_takes_effect_when_the_lock_ends(verb: Verb | None, dead_letters: bool) -> None:
    """M-43: dropped, or dead-lettered, at once."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=10_000))
        got = await rig.receive()
        await rig.advance(30)
        if verb is None:
            await rig.advance(30)
        else:
            assert await rig.settle(got, verb) == []
        counts = rig.queue.counts()
        assert (counts.active, counts.dead_letter) == (0, int(dead_letters))

    play(scenario, dead_lettering_on_message_expiration=dead_letters)


def test_a_message_abandoned_before_its_expiry_is_still_swept() -> None:
    """M-44: the sweep does not forget messages that were locked when it passed."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a"), text("b"))
        got = await rig.receive()
        await rig.advance(40)
        await rig.settle(got, Verb.ABANDON)
        await rig.advance(60)
        assert rig.queue.counts().active == 0

    play(scenario, default_message_time_to_live_ms=100_000)


def test_many_expired_messages_go_in_slices() -> None:
    """M-44, L-22: the sweep is bounded and goes on until it is done."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text("x") for _ in range(40)])
        await rig.send(*[text("y", ttl_ms=10_000) for _ in range(40)])
        await rig.advance(10)
        assert rig.queue.counts().active == 40
        await rig.advance(40)
        assert rig.queue.counts().active == 0

    play(scenario, Limits(sweep_rows_max=7), default_message_time_to_live_ms=50_000)


def test_expired_messages_in_memory_are_skipped_by_the_window() -> None:
    """M-42: those behind them are delivered, in order."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(0)
        await rig.send(text("a", ttl_ms=1_000), text("b"), text("c", ttl_ms=1_000), text("d"))
        rig.clock.advance(2)
        receiver.credit = 10
        rig.main.wake(receiver)
        await rig.calm()
        assert numbers(receiver.deliveries) == [2, 4]
        await rig.settle(receiver.take())
        assert rig.queue.counts().active == 0
        assert rig.budget.bytes_used == 0

    play(scenario)


def test_a_clock_set_back_expires_nothing_early() -> None:
    """M-42: the wall clock decides."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=10_000))
        rig.clock.step_wall(-3_600)
        await rig.advance(20)
        assert rig.queue.counts().active == 1
        rig.clock.step_wall(3_600)
        await rig.advance(300)
        assert rig.queue.counts().active == 0

    play(scenario)
