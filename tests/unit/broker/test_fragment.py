"""Send, receive under peek-lock, settle, the end of locks."""

import pytest

from busway.message.message import Message
from busway.model.errors import EntityDisabled, MessageLockLost, ServerBusy
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.rig import Answer, Rig, bodies, numbers, play, text


def test_messages_are_received_in_the_order_they_were_sent() -> None:
    """R-3, S-4: arrival order; M-35: numbers are gapless from 1."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.send_texts("c")
        got = await rig.receive()
        assert bodies(got) == ["a", "b", "c"]
        assert numbers(got) == [1, 2, 3]

    play(scenario)


def test_a_send_is_told_only_when_it_is_durable() -> None:
    """S-1: accepted only after the message is stored durably; nobody receives it before."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(10)
        await rig.calm()
        rig.store.hold_commits()
        answer = Answer()
        rig.queue.send([text("a")], answer)
        await rig.calm()
        assert not answer.is_done
        assert receiver.deliveries == []
        late = rig.receiver(10)  # a read may see the row already
        await rig.calm()
        assert late.deliveries == []
        rig.store.release_commits()
        await rig.calm()
        assert answer.refused == []
        assert bodies(receiver.deliveries) == ["a"]

    play(scenario)


def test_a_locked_message_is_not_delivered_again() -> None:
    """R-2, R-3: one consumer at a time."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        assert len(await rig.receive()) == 1
        assert await rig.receive() == []

    play(scenario)


def test_a_completed_message_is_removed() -> None:
    """R-10: complete removes; E-100: counts and size go down."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        counts = rig.queue.counts()
        assert (counts.active, counts.size_bytes) == (2, 2)
        assert await rig.settle(await rig.receive()) == []
        counts = rig.queue.counts()
        assert (counts.active, counts.size_bytes) == (0, 0)
        await rig.restart()
        assert await rig.receive() == []
        assert rig.main.counters.last_counter == 2

    play(scenario)


def test_a_lock_settles_once() -> None:
    """R-17: an already used or unknown lock is lost."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        got = await rig.receive()
        assert await rig.settle([got[0]]) == []
        answer = Answer()
        tokens = [got[0].token, got[1].token, b"x" * 16, got[1].token]
        rig.main.settle(tokens, Settlement(Verb.COMPLETE), answer)
        await rig.calm()
        assert answer.refused is not None
        assert [(index, type(error)) for index, error in answer.refused] == [
            (0, MessageLockLost),
            (2, MessageLockLost),
            (3, MessageLockLost),
        ]

    play(scenario)


def test_the_lock_token_begins_with_the_fragment_index_and_is_new_each_time() -> None:
    """M-19: a new token for every delivery."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        first = await rig.receive()
        await rig.settle(first, Verb.RELEASE)
        second = await rig.receive()
        assert len(first[0].token) == 16
        assert first[0].token[:2] == b"\0\0"
        assert first[0].token != second[0].token

    play(scenario)


def test_an_abandoned_message_comes_back_first_with_a_higher_count() -> None:
    """R-11, R-6, R-40: count + 1 and back to its place by number."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        first = await rig.receive(1)
        assert await rig.settle(first, Verb.ABANDON) == []
        got = await rig.receive()
        assert bodies(got) == ["a", "b", "c"]
        assert [delivery.message.delivery_count for delivery in got] == [1, 0, 0]

    play(scenario)


def test_a_released_message_comes_back_without_a_count() -> None:
    """R-12: released does not raise the count."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        for _ in range(20):
            got = await rig.receive()
            assert got[0].message.delivery_count == 0
            assert await rig.settle(got, Verb.RELEASE) == []

    play(scenario)


def test_a_lock_ends_after_its_duration() -> None:
    """R-4, R-5, R-17, R-40, R-72: available again, count + 1, the old token is lost."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        assert got[0].locked_until_ms == rig.clock.wall_ms() + 30_000
        await rig.advance(29.9)
        assert await rig.receive() == []
        await rig.advance(0.1)
        assert await rig.settle(got) == [MessageLockLost]
        again = await rig.receive()
        assert again[0].message.delivery_count == 1
        await rig.restart()
        assert (await rig.receive())[0].message.delivery_count == 1

    play(scenario, lock_duration_ms=30_000)


def test_a_lock_whose_time_is_over_cannot_complete_even_before_the_timer_runs() -> None:
    """R-17: the deadline counts, not the moment we notice it."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        rig.clock.advance(60)
        assert await rig.settle(got) == [MessageLockLost]
        await rig.advance(0)
        assert (await rig.receive())[0].message.delivery_count == 1

    play(scenario)


def test_a_lock_outlives_its_receiver() -> None:
    """R-19, R-40: it can be settled after the link is gone, and ends at its own time."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        receiver = rig.receiver(2)
        await rig.calm()
        rig.main.remove_receiver(receiver)
        assert await rig.receive() == []
        assert await rig.settle(receiver.deliveries[:1]) == []
        await rig.advance(60)
        got = await rig.receive()
        assert [(d.message.sequence_number, d.message.delivery_count) for d in got] == [(2, 1)]

    play(scenario)


def test_a_renewed_lock_lasts_a_whole_duration_from_the_renewal() -> None:
    """R-30: now + LockDuration, any number of times; lost once it is over."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        got = await rig.receive()
        for _ in range(5):
            await rig.advance(50)
            until = await rig.main.renew([got[0].token])
            assert until == [rig.clock.wall_ms() + 60_000]
        assert numbers(await rig.receive()) == [2]
        await rig.advance(60)
        with pytest.raises(MessageLockLost):
            await rig.main.renew([got[0].token])

    play(scenario)


def test_renewing_several_locks_renews_all_or_none() -> None:
    """R-30: one lost lock fails the request and moves nobody's end."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        got = await rig.receive()
        await rig.settle(got[1:])
        await rig.advance(30)
        with pytest.raises(MessageLockLost):
            await rig.main.renew([got[0].token, got[1].token])
        await rig.advance(30)
        assert numbers(await rig.receive()) == [1]

    play(scenario)


def test_after_a_crash_locked_messages_are_available_again() -> None:
    """R-7: at least once; nothing is lost and the count has not changed."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.receive()
        await rig.restart()
        got = await rig.receive()
        assert bodies(got) == ["a", "b"]
        assert [delivery.message.delivery_count for delivery in got] == [0, 0]

    play(scenario)


def test_numbers_go_on_after_a_restart() -> None:
    """M-35, M-38: unique and increasing in the entity, also over restarts."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.settle(await rig.receive())
        await rig.restart()
        await rig.send_texts("c")
        assert numbers(await rig.receive()) == [3]

    play(scenario)


def test_receivers_are_served_in_the_order_of_their_credit() -> None:
    """R-8: credits of several links are served in order of arrival."""

    async def scenario(rig: Rig) -> None:
        first, second, third = rig.receiver(1), rig.receiver(1), rig.receiver(1)
        await rig.send_texts("a")
        await rig.send_texts("b")
        first.credit = 1
        rig.main.wake(first)
        await rig.send_texts("c")
        await rig.send_texts("d")
        assert [bodies(r.deliveries) for r in (first, second, third)] == [["a", "d"], ["b"], ["c"]]

    play(scenario)


def test_much_credit_does_not_starve_others() -> None:
    """R-8: whoever was served goes to the end of the line."""

    async def scenario(rig: Rig) -> None:
        rich, other = rig.receiver(1_000), rig.receiver(1_000)
        for name in "abcd":
            await rig.send_texts(name)
        assert bodies(rich.deliveries) == ["a", "c"]
        assert bodies(other.deliveries) == ["b", "d"]

    play(scenario)


def test_nothing_is_locked_beyond_the_credit() -> None:
    """R-70: messages are locked when they are sent, not before."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts(*"abcdef")
        receiver = rig.receiver(2)
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a", "b"]
        assert len(rig.main.locks.live) == 2

    play(scenario)


def test_what_was_never_written_to_the_socket_is_unlocked_without_a_count() -> None:
    """R-12, R-19: not delivered means not counted."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        receiver = rig.receiver(0)
        receiver.refuses, receiver.credit = 2, 3
        rig.main.wake(receiver)
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a"]
        got = await rig.receive()
        assert [(d.message.sequence_number, d.message.delivery_count) for d in got] == [(2, 0), (3, 0)]
        rig.main.undeliver(got)
        assert numbers(await rig.receive()) == [2, 3]

    play(scenario)


def test_the_number_of_locks_is_bounded() -> None:
    """L-22: at the bound nobody is served; a settled lock makes room."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts(*"abcd")
        receiver = rig.receiver(4)
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a", "b"]
        await rig.settle(receiver.take()[:1])
        assert bodies(receiver.deliveries) == ["c"]

    play(scenario, Limits(locks_per_fragment_max=2))


def test_a_disabled_queue_refuses_receivers_and_senders() -> None:
    """E-82, S-10: entity-disabled."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(text("a"), text("b"))
        assert [(index, type(error)) for index, error in refused] == [
            (0, EntityDisabled),
            (1, EntityDisabled),
        ]
        with pytest.raises(EntityDisabled):
            rig.receiver(1)

    play(scenario, status="Disabled")


def test_receivers_of_an_entity_are_bounded() -> None:
    """L-12: more are refused as server-busy."""

    async def scenario(rig: Rig) -> None:
        rig.receiver(1)
        rig.receiver(1)
        with pytest.raises(ServerBusy):
            rig.receiver(1)

    play(scenario, Limits(receivers_per_entity_max=2))


def test_last_access_is_the_last_send_or_receive_request() -> None:
    """E-41: last access is the last send or receive request."""

    async def scenario(rig: Rig) -> None:
        assert rig.queue.counts().accessed_at_ms == 0
        await rig.send_texts("a")
        sent_at = rig.clock.wall_ms()
        assert rig.queue.counts().accessed_at_ms == sent_at
        await rig.advance(100)
        assert rig.queue.counts().accessed_at_ms == sent_at
        await rig.receive()
        assert rig.queue.counts().accessed_at_ms == sent_at + 100_000
        await rig.restart()
        assert rig.queue.counts().accessed_at_ms == sent_at + 100_000

    play(scenario)


def test_enqueued_times_never_go_back() -> None:
    """M-16: in order even when somebody sets the clock."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        rig.clock.step_wall(-3600)
        await rig.send_texts("b")
        await rig.restart()
        await rig.send_texts("c")
        got = await rig.receive()
        assert len({delivery.message.enqueued_at_ms for delivery in got}) == 1

    play(scenario)


def test_head_and_body_come_back_as_they_were_sent() -> None:
    """M-28: the broker never reads nor changes them."""

    async def scenario(rig: Rig) -> None:
        await rig.send(Message(b"\x00head", b"\xffbare", ttl_ms=5_000, partition_key="k"))
        await rig.restart()
        message = (await rig.receive())[0].message
        assert (message.head, message.bare, message.ttl_ms) == (b"\x00head", b"\xffbare", 5_000)
        assert message.partition_key == "k"

    play(scenario)


def test_a_drain_can_wait_for_what_is_on_its_way() -> None:
    """R-9: the outlet says while a read is under way, and when it has ended."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.restart()
        receiver = rig.receiver(10)
        assert rig.main.is_fetching(receiver)
        await rig.calm()
        assert not rig.main.is_fetching(receiver)
        assert (bodies(receiver.deliveries), receiver.caught_up_after) == (["a", "b"], [2])
        rig.main.wake(receiver)
        assert not rig.main.is_fetching(receiver)

    play(scenario)


def test_a_drain_can_wait_for_deletions() -> None:
    """R-9, R-1: receive-and-delete has messages on their way while the deletion is committed."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        rig.store.hold_commits()
        receiver = rig.receiver(10, deletes=True)
        await rig.calm()
        assert rig.main.is_fetching(receiver)
        rig.store.release_commits()
        await rig.calm()
        assert not rig.main.is_fetching(receiver)
        assert receiver.caught_up_after[-1] == 2

    play(scenario)


def test_a_release_needs_no_commit() -> None:
    """R-12: nothing changes in the store."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        rig.store.hold_commits()
        assert await rig.settle(got, Verb.RELEASE) == []
        assert bodies(await rig.receive()) == ["a"]

    play(scenario)
