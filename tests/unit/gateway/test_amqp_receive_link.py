"""Receiving over a link: delivery, settlement, and what stays when the link goes."""

from uuid import UUID

import pytest

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.errors import AmqpError
from busway.amqp.events import CreditDrained, LinkDetached, SettlementsAnswered
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Modified, Rejected, Released, TransactionalState
from busway.amqp.sections import AmqpMessage, decode_message
from busway.amqp.types import Symbol
from busway.model.descriptions import QueueDescription
from busway.model.errors import BrokerError, EntityDisabled
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, delivery_count, fill, in_room, payload

DEAD_LETTER = Symbol("com.microsoft:dead-letter")


def message(delivery: IncomingDelivery) -> AmqpMessage:
    return decode_message(delivery.payload)


def rejected_with(outcome: object) -> str:
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return outcome.error.condition


def test_peek_lock_delivers_unsettled_under_the_lock_token() -> None:
    """R-2, M-19, M-27a: the tag is the token in .NET byte order; the first delivery id of a session is at least 1."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"one")
        link = await peer.receiver("q")
        assert link.peer is not None
        assert link.peer.initial_delivery_count == 0
        assert (link.peer.snd_settle_mode, link.peer.rcv_settle_mode) == (0, 1)
        link.grant_credit(10)
        [delivery] = await peer.received(link, 1)
        assert not delivery.settled
        assert len(delivery.tag) == 16
        assert delivery.delivery_id >= 1
        seen = message(delivery)
        assert seen.delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=delivery.tag)}
        assert (seen.message_annotations or {})["x-opt-locked-until"] == room.clock.wall_ms() + 60_000

    in_room(scenario, QueueDescription("q"))


def test_receive_and_delete_delivers_settled_and_the_message_is_gone() -> None:
    """R-1: the deletion is committed before the transfer leaves."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"one")
        link = await peer.receiver("q", deletes=True)
        room.store.hold_commits()
        link.grant_credit(10)
        await room.turns()
        assert peer.deliveries(link) == []
        room.store.release_commits()
        [delivery] = await peer.received(link, 1)
        assert delivery.settled
        assert len(delivery.tag) == 16
        assert message(delivery).delivery_annotations == {}
        assert await room.namespace.queue("q").outlet(False).peek(0, 10) == []

    in_room(scenario, QueueDescription("q"))


def test_a_message_goes_to_a_waiting_receiver_as_soon_as_it_is_stored() -> None:
    """R-8: receivers wait with open credit."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.receiver("q")
        link.grant_credit(1)
        await room.turns()
        await fill(peer, b"late")
        assert [body_of(one) for one in await peer.received(link, 1)] == [b"late"]

    in_room(scenario, QueueDescription("q"))


def test_complete_removes_the_message_and_is_answered_alike() -> None:
    """R-10, R-16: the answer comes when it is durable."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1", b"2", b"3")
        link = await peer.receiver("q")
        link.grant_credit(3)
        found = await peer.received(link, 3)
        assert await peer.settle(link, found, Accepted()) == [Accepted()] * 3
        assert await room.namespace.queue("q").outlet(False).peek(0, 10) == []

    in_room(scenario, QueueDescription("q"))


def test_abandon_returns_the_message_counted_and_changed() -> None:
    """R-6, R-11, R-21, R-40: modified; the delivery count rises, properties are merged."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        await peer.sent(sender, payload(b"x", application_properties={"keep": "1", "change": "old"}))
        link = await peer.receiver("q")
        link.grant_credit(1)
        [first] = await peer.received(link, 1)
        wish = Modified(True, False, {"change": "new", "more": None})
        assert await peer.settle(link, [first], wish) == [Modified(True, False, None)]
        link.grant_credit(1)
        second = (await peer.received(link, 2))[1]
        assert delivery_count(second) == 1
        assert message(second).application_properties == {"keep": "1", "change": "new", "more": None}
        assert second.tag != first.tag

    in_room(scenario, QueueDescription("q"))


def test_release_returns_the_message_uncounted() -> None:
    """R-12: release returns the message uncounted."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        [first] = await peer.received(link, 1)
        assert await peer.settle(link, [first], Released()) == [Released()]
        link.grant_credit(1)
        assert delivery_count((await peer.received(link, 2))[1]) == 0

    in_room(scenario, QueueDescription("q"))


def test_defer_takes_the_message_aside() -> None:
    """R-13, R-44, R-50: undeliverable-here means later, by number."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        [first] = await peer.received(link, 1)
        assert await peer.settle(link, [first], Modified(True, True)) == [Modified(True, True, None)]
        link.grant_credit(1)
        await room.turns()
        assert len(peer.deliveries(link)) == 1
        [fetched] = await room.namespace.queue("q").outlet(False).receive_by_number([1], deletes=True)
        assert fetched.message.delivery_count == 1

    in_room(scenario, QueueDescription("q"))


def test_dead_letter_moves_the_message_with_its_reason() -> None:
    """R-14, D-5, D-6, D-16, M-22: and the answer is `rejected` without an error."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        found = await peer.received(link, 1)
        info = {"DeadLetterReason": "why", "DeadLetterErrorDescription": "how", "extra": 5}
        assert await peer.settle(link, found, Rejected(AmqpError(DEAD_LETTER, "d", info))) == [Rejected(None)]
        dead = await peer.receiver("q/$DeadLetterQueue")
        dead.grant_credit(1)
        [letter] = await peer.received(dead, 1)
        assert message(letter).application_properties == {
            "DeadLetterReason": "why",
            "DeadLetterErrorDescription": "how",
            "extra": 5,
        }
        assert await peer.settle(dead, [letter], Accepted()) == [Accepted()]

    in_room(scenario, QueueDescription("q"))


def test_a_dead_letter_cannot_be_dead_lettered_again() -> None:
    """D-2: a failure is `rejected` with an error."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        await peer.settle(link, await peer.received(link, 1), Rejected())
        dead = await peer.receiver("q/$DeadLetterQueue")
        dead.grant_credit(1)
        [outcome] = await peer.settle(dead, await peer.received(dead, 1), Rejected())
        assert rejected_with(outcome) == "amqp:not-allowed"

    in_room(scenario, QueueDescription("q"))


def test_a_lost_lock_cannot_complete() -> None:
    """R-5, R-17, R-40, ERR-11: the message is available again, counted."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        found = await peer.received(link, 1)
        await room.pass_time(61)
        [outcome] = await peer.settle(link, found, Accepted())
        assert rejected_with(outcome) == "com.microsoft:message-lock-lost"
        link.grant_credit(1)
        assert delivery_count((await peer.received(link, 2))[1]) == 1

    in_room(scenario, QueueDescription("q"))


def test_one_disposition_over_many_tells_each_its_own_fate() -> None:
    """R-16, R-17: those whose lock is gone are rejected, the others completed."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1", b"2", b"3")
        link = await peer.receiver("q")
        link.grant_credit(3)
        found = await peer.received(link, 3)
        refused: list[tuple[int, BrokerError]] = []
        room.namespace.queue("q").outlet(False).settle(
            [found[1].tag], Settlement(Verb.COMPLETE), refused.extend
        )
        outcomes = await peer.settle(link, found, Accepted())
        assert outcomes[0] == outcomes[2] == Accepted()
        assert rejected_with(outcomes[1]) == "com.microsoft:message-lock-lost"

    in_room(scenario, QueueDescription("q"))


def test_a_receiver_that_settles_by_itself_gets_no_answer() -> None:
    """R-16: settled=true is a fact, and it is acted on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
        await room.turns()
        assert await room.namespace.queue("q").outlet(False).peek(0, 10) == []

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize(
    ("outcome", "condition"),
    [
        (Modified(True, False, {"a": [1]}), "com.microsoft:argument-error"),
        (TransactionalState(b"t", Accepted()), "amqp:transaction:unknown-id"),
    ],
)
def test_an_outcome_that_cannot_be_done_is_refused_and_the_lock_stays(
    outcome: object, condition: str
) -> None:
    """R-16, M-34: an outcome that cannot be done is refused and the lock stays."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        found = await peer.received(link, 1)
        [answer] = await peer.settle(link, found, outcome)
        assert rejected_with(answer) == condition
        assert await room.namespace.queue("q").outlet(False).renew([found[0].tag])

    in_room(scenario, QueueDescription("q"))


def _told(peer: Peer, link: Link) -> list[object]:
    """Answers to settlements and the link's end, in the order they came."""
    told: list[object] = []
    for event in peer.events:
        if isinstance(event, SettlementsAnswered) and event.link is link:
            told.append(event.state)
        elif isinstance(event, LinkDetached) and event.link is link and event.error is not None:
            told.append(event.error.condition)
    return told


def test_an_evicted_receiver_hears_of_its_settlements_first() -> None:
    """E-84, R-16: outcomes whose commit is under way are answered, then the link is detached, once; meanwhile
    nothing is delivered and later outcomes are refused."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1", b"2")
        link = await peer.receiver("q")
        link.grant_credit(2)
        first, second = await peer.received(link, 2)
        room.store.hold_commits()
        link.settle(first.delivery_id, first.delivery_id, Accepted(), settled=False)
        await room.turns()
        outlet = room.namespace.queue("q").outlet(False)
        outlet.evict(EntityDisabled())
        outlet.evict(EntityDisabled())
        link.settle(second.delivery_id, second.delivery_id, Accepted(), settled=False)
        link.grant_credit(5)
        await room.turns()
        [refused] = _told(peer, link)
        assert rejected_with(refused) == "com.microsoft:entity-disabled"
        room.store.release_commits()
        await room.until(lambda: peer.refusal(link))
        await room.turns()
        assert _told(peer, link)[1:] == [Accepted(), "com.microsoft:entity-disabled"]
        assert len(peer.deliveries(link)) == 2
        assert [m.sequence_number for m in await outlet.peek(0, 10)] == [2]

    in_room(scenario, QueueDescription("q"))


def test_a_receiver_whose_token_ends_hears_of_its_settlements_first() -> None:
    """A-8, R-16: the token covered the settlement when it arrived; what arrives later is refused."""

    async def scenario(room: Room) -> None:
        await fill(await room.client(), b"1", b"2", b"3")
        peer = await room.stranger()
        await peer.put_token("sb://localhost/q", lifetime_s=30)
        link = await peer.receiver("q")
        link.grant_credit(2)
        first, second = await peer.received(link, 2)
        room.store.hold_commits()
        link.settle(first.delivery_id, first.delivery_id, Accepted(), settled=False)
        await room.turns()
        await room.pass_time(31)
        link.settle(second.delivery_id, second.delivery_id, Accepted(), settled=False)
        link.grant_credit(5)
        await room.turns()
        [refused] = _told(peer, link)
        assert rejected_with(refused) == "amqp:unauthorized-access"
        room.store.release_commits()
        await room.until(lambda: peer.refusal(link))
        assert _told(peer, link)[1:] == [Accepted(), "amqp:unauthorized-access"]
        assert len(peer.deliveries(link)) == 2

    in_room(scenario, QueueDescription("q"))


def test_an_evicted_receiver_whose_commit_fails_is_told_what_is_known() -> None:
    """S-1, R-16: of an unknown outcome nothing but the end of the link, and that only once."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1")
        link = await peer.receiver("q")
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        room.store.hold_commits()
        room.store.lose_next_commit(is_applied=True)
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
        await room.turns()
        room.namespace.queue("q").outlet(False).evict(EntityDisabled())
        room.store.release_commits()
        await room.until(lambda: peer.refusal(link))
        await room.turns()
        assert _told(peer, link) == ["amqp:link:detach-forced"]

    in_room(scenario, QueueDescription("q"))


def test_locks_outlive_the_link() -> None:
    """R-19, R-40: closed or lost, the message is available again only when its lock ends, counted."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        await fill(peer, b"x", b"y")
        closing, losing = await peer.receiver("q"), await other.receiver("q")
        closing.grant_credit(1)
        await peer.received(closing, 1)
        losing.grant_credit(1)
        await other.received(losing, 1)
        closing.detach()
        other.transport.lose()
        third = await peer.receiver("q")
        third.grant_credit(2)
        await room.turns()
        assert peer.deliveries(third) == []
        await room.pass_time(61)
        found = await peer.received(third, 2)
        assert [delivery_count(one) for one in found] == [1, 1]

    in_room(scenario, QueueDescription("q"))


def test_missing_and_disabled_entities_refuse_receivers() -> None:
    """ERR-1, ERR-3, E-82: missing and disabled entities refuse receivers."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for address, condition in (
            ("nothing", "amqp:not-found"),
            ("q", "com.microsoft:entity-disabled"),
            ("q/$DeadLetterQueue", "com.microsoft:entity-disabled"),
        ):
            link = await peer.receiver(address)
            refusal = peer.refusal(link)
            assert refusal is not None
            assert refusal[0] == condition
            assert link.peer is not None
            assert link.peer.source is None

    in_room(scenario, QueueDescription("q", status="ReceiveDisabled"))


def test_too_many_receivers_are_refused() -> None:
    """L-12, ERR-17: 5,000 on each entity, here two."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = [await peer.receiver("q") for _ in range(3)]
        assert [peer.refusal(link) is None for link in links] == [True, True, False]
        refusal = peer.refusal(links[2])
        assert refusal is not None
        assert refusal[0] == "com.microsoft:server-busy"
        links[0].detach()
        await room.turns()
        assert peer.refusal(await peer.receiver("q")) is None

    in_room(scenario, QueueDescription("q"), limits=Limits(receivers_per_entity_max=2))


def test_a_failed_store_detaches_receivers_and_they_may_come_back() -> None:
    """S-1, R-16: settlement of unknown outcome gets no answer."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"x")
        link = await peer.receiver("q")
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        room.store.lose_next_commit(is_applied=False)
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
        assert await room.until(lambda: peer.refusal(link))
        await room.pass_time(5)
        again = await peer.receiver("q")
        again.grant_credit(1)
        assert [body_of(one) for one in await peer.received(again, 1)] == [b"x"]

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("", "com.microsoft:argument-error"),
        ("%ff", "com.microsoft:argument-error"),
        ("$management/q", "amqp:not-found"),
    ],
)
def test_addresses_that_mean_nothing_are_refused(address: str, condition: str) -> None:
    """E-8, ERR-7: with a condition, never with an error of ours."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.receiver(address))
        assert refusal is not None
        assert refusal[0] == condition
        assert peer.closed_with() is None

    in_room(scenario, QueueDescription("q"))


def test_the_transfer_dead_letter_queue_is_there_and_empty() -> None:
    """E-8, D-22, R-9: a receiver waits or drains there, and goes with its queue."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1")
        link = await peer.receiver("q/$Transfer/$DeadLetterQueue")
        link.grant_credit(5)
        await room.turns()
        link.grant_credit(5, drain=True)
        await room.turns()
        assert peer.deliveries(link) == []
        assert len(peer.seen(CreditDrained, link)) == 1
        missing = await peer.receiver("other/$Transfer/$DeadLetterQueue")
        assert (peer.refusal(missing) or ("",))[0] == "amqp:not-found"
        await room.namespace.delete("q")
        await room.turns()
        assert (peer.refusal(link) or ("",))[0] == "amqp:not-found"

    in_room(scenario, QueueDescription("q"))
