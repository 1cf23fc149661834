"""Partitioned queues over AMQP links: slices, batch envelopes, partition ids, drains."""

from collections import Counter

import pytest

from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Short, Symbol
from busway.broker.entity.fragment_choice import fragment_of_key
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room, payload

BATCH_FORMAT = 0x80013700
QUEUE = QueueDescription("q", enable_partitioning=True)
KEY = Symbol("x-opt-partition-key")


async def spread(room: Room) -> Counter[int]:
    found = await room.namespace.queue("q").outlet(False).peek(0, 250)
    return Counter(message.sequence_number >> 48 for message in found)


def keyed(body: bytes, key: str) -> bytes:
    return payload(body, message_annotations={KEY: key})


def batch(*payloads: bytes, **sections: object) -> bytes:
    envelope = AmqpMessage(list(payloads), DATA)
    for name, value in sections.items():
        setattr(envelope, name, value)
    return encode_message(envelope)


def test_pipelined_sends_are_spread_in_slices() -> None:
    """P-30: what arrives together is cut at sixteen; no fragment is more than a slice away from even."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        assert await peer.sent(link, *[payload(b"%d" % n) for n in range(80)]) == [Accepted()] * 80
        counts = await spread(room)
        assert sum(counts.values()) == 80
        assert max(counts.values()) <= 80 // 16 + 16

    in_room(scenario, QUEUE)


def test_single_sends_rotate_one_by_one() -> None:
    """P-30, P-5: one each; every send counts once."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        for n in range(32):
            assert await peer.sent(link, payload(b"%d" % n)) == [Accepted()]
        assert await spread(room) == dict.fromkeys(range(16), 2)
        flow = room.namespace.flows.known("q")
        assert flow.messages_in == 32

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("deletes", [False, True])
def test_the_partition_id_is_on_every_delivery_of_a_partitioned_entity(deletes: bool) -> None:
    """M-25: a short, the upper bits of the number, fragment 0 included; in receive-and-delete too."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        for n in range(16):
            await peer.sent(link, payload(b"%d" % n))
        receiver = await peer.receiver("q", deletes=deletes)
        receiver.grant_credit(16)
        for delivery in await peer.received(receiver, 16):
            annotations = decode_message(delivery.payload).message_annotations or {}
            shown = annotations[Symbol("x-opt-partition-id")]
            number = annotations[Symbol("x-opt-sequence-number")]
            assert isinstance(shown, Short)
            assert isinstance(number, int)
            assert shown == number >> 48

    in_room(scenario, QUEUE)


def test_plain_entities_show_no_partition_id() -> None:
    """M-25: absent on unpartitioned entities."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("q"), payload())
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        (delivery,) = await peer.received(receiver, 1)
        annotations = decode_message(delivery.payload).message_annotations or {}
        assert Symbol("x-opt-partition-id") not in annotations

    in_room(scenario, QueueDescription("q"))


def test_the_key_of_a_batch_is_that_of_its_messages() -> None:
    """S-26, S-23: copied into the envelope or not; all in the key's fragment."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        inner = [keyed(b"a", "k"), keyed(b"b", "k")]
        for sections in ({}, {"message_annotations": {KEY: "k"}}, {"properties": Properties(message_id="a")}):
            whole = batch(*inner, **sections)
            assert await peer.sent(link, whole, message_format=BATCH_FORMAT) == [Accepted()]
        assert await spread(room) == {fragment_of_key("k", 16): 6}

    in_room(scenario, QUEUE)


@pytest.mark.parametrize(
    ("envelope", "keys"),
    [("other", ("k", "k")), (None, ("k", "l")), ("k", ("k", "l"))],
)
def test_a_batch_of_several_keys_is_refused(envelope: str | None, keys: tuple[str, str]) -> None:
    """S-23, S-26, C-10: amqp:not-allowed for the whole batch."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        sections = {} if envelope is None else {"message_annotations": {KEY: envelope}}
        whole = batch(*[keyed(b"x", key) for key in keys], **sections)
        [outcome] = await peer.sent(link, whole, message_format=BATCH_FORMAT)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:not-allowed"
        assert await spread(room) == {}

    in_room(scenario, QUEUE)


def test_settlement_of_several_fragments_is_one_answer() -> None:
    """P-4, R-16: a range of deliveries is completed in one disposition, and answered."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        for n in range(20):
            await peer.sent(link, payload(b"%d" % n))
        receiver = await peer.receiver("q")
        receiver.grant_credit(20)
        deliveries = await peer.received(receiver, 20)
        assert await peer.settle(receiver, deliveries, Accepted()) == [Accepted()] * 20
        assert room.namespace.queue("q").counts().active == 0

    in_room(scenario, QUEUE)
