"""Sessions whose first link is a control link: cross-entity mode (TX-4, TX-22)."""

from __future__ import annotations

from busway.amqp.performatives import Accepted, Properties, Source, Target
from busway.amqp.types import Symbol
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller, sent_in, settled_in

FIRST = QueueDescription("first")
SECOND = QueueDescription("second")
GROUPED = QueueDescription("grouped", requires_session=True)
SENTENCE = "Local transactions cannot span multiple top-level entities such as queue or topic."


async def is_refused(peer: Peer, address: str, session_id: str | None = None) -> bool:
    filters = None if session_id is None else {Symbol("com.microsoft:session-filter"): session_id}
    refusal = peer.refusal(await peer.receiver(address, filters=filters))
    if refusal is None:
        return False
    assert refusal[0] == "amqp:not-allowed"
    assert refusal[1].startswith(SENTENCE)
    return True


def test_the_first_receiver_pins_the_session() -> None:
    """TX-4: a receiver on another entity is refused, with no transaction open, also after the first has gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        first = await peer.receiver("first")
        assert peer.refusal(first) is None
        assert await is_refused(peer, "second")
        assert await is_refused(peer, "grouped", "s")
        for again in ("FIRST", "first/$DeadLetterQueue", "first/$Transfer/$DeadLetterQueue"):
            assert not await is_refused(peer, again)
        first.detach()
        await room.turns()
        assert await is_refused(peer, "second")

    in_room(scenario, FIRST, SECOND, GROUPED)


def test_a_message_session_pins_when_it_is_held() -> None:
    """TX-4, X-6: a receiver that was refused pins nothing."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        missing = await peer.receiver("missing")
        assert (peer.refusal(missing) or ("",))[0] == "amqp:not-found"
        assert not await is_refused(peer, "grouped", "s")
        assert await is_refused(peer, "first")

    in_room(scenario, FIRST, GROUPED)


def test_subscriptions_of_one_topic_are_one_entity() -> None:
    """TX-4, TX-2: subscriptions of one topic are one entity."""

    async def scenario(room: Room) -> None:
        for name in ("a", "b"):
            await room.namespace.create([NewEntity(SubscriptionDescription(f"t/Subscriptions/{name}"))])
        peer = await room.client()
        await Controller.attached(peer)
        assert not await is_refused(peer, "t/Subscriptions/a")
        assert not await is_refused(peer, "t/Subscriptions/b")
        assert await is_refused(peer, "first")

    async def with_topic(room: Room) -> None:
        await room.namespace.create([NewEntity(TopicDescription("t"))])
        await scenario(room)

    in_room(with_topic, FIRST)


def test_senders_are_not_pinned() -> None:
    """TX-4, TX-22: they are what the mode is for."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("first"), payload(b"job"))
        receiver = await peer.receiver("first")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        sender = await peer.sender("second")
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        await sent_in(peer, sender, txn_id, payload(b"result"))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        peer.session = peer.engine.begin()
        other = await peer.receiver("second")
        other.grant_credit(1)
        assert [body_of(each) for each in await peer.received(other, 1)] == [b"result"]

    in_room(scenario, FIRST, SECOND)


def test_only_a_session_that_begins_with_a_control_link_is_pinned() -> None:
    """TX-4: other sessions of the connection, and clients that open a control link when they need one, are not."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sender("first")
        await Controller.attached(peer)
        for address in ("first", "second"):
            assert not await is_refused(peer, address)
        peer.session = peer.engine.begin()
        await Controller.attached(peer)
        assert not await is_refused(peer, "first")
        assert await is_refused(peer, "second")
        peer.session = peer.engine.begin()
        assert not await is_refused(peer, "second")

    in_room(scenario, FIRST, SECOND)


def test_tokens_may_come_before_the_control_link() -> None:
    """TX-4, A-7: links to `$cbs` do not say what a session is for."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await peer.put_token("sb://ns.local/") == 202
        await Controller.attached(peer)
        assert not await is_refused(peer, "first")
        assert await is_refused(peer, "second")

    in_room(scenario, FIRST, SECOND)


def test_a_receiver_that_waits_for_a_session_may_come_too_late() -> None:
    """TX-4, X-7: somebody else has pinned the AMQP session meanwhile; the message session is free again."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        any_session = {Symbol("com.microsoft:session-filter"): None}
        waiting = peer.session.attach(
            "waits", is_sender=False, source=Source("grouped", filter=any_session), target=Target("there")
        )
        await room.turns()
        assert not await is_refused(peer, "first")
        other = await room.client()
        message = payload(b"m", properties=Properties(group_id="s"))
        await other.sent(await other.sender("grouped"), message)
        await peer.attach(waiting)
        assert (peer.refusal(waiting) or ("",))[0] == "amqp:not-allowed"
        assert not await is_refused(other, "grouped", "s")

    in_room(scenario, FIRST, GROUPED)
