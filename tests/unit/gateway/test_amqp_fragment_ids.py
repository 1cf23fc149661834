"""Clients cannot name a fragment; they see it in sequence numbers and in the partition id of a delivery (P-34)."""

from __future__ import annotations

import pytest

from busway.amqp.sections import decode_message
from busway.amqp.types import Short, Symbol
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.http_exchange import VERSION, Exchange, queue_body

PARTITIONED = QueueDescription("p", enable_partitioning=True)


@pytest.mark.parametrize(
    "address", ["p/0", "p/Partitions/0", "p/$Partitions/0", "p/ConsumerGroups/x/Partitions/0"]
)
def test_no_address_leads_to_a_fragment(address: str) -> None:
    """P-34, P-24: unlike the partitions of an event hub."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for link in (await peer.sender(address), await peer.receiver(address)):
            assert (peer.refusal(link) or ("",))[0] == "amqp:not-found"

    in_room(scenario, PARTITIONED)


def test_a_partition_id_that_a_client_writes_chooses_nothing() -> None:
    """P-34, P-30: messages that all ask for fragment 3 go round like any others."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        wish = {Symbol("x-opt-partition-id"): Short(3)}
        for _ in range(16):
            await peer.sent(sender, payload(message_annotations=wish))
        receiver = await peer.receiver("p")
        receiver.grant_credit(16)
        seen = set()
        for delivery in await peer.received(receiver, 16):
            annotations = decode_message(delivery.payload).message_annotations or {}
            index = int(annotations[Symbol("x-opt-sequence-number")]) >> 48
            assert annotations[Symbol("x-opt-partition-id")] == index
            seen.add(index)
        assert seen == set(range(16))

    in_room(scenario, PARTITIONED)


def test_a_description_says_nothing_of_single_fragments() -> None:
    """P-34: the flag and the sum of their sizes is all; `/$fragments` is for operators."""
    with Exchange() as exchange:
        body = queue_body("<EnablePartitioning>true</EnablePartitioning>")
        text = exchange.request("PUT", f"/p?{VERSION}", body).text
        assert "<EnablePartitioning>true</EnablePartitioning>" in text
        assert "ragment" not in text
        assert "PartitionCount" not in text
