"""Receivers of a session whose control link came first keep to one entity (TX-4)."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted
from busway.amqp.types import Symbol
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller, condition_of, sent_in, settled_in

FIRST = QueueDescription("first")
SECOND = QueueDescription("second")
SENTENCE = "Local transactions cannot span multiple top-level entities such as queue or topic."
SESSION_FILTER = Symbol("com.microsoft:session-filter")


async def refusal_on(peer: Peer, address: str) -> str | None:
    """The condition with which a receiver is refused; None when it stands."""
    refusal = peer.refusal(await peer.receiver(address))
    if refusal is None:
        return None
    assert refusal[1].startswith(SENTENCE)
    return refusal[0]


def test_a_receiver_on_another_entity_is_refused() -> None:
    """TX-4: without any transaction, in any spelling, and also after the first receiver has gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        receiver = await peer.receiver("first")
        for address in ("second", "second/$DeadLetterQueue"):
            assert await refusal_on(peer, address) == "amqp:not-allowed"
        for address in ("first", "FIRST", "first/$DeadLetterQueue", "first/$Transfer/$DeadLetterQueue"):
            assert await refusal_on(peer, address) is None
        receiver.detach()
        await room.turns()
        assert await refusal_on(peer, "second") == "amqp:not-allowed"

    in_room(scenario, FIRST, SECOND)


def test_a_topic_and_its_subscriptions_are_one_entity_to_a_pinned_session() -> None:
    """TX-4, TX-2: a topic and its subscriptions are one entity to a pinned session."""

    async def scenario(room: Room) -> None:
        subscriptions = [SubscriptionDescription(f"t/Subscriptions/{name}") for name in "ab"]
        await room.namespace.create([NewEntity(TopicDescription("t")), *map(NewEntity, subscriptions)])
        peer = await room.client()
        await Controller.attached(peer)
        assert await refusal_on(peer, "t/Subscriptions/a") is None
        assert await refusal_on(peer, "t/subscriptions/B") is None
        assert await refusal_on(peer, "first") == "amqp:not-allowed"

    in_room(scenario, FIRST)


def test_receivers_of_sessions_are_bound_too() -> None:
    """TX-4, X-3: receivers of sessions are bound too."""

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(QueueDescription("s", requires_session=True))])
        peer = await room.client()
        await Controller.attached(peer)
        assert await refusal_on(peer, "first") is None
        link = await peer.receiver("s", filters={SESSION_FILTER: "one"})
        assert (peer.refusal(link) or ("",))[0] == "amqp:not-allowed"

    in_room(scenario, FIRST)


def test_the_first_transaction_binds_as_a_receiver_does() -> None:
    """TX-4, TX-22: the first entity used is the one by whose way messages go, also when nothing was received."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        await sent_in(peer, await peer.sender("first"), txn_id, payload(b"m"))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await refusal_on(peer, "second") == "amqp:not-allowed"
        assert await refusal_on(peer, "first") is None

    in_room(scenario, FIRST, SECOND)


def test_a_transaction_without_operations_binds_nothing() -> None:
    """TX-4: a transaction without operations binds nothing."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        assert isinstance(await controller.discharge(await controller.declare()), Accepted)
        assert condition_of(await controller.discharge(b"unknown")) == "amqp:transaction:unknown-id"
        assert await refusal_on(peer, "second") is None

    in_room(scenario, FIRST, SECOND)


@pytest.mark.parametrize("address", ["missing", "first/$Transfer"])
def test_a_receiver_that_is_refused_binds_nothing(address: str) -> None:
    """TX-4: a receiver that is refused binds nothing."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        assert peer.refusal(await peer.receiver(address)) is not None
        assert await refusal_on(peer, "second") is None

    in_room(scenario, FIRST, SECOND)


def test_sessions_whose_control_link_came_later_are_free() -> None:
    """TX-4, TX-22: so are those that have none; the order of the links is what tells."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await refusal_on(peer, "first") is None
        controller = await Controller.attached(peer)
        assert await refusal_on(peer, "second") is None
        bound, peer.session = peer.session, peer.engine.begin()
        assert [await refusal_on(peer, address) for address in ("first", "second")] == [None, None]
        peer.session = bound
        txn_id = await controller.declare()
        await sent_in(peer, await peer.sender("first"), txn_id, payload(b"m"))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await refusal_on(peer, "second") is None

    in_room(scenario, FIRST, SECOND)


def test_a_sender_that_is_used_first_binds_as_a_receiver_does() -> None:
    """TX-4, TX-22: the first entity used is the one by whose way messages go, whichever way it is used. A sender that
    has sent nothing was not used."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await Controller.attached(peer)
        assert peer.refusal(await peer.sender("missing")) is not None  # binds nothing
        first = await peer.sender("first")
        assert peer.refusal(first) is None
        assert peer.refusal(await peer.sender("second")) is None
        await peer.sent(first, payload(b"m"))
        assert await refusal_on(peer, "second") == "amqp:not-allowed"
        assert await refusal_on(peer, "first/$DeadLetterQueue") is None

    in_room(scenario, FIRST, SECOND)


def test_a_sender_of_a_session_without_that_mode_binds_nothing() -> None:
    """TX-4: a sender of a session without that mode binds nothing."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert peer.refusal(await peer.sender("first")) is None
        await Controller.attached(peer)
        assert await refusal_on(peer, "second") is None

    in_room(scenario, FIRST, SECOND)


def test_senders_are_not_bound() -> None:
    """TX-4, TX-22: what they send in a transaction goes by way of the entity that is received from."""

    async def scenario(room: Room) -> None:
        outside = await room.client()
        await outside.sent(await outside.sender("first"), payload(b"job"))
        peer = await room.client()
        controller = await Controller.attached(peer)
        receiver = await peer.receiver("first")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        sender = await peer.sender("second")
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert condition_of(await sent_in(peer, sender, txn_id, payload(b"result"))) is None
        assert isinstance(await controller.discharge(txn_id), Accepted)
        found = await outside.receiver("second", deletes=True)
        found.grant_credit(1)
        assert [body_of(delivery) for delivery in await outside.received(found, 1)] == [b"result"]

    in_room(scenario, FIRST, SECOND)
