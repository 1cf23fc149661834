"""Sending to one entity by way of another, and its dead letters (TX-3, TX-18, TX-22, D-22)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Properties, Rejected, TransactionalState
from busway.amqp.sections import decode_message
from busway.amqp.types import Array, Symbol
from busway.broker.entity.fragment_choice import fragment_of_key
from busway.model.descriptions import (
    AuthorizationRule,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import EntityNotFound
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller, asked_in, condition_of, sent_in, settled_in

VIA = QueueDescription("via")
FINAL = QueueDescription("final")
DESTINATION = Symbol("com.microsoft:transfer-destination-address")


async def via_sender(peer: Peer, via: str = "via", destination: object = "final") -> Link:
    return await peer.sender(via, properties={DESTINATION: destination})


async def bodies_in(peer: Peer, address: str) -> list[bytes]:
    own, peer.session = peer.session, peer.engine.begin()  # TX-4: one on which everything can be looked at
    link = await peer.receiver(address, deletes=True)
    peer.session = own
    link.grant_credit(100)
    await peer.room.turns(40)
    found = [body_of(delivery) for delivery in peer.deliveries(link)]
    link.detach()
    await peer.room.turns()
    return found


async def set_status(room: Room, status: str) -> None:
    """Of the destination."""
    await room.namespace.update(replace(room.namespace.description("final"), status=status))


def counts(room: Room, path: str) -> Any:
    return room.namespace.contents.entities.counts.of(room.namespace.contents.entities.rows[path])


def test_a_message_sent_via_an_entity_is_never_seen_there_and_arrives_where_it_belongs() -> None:
    """TX-3: in a transaction with a settlement there."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("via"), payload(b"job"))
        receiver = await peer.receiver("via")
        receiver.grant_credit(10)
        deliveries = await peer.received(receiver, 1)
        sender = await via_sender(peer)
        assert peer.refusal(sender) is None
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        outcome = await sent_in(peer, sender, txn_id, payload(b"result"))
        assert outcome == TransactionalState(txn_id, Accepted())
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert await bodies_in(peer, "final") == []
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await bodies_in(peer, "final") == [b"result"]
        assert len(peer.deliveries(receiver)) == 1
        assert counts(room, "via").active == 0

    in_room(scenario, VIA, FINAL)


def test_a_rolled_back_transaction_sends_nothing_via() -> None:
    """TX-3, TX-9: a rolled back transaction sends nothing via."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"never"))
        assert isinstance(await controller.discharge(txn_id, fail=True), Accepted)
        assert await bodies_in(peer, "final") == []

    in_room(scenario, VIA, FINAL)


def test_outside_a_transaction_messages_are_moved_on_as_well() -> None:
    """TX-3, S-4: in order, with what the sender wrote in them."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        sent = [payload(b"%d" % n, properties=Properties(message_id=str(n), subject="s")) for n in range(20)]
        assert all(isinstance(outcome, Accepted) for outcome in await peer.sent(sender, *sent))
        receiver = await peer.receiver("final")
        receiver.grant_credit(100)
        deliveries = await peer.received(receiver, 20)
        assert [body_of(delivery) for delivery in deliveries] == [b"%d" % n for n in range(20)]
        message = decode_message(deliveries[3].payload)
        assert message.properties is not None
        assert (message.properties.message_id, message.properties.subject) == ("3", "s")
        assert set(message.delivery_annotations or {}) == {Symbol("x-opt-lock-token")}

    in_room(scenario, VIA, FINAL)


def test_links_on_the_session_of_the_control_link_send_to_other_entities() -> None:
    """TX-22: the first entity used is the via entity; other sessions keep to TX-2, and the transaction is doomed."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("via"), payload(b"job"))
        controller = await Controller.attached(peer)
        receiver = await peer.receiver("via")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        sender = await peer.sender("final")
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        for body in (b"1", b"2"):
            assert condition_of(await sent_in(peer, sender, txn_id, payload(body))) is None
        first_session, peer.session = peer.session, peer.engine.begin()
        elsewhere = await peer.sender("final")
        refusal = await sent_in(peer, elsewhere, txn_id, payload(b"x"))
        peer.session = first_session
        assert condition_of(refusal) == "amqp:not-allowed"
        assert isinstance(refusal, Rejected)
        assert refusal.error is not None
        assert (refusal.error.description or "").startswith(
            "Local transactions cannot span multiple top-level entities such as queue or topic."
        )
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert await bodies_in(peer, "final") == []
        assert counts(room, "via").active == 1
        again = await controller.declare()
        token = UUID(bytes_le=deliveries[0].tag)
        links = await peer.request_links("via/$management")
        settlement: dict[str, object] = {
            "lock-tokens": Array([token], 0x98),
            "disposition-status": "completed",
        }
        assert (await asked_in(peer, links, again, "update-disposition", settlement))[0] == 200
        for body in (b"1", b"2"):
            assert condition_of(await sent_in(peer, sender, again, payload(body))) is None
        assert isinstance(await controller.discharge(again), Accepted)
        assert await bodies_in(peer, "final") == [b"1", b"2"]
        assert counts(room, "via").active == 0

    in_room(scenario, VIA, FINAL)


def test_a_discharge_right_behind_the_first_send_to_another_entity_waits_for_it() -> None:
    """TX-22, TX-8: though the via entity must be prepared for it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        via, final = await peer.sender("via"), await peer.sender("final")
        txn_id = await controller.declare()
        await sent_in(peer, via, txn_id, payload(b"here"))
        final.send(b"tag", payload(b"there"), settled=False, state=TransactionalState(txn_id))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        observer = await room.client()
        assert await bodies_in(observer, "via") == [b"here"]
        assert await bodies_in(observer, "final") == [b"there"]

    in_room(scenario, VIA, FINAL)


def test_input_from_a_subscription_goes_via_its_topic() -> None:
    """TX-3: input from a subscription goes via its topic."""

    async def scenario(room: Room) -> None:
        for description in (TopicDescription("t"), SubscriptionDescription("t/Subscriptions/s")):
            await room.namespace.create([NewEntity(description)])
        peer = await room.client()
        await peer.sent(await peer.sender("t"), payload(b"event"))
        receiver = await peer.receiver("t/Subscriptions/s")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        sender = await via_sender(peer, "t")
        controller = await Controller.attached(peer)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        await sent_in(peer, sender, txn_id, payload(b"task"))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await bodies_in(peer, "final") == [b"task"]
        refused = await via_sender(peer, "t/Subscriptions/s")
        assert (peer.refusal(refused) or ("",))[0] == "amqp:not-allowed"

    in_room(scenario, FINAL)


def test_the_right_to_send_is_needed_on_both_entities() -> None:
    """TX-3, A-9: the right to send is needed on both entities."""

    async def scenario(room: Room) -> None:
        rule = AuthorizationRule("via-only", frozenset({"Send"}), "k" * 43 + "=", "l" * 43 + "=")
        await room.namespace.create([NewEntity(replace(VIA, authorization_rules=(rule,)))])
        root = await room.client()
        assert root.refusal(await via_sender(root)) is None
        peer = await room.stranger()
        await peer.put_token("sb://ns.local/via", rule="via-only", key=rule.primary_key)
        refused = await via_sender(peer)
        assert (peer.refusal(refused) or ("",))[0] == "amqp:unauthorized-access"

    in_room(scenario, FINAL)


@pytest.mark.parametrize(
    ("destination", "condition"),
    [
        ("nowhere", "amqp:not-found"),
        ("final/$DeadLetterQueue", "amqp:not-allowed"),
        ("$cbs", "amqp:not-allowed"),
        (7, "com.microsoft:argument-error"),
    ],
)
def test_a_destination_that_cannot_be_sent_to_is_refused(destination: object, condition: str) -> None:
    """TX-3, D-22: a destination that cannot be sent to is refused."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        refused = await via_sender(peer, destination=destination)
        assert (peer.refusal(refused) or ("",))[0] == condition

    in_room(scenario, VIA, FINAL)


def test_a_destination_that_is_deleted_is_told_to_the_sender() -> None:
    """D-22: a destination that is deleted is told to the sender, 404."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        await room.namespace.delete("final")
        [outcome] = await peer.sent(sender, payload())
        assert condition_of(outcome) == "amqp:not-found"

    in_room(scenario, VIA, FINAL)


def test_what_a_disabled_destination_refuses_lies_in_the_transfer_dead_letter_queue() -> None:
    """D-22, D-17, E-8: received and peeked under its address, and counted."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        await peer.sent(sender, payload(b"fine"))
        await room.turns(40)
        transfers = room.namespace.transfer_queues.of("via")
        assert transfers is not None
        await set_status(room, "SendDisabled")
        await peer.sent(sender, payload(b"stuck"))
        await room.turns(40)
        assert counts(room, "via").transfer == 1
        for _ in range(8):
            await room.pass_time(1)
        assert (counts(room, "via").transfer, counts(room, "via").transfer_dead_letter) == (0, 1)
        receiver = await peer.receiver("via/$Transfer/$DeadLetterQueue")
        receiver.grant_credit(1)
        [delivery] = await peer.received(receiver, 1)
        message = decode_message(delivery.payload)
        assert body_of(delivery) == b"stuck"
        assert (message.application_properties or {})["DeadLetterReason"] == "TransferDestinationDisabled"
        assert (message.delivery_annotations or {})[Symbol("x-opt-transfer-destination")] == "final"
        await peer.settle(receiver, [delivery], Accepted())
        assert counts(room, "via").transfer_dead_letter == 0
        assert await bodies_in(peer, "final") == [b"fine"]

    in_room(scenario, VIA, FINAL)


def test_nobody_finds_the_transfer_queue_itself() -> None:
    """TX-3, E-8: no list names it, no address leads to it, and it goes with its entity."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await via_sender(peer)
        assert room.namespace.transfer_queues.of("via") is not None
        assert [entry.path for entry in room.namespace.queues()] == ["final", "via"]
        assert room.namespace.contents.entities.index.entity_count() == 2
        for address in ("via/$Transfer", "via/$transfer", "VIA/$TRANSFER"):
            for link in (await peer.sender(address), await peer.receiver(address)):
                assert (peer.refusal(link) or ("",))[0] == "amqp:not-found"
            with pytest.raises(EntityNotFound):
                room.namespace.queue(address)
        keys = room.namespace.contents.entities.index.keys_in("a")
        await room.namespace.delete("via")
        assert len(room.namespace.contents.entities.index.keys_in("a")) == len(keys) - 4
        assert [entry.path for entry in room.namespace.queues()] == ["final"]

    in_room(scenario, VIA, FINAL)


def test_transfers_survive_a_restart(tmp_path: Path) -> None:
    """TX-3, D-22: what was committed is moved on by the next life of the server."""

    async def before(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        await set_status(room, "SendDisabled")
        await peer.sent(sender, payload(b"patient"))
        await room.turns(40)
        assert counts(room, "via").transfer == 1

    async def after(room: Room) -> None:
        assert counts(room, "via").transfer == 1
        await set_status(room, "Active")
        await room.pass_time(2)
        assert await bodies_in(await room.client(), "final") == [b"patient"]
        assert counts(room, "via").transfer == 0

    in_room(before, VIA, FINAL, sqlite_folder=tmp_path)
    in_room(after, sqlite_folder=tmp_path)


def test_the_via_partition_key_chooses_the_fragment_of_the_via_entity() -> None:
    """TX-18: it must fit the other operations; the PartitionKey is for the destination."""
    via = replace(VIA, enable_partitioning=True)
    final = replace(FINAL, enable_partitioning=True)
    other = next(str(n) for n in range(100) if fragment_of_key(str(n), 16) != fragment_of_key("k", 16))

    def keyed(via_key: str | None) -> bytes:
        annotations: dict[object, object] = {Symbol("x-opt-partition-key"): "z"}
        if via_key is not None:
            annotations[Symbol("x-opt-via-partition-key")] = via_key
        return payload(b"m", message_annotations=annotations)

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await via_sender(peer)
        controller = await Controller.attached(peer)
        for before, refused in (((), keyed(None)), ((keyed("k"),), keyed(other))):
            doomed = await controller.declare()
            for each in before:
                assert condition_of(await sent_in(peer, sender, doomed, each)) is None
            assert condition_of(await sent_in(peer, sender, doomed, refused)) == "amqp:not-allowed"
            assert condition_of(await controller.discharge(doomed)) == "amqp:transaction:rollback"
        txn_id = await controller.declare()
        assert condition_of(await sent_in(peer, sender, txn_id, keyed("k"))) is None
        assert condition_of(await sent_in(peer, sender, txn_id, keyed(None))) is None
        assert isinstance(await controller.discharge(txn_id), Accepted)
        receiver = await peer.receiver("final")
        receiver.grant_credit(10)
        deliveries = await peer.received(receiver, 2)
        numbers = [
            int((decode_message(delivery.payload).message_annotations or {})[Symbol("x-opt-sequence-number")])
            for delivery in deliveries
        ]
        assert {number >> 48 for number in numbers} == {fragment_of_key("z", 16)}

    in_room(scenario, via, final)
