"""Transactions on partitioned entities (TX-12…TX-17, TX-19, TX-20)."""

from __future__ import annotations

from uuid import UUID

import pytest

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Properties, Rejected, TransactionalState
from busway.amqp.sections import decode_message
from busway.amqp.types import Array, Symbol
from busway.broker.entity.fragment_choice import fragment_of_key
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller, asked_in, condition_of, sent_in, settled_in

PLAIN = QueueDescription("plain")
PARTITIONED = QueueDescription("p", enable_partitioning=True)
DETECTING = QueueDescription("d", enable_partitioning=True, requires_duplicate_detection=True)
SESSIONS = QueueDescription("s", enable_partitioning=True, requires_session=True)
NOT_ALLOWED = "amqp:not-allowed"
ROLLED_BACK = "amqp:transaction:rollback"
#: Three keys: the first two share a fragment, the third lies elsewhere.
KEY = "a"
NEIGHBOUR = next(str(n) for n in range(1000) if fragment_of_key(str(n), 16) == fragment_of_key(KEY, 16))
STRANGER = next(str(n) for n in range(1000) if fragment_of_key(str(n), 16) != fragment_of_key(KEY, 16))


def keyed(
    body: bytes = b"m",
    *,
    key: str | None = None,
    session_id: str | None = None,
    message_id: str | None = None,
) -> bytes:
    annotations = None if key is None else {Symbol("x-opt-partition-key"): key}
    properties = Properties(message_id=message_id, group_id=session_id)
    return payload(body, properties=properties, message_annotations=annotations)


async def conditions(peer: Peer, queue: str, *payloads: bytes) -> list[str | None]:
    """Sends all of them in one transaction and commits it; what each was refused with. One refusal dooms it."""
    controller = await Controller.attached(peer)
    sender = await peer.sender(queue)
    txn_id = await controller.declare()
    found = [condition_of(await sent_in(peer, sender, txn_id, each)) for each in payloads]
    committed = condition_of(await controller.discharge(txn_id))
    assert committed == (None if found == [None] * len(found) else ROLLED_BACK)
    return found


def numbers(deliveries: list[IncomingDelivery]) -> list[int]:
    annotations = [decode_message(delivery.payload).message_annotations or {} for delivery in deliveries]
    return [int(each[Symbol("x-opt-sequence-number")]) for each in annotations]


async def received(peer: Peer, address: str, count: int) -> tuple[Link, list[IncomingDelivery]]:
    receiver = await peer.receiver(address)
    receiver.grant_credit(100)
    return receiver, await peer.received(receiver, count)


def test_messages_with_one_key_are_committed_into_one_fragment() -> None:
    """TX-12, TX-13, P-24: messages with one key are committed into one fragment."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await conditions(peer, "p", *[keyed(key=KEY) for _ in range(5)]) == [None] * 5
        _, deliveries = await received(peer, "p", 5)
        assert {number >> 48 for number in numbers(deliveries)} == {fragment_of_key(KEY, 16)}

    in_room(scenario, PARTITIONED)


def test_a_message_without_a_key_is_refused() -> None:
    """TX-12, TX-16: a MessageId is a key only where duplicates are detected."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await conditions(peer, "p", keyed()) == [NOT_ALLOWED]
        assert await conditions(peer, "p", keyed(message_id="m")) == [NOT_ALLOWED]
        assert await conditions(peer, "p", keyed(session_id="x")) == [None]
        assert await conditions(peer, "d", keyed(message_id="m"), keyed(message_id="m")) == [None, None]
        _, deliveries = await received(await room.client(), "d", 1)
        assert len(deliveries) == 1  # the second was a duplicate (S-46)

    in_room(scenario, PARTITIONED, DETECTING)


def test_different_keys_are_refused_even_when_they_meet_in_one_fragment() -> None:
    """TX-13, TX-19: different keys are refused even when they meet in one fragment."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for other in (NEIGHBOUR, STRANGER):
            sent = [keyed(key=KEY), keyed(key=other), keyed(key=KEY)]
            assert await conditions(peer, "p", *sent) == [None, NOT_ALLOWED, ROLLED_BACK]
        assert room.namespace.queue("p").counts().active == 0

    in_room(scenario, PARTITIONED)


def test_on_an_entity_with_sessions_the_session_is_the_key() -> None:
    """TX-14: it is required, and a PartitionKey must be the same."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for refused in (keyed(key=KEY), keyed(key=STRANGER, session_id=KEY)):
            assert await conditions(peer, "s", refused) == [NOT_ALLOWED]
        sent = [keyed(session_id=KEY), keyed(key=KEY, session_id=KEY)]
        assert await conditions(peer, "s", *sent) == [None, None]

    in_room(scenario, SESSIONS)


def test_several_sessions_in_one_transaction_need_a_plain_entity() -> None:
    """TX-15: several sessions in one transaction need a plain entity."""

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(QueueDescription("plain", requires_session=True))])
        peer = await room.client()
        sent = [keyed(session_id=KEY), keyed(session_id=STRANGER)]
        assert await conditions(peer, "plain", *sent) == [None, None]
        assert await conditions(peer, "s", *sent) == [None, NOT_ALLOWED]

    in_room(scenario, SESSIONS)


def test_settlements_keep_to_the_fragment_of_the_transaction() -> None:
    """TX-17: the sentence is the service's."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        plain = await peer.sender("p")
        await peer.sent(plain, keyed(b"here", key=KEY), keyed(b"elsewhere", key=STRANGER))
        receiver, deliveries = await received(peer, "p", 2)
        by_body = {body_of(delivery): delivery for delivery in deliveries}
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        assert condition_of(await sent_in(peer, plain, txn_id, keyed(b"result", key=KEY))) is None
        [fine] = await settled_in(peer, receiver, txn_id, [by_body[b"here"]], Accepted())
        assert isinstance(fine, TransactionalState)
        [refused] = await settled_in(peer, receiver, txn_id, [by_body[b"elsewhere"]], Accepted())
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert condition_of(refused) == NOT_ALLOWED
        assert (refused.error.description or "").startswith(
            "Local transactions cannot span multiple entities or partitions."
        )
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert room.namespace.queue("p").counts().active == 2

    in_room(scenario, PARTITIONED)


def test_sends_keep_to_the_fragment_of_what_was_settled_before() -> None:
    """TX-17: sends keep to the fragment of what was settled before."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        await peer.sent(sender, keyed(b"here", key=KEY))
        receiver, deliveries = await received(peer, "p", 1)
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert condition_of(await sent_in(peer, sender, txn_id, keyed(key=KEY))) is None
        assert condition_of(await sent_in(peer, sender, txn_id, keyed(key=STRANGER))) == NOT_ALLOWED
        assert condition_of(await controller.discharge(txn_id)) == ROLLED_BACK
        assert room.namespace.queue("p").counts().active == 1

    in_room(scenario, PARTITIONED)


def test_one_request_cannot_settle_in_several_fragments() -> None:
    """TX-17, R-18; a token that belongs nowhere is a lost lock."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("p"), keyed(key=KEY), keyed(key=STRANGER))
        _, deliveries = await received(peer, "p", 2)
        links = await peer.request_links("p/$management")
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        tokens = [UUID(bytes_le=delivery.tag) for delivery in deliveries]

        async def settle(chosen: list[UUID]) -> str | None:
            body: dict[str, object] = {
                "disposition-status": "completed",
                "lock-tokens": Array(list(chosen), 0x98),
            }
            return (await asked_in(peer, links, txn_id, "update-disposition", body))[2]

        assert await settle(tokens) == NOT_ALLOWED
        assert await settle([UUID(bytes_le=b"\xff" * 16)]) == "com.microsoft:message-lock-lost"
        assert await settle(tokens[:1]) is None
        assert isinstance(await controller.discharge(txn_id), Accepted)

    in_room(scenario, PARTITIONED)


def test_a_partitioned_topic_and_its_subscriptions_share_a_transaction() -> None:
    """TX-2, TX-12, TX-17: a partitioned topic and its subscriptions share a transaction."""

    async def scenario(room: Room) -> None:
        topic = TopicDescription("t", enable_partitioning=True)
        for description in (topic, SubscriptionDescription("t/Subscriptions/a")):
            await room.namespace.create([NewEntity(description)])
        peer = await room.client()
        sender = await peer.sender("t")
        await peer.sent(sender, keyed(b"first", key=KEY))
        receiver, deliveries = await received(peer, "t/Subscriptions/a", 1)
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        assert condition_of(await sent_in(peer, sender, txn_id, keyed(b"none"))) == NOT_ALLOWED
        assert condition_of(await controller.discharge(txn_id)) == ROLLED_BACK
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert condition_of(await sent_in(peer, sender, txn_id, keyed(b"second", key=KEY))) is None
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert [body_of(delivery) for delivery in await peer.received(receiver, 2)] == [b"first", b"second"]

    in_room(scenario)


@pytest.mark.parametrize("operation", ["add-rule", "remove-rule"])
def test_rules_of_a_partitioned_topic_are_not_changed_in_a_transaction(operation: str) -> None:
    """TX-20, T-13: rules of a partitioned topic are not changed in a transaction."""

    async def scenario(room: Room) -> None:
        topic = TopicDescription("t", enable_partitioning=True)
        for description in (topic, SubscriptionDescription("t/Subscriptions/a")):
            await room.namespace.create([NewEntity(description)])
        peer = await room.client()
        controller = await Controller.attached(peer)
        links = await peer.request_links("t/Subscriptions/a/$management")
        txn_id = await controller.declare()
        rule: dict[str, object] = {
            "rule-name": "r" if operation == "add-rule" else "$Default",
            "rule-description": {"sql-filter": {"expression": "1=1"}},
        }
        status, _, condition = await asked_in(peer, links, txn_id, operation, rule)
        assert (status, condition) == (400, NOT_ALLOWED)
        assert [each.name for each in room.namespace.rules.of("t/Subscriptions/a")] == ["$Default"]

    in_room(scenario)


def test_a_settlement_of_another_partition_gives_its_message_up() -> None:
    """TX-17: it is refused, its lock is lost, and the message comes again; the transaction goes on without it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        await peer.sent(sender, keyed(key=KEY), keyed(key=STRANGER))
        controller = await Controller.attached(peer)
        receiver, deliveries = await received(peer, "p", 2)
        mine, other = sorted(deliveries, key=lambda one: numbers([one])[0] >> 48 != fragment_of_key(KEY, 16))
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, [mine], Accepted())
        [refused] = await settled_in(peer, receiver, txn_id, [other], Accepted())
        assert condition_of(refused) == NOT_ALLOWED
        again = (await peer.received(receiver, 3))[2]
        assert numbers([again]) == numbers([other])
        header = decode_message(again.payload).header
        assert header is not None
        assert header.delivery_count == 1
        assert await peer.settle(receiver, [again], Accepted()) == [Accepted()]
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert room.namespace.queue("p").counts().active == 0

    in_room(scenario, PARTITIONED)
