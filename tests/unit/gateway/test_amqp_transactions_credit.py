"""What a commit gives back goes to a link that has credit for it: Java's SDK keeps such links, and releases what
comes to one when nobody waits for it."""

from __future__ import annotations

from busway.amqp.performatives import Accepted, Modified, Released
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller, settled_in


def test_what_a_commit_gives_back_comes_under_the_credit_that_is_left() -> None:
    """TX-8, R-10: once, before or after the answer to the commit, without a flow."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("q"), payload(b"m"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(2)
        first = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, first, Modified(False, False))
        await room.turns()
        assert peer.deliveries(receiver) == first
        assert isinstance(await controller.discharge(txn_id), Accepted)
        await room.turns()
        assert [body_of(delivery) for delivery in peer.deliveries(receiver)] == [b"m", b"m"]

    in_room(scenario, QueueDescription("q"))


def test_what_comes_so_and_is_released_waits_for_the_next_credit() -> None:
    """TX-8, R-12: nothing is left of the credit, so it lies in the queue; whoever asks next gets it at once."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("q"), payload(b"m"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(2)
        first = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, first, Modified(False, False))
        await controller.discharge(txn_id)
        [_, again] = await peer.received(receiver, 2)
        assert await peer.settle(receiver, [again], Released()) == [Released()]
        await room.turns()
        assert len(peer.deliveries(receiver)) == 2
        receiver.grant_credit(1)
        await room.turns()
        assert [body_of(delivery) for delivery in peer.deliveries(receiver)] == [b"m"] * 3

    in_room(scenario, QueueDescription("q"))
