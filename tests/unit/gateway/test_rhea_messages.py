"""Messages as JavaScript's library rhea writes them, through the gateway and back."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Symbol
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room
from tests.unit.gateway.event_room import EventRoom, in_event_room, publish, reader

QUEUE = QueueDescription("q")
PROPERTIES = encode_message(AmqpMessage(None, 0, properties=Properties(message_id="m")))
FOOTER = encode_message(AmqpMessage(None, 0, footer={Symbol("f"): "end"}))
BODY = encode_message(AmqpMessage([b"body"], DATA))
NULL = b"\x00\x53\x75\x40"
INNER = PROPERTIES + FOOTER + BODY


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_footer_before_the_body_comes_back_behind_it(is_batch: bool) -> None:
    """M-28: single or in a batch, whose own envelope is as odd."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        payload = FOOTER + encode_message(AmqpMessage([INNER, INNER], DATA)) if is_batch else INNER
        link = await peer.sender("q")
        sent = await peer.sent(link, payload, message_format=BATCH_FORMAT if is_batch else 0)
        assert sent == [Accepted()]
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        for delivery in await peer.received(receiver, 2 if is_batch else 1):
            assert delivery.payload.endswith(PROPERTIES + BODY + FOOTER)
            message = decode_message(delivery.payload)
            assert (message.body, message.footer) == ([b"body"], {"f": "end"})

    in_room(scenario, QUEUE)


def test_a_body_of_null_comes_back_as_null() -> None:
    """M-28: from a queue; settling with changed properties leaves it as it is."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await peer.sent(await peer.sender("q"), PROPERTIES + NULL) == [Accepted()]
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        [delivery] = await peer.received(receiver, 1)
        assert delivery.payload.endswith(PROPERTIES + NULL)
        dead = Rejected()
        await peer.settle(receiver, [delivery], dead)
        dead_letters = await peer.receiver("q/$DeadLetterQueue")
        dead_letters.grant_credit(1)
        [delivery] = await peer.received(dead_letters, 1)
        message = decode_message(delivery.payload)
        assert (message.body_kind, message.body) == (DATA, None)

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_event_of_null_comes_back_as_null(is_batch: bool) -> None:
    """M-28 H-16: and one with its footer in front is read in order."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        events = [NULL, PROPERTIES + FOOTER + NULL, INNER]
        payloads = [encode_message(AmqpMessage(events, DATA))] if is_batch else events
        outcomes = await publish(peer, "hub/Partitions/0", *payloads, is_batch=is_batch)
        assert set(map(type, outcomes)) == {Accepted}
        link = await reader(peer)
        first, second, third = [delivery.payload for delivery in await peer.received(link, 3)]
        assert first.endswith(NULL)
        assert second.endswith(PROPERTIES + NULL + FOOTER)
        assert third.endswith(PROPERTIES + BODY + FOOTER)

    in_event_room(scenario)


@pytest.mark.parametrize(
    "payload", [FOOTER + BODY + FOOTER, NULL + NULL, FOOTER + BODY + NULL, FOOTER + b"\x00"]
)
def test_what_is_no_message_is_not_stored(payload: bytes) -> None:
    """Attack: sections twice, null beside bytes, half a section: rejected, and the link goes on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        [outcome] = await peer.sent(link, payload)
        assert isinstance(outcome, Rejected)
        [outcome] = await peer.sent(
            link, encode_message(AmqpMessage([INNER, payload], DATA)), message_format=BATCH_FORMAT
        )
        assert isinstance(outcome, Rejected)
        assert await peer.sent(link, INNER) == [Accepted()]
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        await room.turns()
        assert len(peer.deliveries(receiver)) == 1

    in_room(scenario, QUEUE)
