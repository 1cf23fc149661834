"""Sessions."""

import asyncio
from typing import Any

import pytest

from busway.broker.fragment.message_sessions import MessageSession
from busway.message.message import Message
from busway.model.errors import (
    BadArgument,
    EntityNotFound,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    OperationTimedOut,
    QuotaExceeded,
    SessionCannotBeLocked,
    SessionLockLost,
)
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.unit.broker.rig import Recorder, Rig, bodies, numbers, play, text

SESSIONS: dict[str, Any] = {"requires_session": True}


def of(session_id: str, body: str, **fields: Any) -> Message:
    return text(body, session_id=session_id, **fields)


async def accept(
    rig: Rig, session_id: str | None = None, credit: int = 10, *, deletes: bool = False
) -> tuple[MessageSession, Recorder]:
    receiver = Recorder(credit, deletes=deletes)
    session = await rig.main.accept_session(receiver, session_id, 65.0)
    rig.main.wake(receiver)
    await rig.calm()
    return session, receiver


def test_a_session_receiver_gets_the_messages_of_its_session_in_order() -> None:
    """X-3, X-4, X-12: present and future ones, and no others."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "a1"), of("b", "b1"), of("a", "a2"))
        session, receiver = await accept(rig, "a")
        assert session.session_id == "a"
        assert session.locked_until_ms == rig.clock.wall_ms() + 60_000
        await rig.send(of("b", "b2"), of("a", "a3"))
        assert bodies(receiver.deliveries) == ["a1", "a2", "a3"]
        assert {d.locked_until_ms for d in receiver.deliveries} == {session.locked_until_ms}

    play(scenario, **SESSIONS)


def test_plain_receivers_are_refused_on_a_session_queue_and_the_other_way_round() -> None:
    """X-1, X-2: invalid operations with the known sentences."""

    async def on_sessions(rig: Rig) -> None:
        with pytest.raises(InvalidOperation, match="create a non-sessionful message receiver"):
            rig.receiver(1)

    async def without(rig: Rig) -> None:
        with pytest.raises(InvalidOperation, match="A sessionful message receiver cannot be created"):
            await rig.main.accept_session(Recorder(), "a", 1)

    play(on_sessions, **SESSIONS)
    play(without)


def test_a_session_has_one_receiver() -> None:
    """X-4, X-5: a second one is refused at once."""

    async def scenario(rig: Rig) -> None:
        session, _ = await accept(rig, "a")
        with pytest.raises(SessionCannotBeLocked):
            await accept(rig, "a")
        session.close()
        await accept(rig, "a")

    play(scenario, **SESSIONS)


def test_a_session_without_messages_can_be_accepted() -> None:
    """X-6: it waits for replies."""

    async def scenario(rig: Rig) -> None:
        _, receiver = await accept(rig, "replies")
        await rig.send(of("replies", "r"))
        assert bodies(receiver.deliveries) == ["r"]

    play(scenario, **SESSIONS)


def test_the_next_session_is_the_one_with_the_oldest_available_message() -> None:
    """X-8: held ones are skipped."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("b", "1"), of("a", "2"), of("c", "3"), of("b", "4"))
        first, _ = await accept(rig)
        second, _ = await accept(rig)
        third, _ = await accept(rig)
        assert [s.session_id for s in (first, second, third)] == ["b", "a", "c"]

    play(scenario, **SESSIONS)


def test_an_accept_waits_for_a_session_to_appear() -> None:
    """X-7: those who wait are served in order of arrival."""

    async def scenario(rig: Rig) -> None:
        waiting = [asyncio.create_task(rig.main.accept_session(Recorder(), None, 65.0)) for _ in range(2)]
        await rig.calm()
        await rig.send(of("a", "1"))
        assert [task.done() for task in waiting] == [True, False]
        await rig.send(of("a", "2"))
        assert not waiting[1].done()
        await rig.send(of("b", "3"))
        assert (await waiting[0]).session_id == "a"
        assert (await waiting[1]).session_id == "b"

    play(scenario, **SESSIONS)


def test_an_accept_gets_a_session_that_is_freed() -> None:
    """X-7, X-11: an accept gets a session that is freed."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        session, _ = await accept(rig)
        waiting = asyncio.create_task(accept(rig))
        await rig.calm()
        assert not waiting.done()
        session.close()
        await rig.calm()
        assert bodies((await waiting)[1].deliveries) == ["1"]

    play(scenario, **SESSIONS)


def test_an_accept_times_out() -> None:
    """X-7: com.microsoft:timeout after the time the client named."""

    async def scenario(rig: Rig) -> None:
        waiting = asyncio.create_task(rig.main.accept_session(Recorder(), None, 5.0))
        await rig.calm()
        await rig.advance(4.9)
        assert not waiting.done()
        await rig.advance(0.1)
        with pytest.raises(OperationTimedOut):
            await waiting
        await rig.send(of("a", "1"))
        assert (await accept(rig))[0].session_id == "a"

    play(scenario, **SESSIONS)


def test_an_accept_that_is_given_up_keeps_no_session() -> None:
    """X-7: the link went while it waited, or at the moment it was served."""

    async def scenario(rig: Rig) -> None:
        waiting = asyncio.create_task(rig.main.accept_session(Recorder(), None, 65.0))
        await rig.calm()
        waiting.cancel()
        await rig.send(of("a", "1"))
        session, _ = await accept(rig)
        waiting = asyncio.create_task(rig.main.accept_session(Recorder(), None, 65.0))
        await rig.calm()
        session.close()
        for _ in range(100):
            if rig.main.sessions.waiting_count() == 0:
                break
            await asyncio.sleep(0)
        waiting.cancel()
        await rig.calm()
        assert (await accept(rig))[0].session_id == "a"

    play(scenario, **SESSIONS)


def test_waiting_accepts_end_when_the_entity_does() -> None:
    """E-86: with the same error as every link."""

    async def scenario(rig: Rig) -> None:
        _, receiver = await accept(rig, "a")
        waiting = asyncio.create_task(rig.main.accept_session(Recorder(), None, 65.0))
        await rig.calm()
        rig.queue.evict(EntityNotFound())
        with pytest.raises(EntityNotFound):
            await waiting
        assert [type(error) for error in receiver.evicted_with] == [EntityNotFound]

    play(scenario, **SESSIONS)


def test_a_session_lock_can_be_renewed() -> None:
    """X-9: one whole duration from now; X-13: its messages have no end of their own."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        session, receiver = await accept(rig, "a")
        for _ in range(4):
            await rig.advance(50)
            assert await rig.main.renew_session("a") == rig.clock.wall_ms() + 60_000
        assert session.locked_until_ms == rig.clock.wall_ms() + 60_000
        assert await rig.settle(receiver.deliveries, session_id="a") == []

    play(scenario, **SESSIONS)


def test_messages_of_a_session_are_not_renewed_one_by_one() -> None:
    """R-31: messages of a session are not renewed one by one."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        _, receiver = await accept(rig, "a")
        with pytest.raises(InvalidOperation):
            await rig.main.renew(receiver.tokens())

    play(scenario, **SESSIONS)


def test_the_end_of_the_session_lock_takes_the_session_away() -> None:
    """X-10: link detached, settlement fails with session-lock-lost, delivered messages count one more."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("a", "2"))
        session, receiver = await accept(rig, "a", 1)
        await rig.advance(60)
        assert [type(error) for error in receiver.evicted_with] == [SessionLockLost]
        assert await rig.settle(receiver.deliveries, session_id="a") == [SessionLockLost]
        with pytest.raises(SessionLockLost):
            await rig.main.renew_session("a")
        session.close()
        _, again = await accept(rig, "a")
        assert [d.message.delivery_count for d in again.deliveries] == [1, 0]
        assert await rig.settle(receiver.deliveries, session_id="a") == [MessageLockLost]

    play(scenario, **SESSIONS)


def test_a_session_lock_whose_time_is_over_does_not_settle_before_the_timer_runs() -> None:
    """X-10: a session lock whose time is over does not settle before the timer runs."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        _, receiver = await accept(rig, "a")
        rig.clock.advance(60)
        assert await rig.settle(receiver.deliveries, session_id="a") == [SessionLockLost]
        _, again = await accept(rig, "a")
        assert [d.message.delivery_count for d in again.deliveries] == [1]

    play(scenario, **SESSIONS)


def test_closing_the_receiver_frees_the_session_without_a_count() -> None:
    """X-11, R-19: at once; unsettled messages return uncounted."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("a", "2"))
        _, receiver = await accept(rig, "a")
        rig.main.remove_receiver(receiver)
        assert await rig.settle(receiver.deliveries, session_id="a") == [SessionLockLost, SessionLockLost]
        assert receiver.evicted_with == []
        _, again = await accept(rig)
        assert [(d.message.sequence_number, d.message.delivery_count) for d in again.deliveries] == [
            (1, 0),
            (2, 0),
        ]

    play(scenario, **SESSIONS)


def test_an_abandoned_message_of_a_session_is_the_next() -> None:
    """X-12: order is kept."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("a", "2"), of("a", "3"))
        _, receiver = await accept(rig, "a", 1)
        await rig.settle(receiver.take(), Verb.ABANDON, session_id="a")
        receiver.credit = 10
        rig.main.wake(receiver)
        await rig.calm()
        assert [(d.message.sequence_number, d.message.delivery_count) for d in receiver.deliveries] == [
            (1, 1),
            (2, 0),
            (3, 0),
        ]

    play(scenario, **SESSIONS)


def test_too_many_deliveries_of_a_session_message_make_it_a_dead_letter() -> None:
    """R-41, D-4: the dead-letter queue of a session queue is received without sessions."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        for _ in range(2):
            await accept(rig, "a")
            await rig.advance(60)
        assert bodies(await rig.receive(dead_letter=True)) == ["1"]
        assert rig.queue.counts().active == 0

    play(scenario, max_delivery_count=2, **SESSIONS)


def test_deferred_messages_of_a_session_need_its_lock() -> None:
    """R-54, X-14: deferred messages of a session need its lock."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("b", "2"))
        session, receiver = await accept(rig, "a")
        await rig.settle(receiver.take(), Verb.DEFER, session_id="a")
        other, _ = await accept(rig, "b")
        with pytest.raises(MessageNotFound):
            await rig.main.receive_by_number([1], deletes=False, session_id="b")
        with pytest.raises(SessionLockLost):
            await rig.main.receive_by_number([1], deletes=False)
        got = await rig.main.receive_by_number([1], deletes=False, session_id="a")
        assert got[0].locked_until_ms == session.locked_until_ms
        session.close()
        with pytest.raises(SessionLockLost):
            await rig.main.receive_by_number([1], deletes=False, session_id="a")
        assert await rig.settle(got, session_id="a") == [SessionLockLost]
        other.close()

    play(scenario, **SESSIONS)


def test_receive_and_delete_works_on_a_session() -> None:
    """R-1, X-11: what cannot be sent any more is put back into its session."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("a", "2"), of("a", "3"))
        _, receiver = await accept(rig, "a", 1, deletes=True)
        assert bodies(receiver.take()) == ["1"]
        receiver.credit, receiver.refuses = 1, 1
        rig.main.wake(receiver)
        await rig.calm()
        rig.main.remove_receiver(receiver)
        await rig.restart()
        _, again = await accept(rig, None)
        assert bodies(again.deliveries) == ["2", "3"]

    play(scenario, **SESSIONS)


def test_a_session_state_is_kept_until_it_is_cleared() -> None:
    """X-15, X-16: it outlives messages, lock and process, and counts in the size."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"))
        _, receiver = await accept(rig, "a")
        assert await rig.main.session_state("a") is None
        await rig.main.set_session_state("a", b"step 1")
        await rig.main.set_session_state("a", b"step two")
        await rig.settle(receiver.deliveries, session_id="a")
        assert rig.queue.counts().size_bytes == 8
        await rig.restart()
        assert await rig.main.list_sessions(None, 0, 10) == ["a"]
        await accept(rig, "a")
        assert await rig.main.session_state("a") == b"step two"
        await rig.main.set_session_state("a", None)
        assert await rig.main.session_state("a") is None
        assert rig.queue.counts().size_bytes == 0
        assert await rig.main.list_sessions(None, 0, 10) == []

    play(scenario, **SESSIONS)


def test_a_session_state_of_no_bytes_is_none() -> None:
    """X-15, X-16: it clears the state as null does, and takes no room among the states that are kept."""

    async def scenario(rig: Rig) -> None:
        for name in "abc":
            await accept(rig, name)
            await rig.main.set_session_state(name, b"")
            assert await rig.main.session_state(name) is None
        assert await rig.main.list_sessions(None, 0, 10) == []
        await rig.main.set_session_state("a", b"step 1")
        await rig.main.set_session_state("a", b"")
        await rig.restart()
        await accept(rig, "a")
        assert await rig.main.session_state("a") is None
        assert rig.queue.counts().size_bytes == 0

    play(scenario, limits=Limits(session_states_max=1), **SESSIONS)


def test_an_empty_session_state_that_an_older_version_kept_reads_as_none() -> None:
    """X-15: it was stored as it came."""

    async def scenario(rig: Rig) -> None:
        await accept(rig, "a")
        rig.main.batch().session_states.append((rig.main.key, "a", b"", 1))
        await rig.main.durable()
        assert await rig.main.session_state("a") is None

    play(scenario, **SESSIONS)


def test_a_session_state_needs_the_lock_and_has_a_greatest_size() -> None:
    """X-15: one message at most, inside the entity's quota."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(SessionLockLost):
            await rig.main.session_state("a")
        with pytest.raises(SessionLockLost):
            await rig.main.set_session_state("a", b"x")
        for name in "abcd":
            await accept(rig, name)
        with pytest.raises(MessageTooLarge):
            await rig.main.set_session_state("a", b"x" * 262_145)
        for name in "abcd":
            await rig.main.set_session_state(name, b"x" * 262_144)
        await accept(rig, "e")
        with pytest.raises(QuotaExceeded):
            await rig.main.set_session_state("e", b"x")
        await rig.main.set_session_state("a", b"less")
        await rig.main.set_session_state("e", b"x")

    play(scenario, max_size_in_megabytes=1, **SESSIONS)


def test_sessions_are_listed() -> None:
    """X-17: with messages or a state; with a date those whose state was set after it."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("b", "2"))
        await accept(rig, "c")
        before_ms = rig.clock.wall_ms()
        await rig.advance(1)
        await rig.main.set_session_state("c", b"x")
        assert await rig.main.list_sessions(None, 0, 10) == ["a", "b", "c"]
        assert await rig.main.list_sessions(None, 1, 1) == ["b"]
        assert await rig.main.list_sessions(before_ms, 0, 10) == ["c"]
        assert await rig.main.list_sessions(rig.clock.wall_ms(), 0, 10) == []

    play(scenario, **SESSIONS)


def test_peek_of_a_session_needs_no_lock() -> None:
    """R-66: with an id only that session's, without all."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("b", "2"), of("a", "3", scheduled_at_ms=1 << 45))
        await accept(rig, "a")
        assert [m.sequence_number for m in await rig.main.peek(0, 10, "a")] == [1, 3]
        assert [m.sequence_number for m in await rig.main.peek(0, 10)] == [1, 2, 3]

    play(scenario, **SESSIONS)


def test_scheduled_messages_of_a_session_reach_its_receiver() -> None:
    """S-34, X-4: and wake those who wait for a session."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 1_000
        await rig.send(of("a", "1", scheduled_at_ms=at_ms), of("b", "2", scheduled_at_ms=at_ms))
        _, receiver = await accept(rig, "a")
        waiting = asyncio.create_task(accept(rig))
        await rig.calm()
        assert not waiting.done()
        await rig.advance(1)
        assert bodies(receiver.deliveries) == ["1"]
        assert (await waiting)[0].session_id == "b"

    play(scenario, **SESSIONS)


def test_messages_of_a_session_expire_each_for_itself() -> None:
    """M-47, M-42, M-44: messages of a session expire each for itself."""

    async def scenario(rig: Rig) -> None:
        _, receiver = await accept(rig, "a", 0)
        await rig.send(of("a", "1", ttl_ms=1_000), of("a", "2"), of("a", "3", ttl_ms=500))
        await rig.advance(1)
        assert rig.queue.counts().active == 1
        receiver.credit = 10
        rig.main.wake(receiver)
        await rig.calm()
        assert bodies(receiver.deliveries) == ["2"]

    play(scenario, **SESSIONS)


def test_batch_delete_of_a_session() -> None:
    """R-80, R-81: only that session's; what others hold is skipped."""

    async def scenario(rig: Rig) -> None:
        await rig.send(of("a", "1"), of("b", "2"), of("a", "3"), of("a", "4"))
        _, receiver = await accept(rig, "a", 1)
        assert await rig.main.delete_messages(10, 1 << 50, "a") == 0
        assert await rig.main.delete_messages(10, 1 << 50, "a", lambda session_id: session_id == "a") == 2
        await accept(rig, "c")
        assert await rig.main.delete_messages(10, 1 << 50) == 1
        assert numbers(receiver.deliveries) == [1]
        assert rig.queue.counts().active == 1
        receiver.credit = 5
        rig.main.wake(receiver)
        await rig.calm()
        assert numbers(receiver.deliveries) == [1]

    play(scenario, **SESSIONS)


def test_a_long_session_id_is_refused() -> None:
    """L-8: a long session id is refused."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(BadArgument):
            await accept(rig, "x" * 129)

    play(scenario, **SESSIONS)


def test_a_long_session_does_not_hide_others() -> None:
    """X-4: one window for each session, all of them bounded."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[of("long", str(n)) for n in range(200)], of("short", "s"))
        _, long = await accept(rig, None, 150)
        _, short = await accept(rig, None)
        assert bodies(short.deliveries) == ["s"]
        assert bodies(long.deliveries) == [str(n) for n in range(150)]

    play(scenario, Limits(window_messages_max=16), **SESSIONS)
