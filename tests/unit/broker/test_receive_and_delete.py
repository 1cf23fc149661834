"""Receive-and-delete: the deletion is durable before the message leaves."""

from busway.model.errors import MessageLockLost
from tests.unit.broker.rig import Rig, bodies, numbers, play, text


def test_the_deletion_is_committed_before_the_message_is_delivered() -> None:
    """R-1: a crash never delivers twice."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        rig.store.hold_commits()
        receiver = rig.receiver(10, deletes=True)
        await rig.calm()
        assert receiver.deliveries == []
        rig.store.release_commits()
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a", "b"]
        assert receiver.tokens() == [b"", b""]
        assert rig.queue.counts().active == 0
        await rig.restart()
        assert await rig.receive() == []

    play(scenario)


def test_a_message_that_cannot_be_sent_any_more_is_put_back_under_its_number() -> None:
    """R-1, M-38: withdrawn credit loses nothing."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        receiver = rig.receiver(0, deletes=True)
        receiver.refuses, receiver.credit = 2, 3
        rig.main.wake(receiver)
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a"]
        assert rig.queue.counts().active == 2
        assert rig.queue.counts().size_bytes == 2
        got = await rig.receive()
        assert [(d.message.sequence_number, d.message.delivery_count) for d in got] == [(2, 0), (3, 0)]
        await rig.restart()
        assert numbers(await rig.receive()) == [2, 3]

    play(scenario)


def test_messages_on_their_way_to_a_receiver_that_left_are_put_back() -> None:
    """R-1: the link went while the deletion was being committed."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        rig.store.hold_commits()
        receiver = rig.receiver(10, deletes=True)
        await rig.calm()
        rig.main.remove_receiver(receiver)
        rig.store.release_commits()
        await rig.calm()
        assert receiver.deliveries == []
        assert bodies(await rig.receive()) == ["a"]

    play(scenario)


def test_no_more_is_deleted_than_the_credit_allows() -> None:
    """R-1, R-70: deletions under way use up the room."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b", "c")
        rig.store.hold_commits()
        receiver = rig.receiver(2, deletes=True)
        await rig.calm()
        rig.main.wake(receiver)
        rig.main.wake(receiver)
        await rig.calm()
        assert rig.queue.counts().active == 1
        rig.store.release_commits()
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a", "b"]

    play(scenario)


def test_a_consumed_message_has_no_lock_to_settle() -> None:
    """R-20, R-44: nothing to settle, and no count."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive(deletes=True)
        assert got[0].message.delivery_count == 0
        assert await rig.settle(got) == [MessageLockLost]

    play(scenario)


def test_a_message_put_back_still_expires() -> None:
    """M-42, M-44: its time to live goes on."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", ttl_ms=10_000))
        receiver = rig.receiver(0, deletes=True)
        receiver.refuses, receiver.credit = 1, 1
        rig.main.wake(receiver)
        await rig.calm()
        assert rig.queue.counts().active == 1
        await rig.advance(10)
        assert rig.queue.counts().active == 0

    play(scenario)
