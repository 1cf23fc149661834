"""What was received can be sent again, though a client has made bytes of its texts."""

from __future__ import annotations

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Symbol
from busway.gateway.amqp.message_mapping import delivery_payload, message_of
from busway.message.event_record import event_of
from busway.model.descriptions import QueueDescription
from busway.model.errors import BadArgument
from tests.unit.gateway.amqp_peer import Room, in_room
from tests.unit.gateway.event_room import EventRoom, annotations_of, envelope, in_event_room, publish, reader

KEY = Symbol("x-opt-partition-key")
VIA = Symbol("x-opt-via-partition-key")
LONG_KEY = "ключ" * 32  # 128 characters, 256 bytes: the long form


def annotated(**annotations: object) -> bytes:
    named = {Symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return encode_message(AmqpMessage([b"x"], DATA, message_annotations=named))


def back(payload: bytes) -> dict[object, object]:
    """The annotations of a delivery."""
    return decode_message(delivery_payload(message_of(payload, False), b"", 0)).message_annotations or {}


@pytest.mark.parametrize("name", [KEY, VIA])
@pytest.mark.parametrize("text", ["", "key", LONG_KEY])
def test_a_key_in_bytes_is_its_text(name: Symbol, text: str) -> None:
    """M-3 M-4: taken as a string, and given back as a string, between whatever else there is."""
    around = {Symbol("x-opt-first"): b"stays bytes", name: text.encode(), Symbol("x-opt-last"): 5}
    payload = encode_message(AmqpMessage([b"x"], DATA, message_annotations=around))
    if name == KEY:
        assert message_of(payload, False).partition_key == text
        event = event_of(payload)
        assert event.partition_key == text
        assert event.annotation_count == 6
    given = back(payload)
    assert (given[name], type(given[name])) == (text, str)
    assert (given["x-opt-first"], given["x-opt-last"]) == (b"stays bytes", 5)


def test_a_message_that_python_sends_back_is_taken() -> None:
    """M-3 M-14: all that a delivery carries comes back, its texts as bytes; what the broker owns is written anew."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        assert await peer.sent(link, annotated(x_opt_partition_key="k", x_mine="text")) == [Accepted()]
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        [first] = await peer.received(receiver, 1)
        received = decode_message(first.payload)
        for section in (received.message_annotations, received.delivery_annotations):
            for name, value in (section or {}).items():
                section[name] = value.encode() if isinstance(value, str) else value  # type: ignore[index]
        received.message_annotations[Symbol("x-opt-deadletter-source")] = b"elsewhere"  # type: ignore[index]
        again = encode_message(received)
        assert await peer.sent(link, again) == [Accepted()]
        batch = encode_message(AmqpMessage([again], DATA, message_annotations={KEY: b"k"}))
        assert await peer.sent(link, batch, message_format=BATCH_FORMAT) == [Accepted()]
        for delivery in (await peer.received(receiver, 3))[1:]:
            annotations = decode_message(delivery.payload).message_annotations or {}
            assert (annotations["x-opt-partition-key"], annotations["x-mine"]) == ("k", b"text")
            assert "x-opt-deadletter-source" not in annotations

    in_room(scenario, QueueDescription("q", enable_partitioning=True))


def test_an_event_that_python_sends_back_is_taken() -> None:
    """H-10 H-16: with a key in bytes, on the event or on the envelope."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, "hub", annotated(x_opt_partition_key="same"))
        keyed = encode_message(AmqpMessage([b"x"], DATA, message_annotations={KEY: b"same"}))
        assert await publish(peer, "hub", keyed) == [Accepted()]
        enclosed = encode_message(
            AmqpMessage([encode_message(AmqpMessage([b"y"], DATA))], DATA, message_annotations={KEY: b"same"})
        )
        assert await publish(peer, "hub", enclosed, is_batch=True) == [Accepted()]
        assert await publish(peer, "hub", envelope(keyed, key="same"), is_batch=True) == [Accepted()]
        links = [await reader(peer, partition) for partition in (0, 1)]
        await room.turns()
        [found] = [peer.deliveries(link) for link in links if peer.deliveries(link)]
        assert [annotations_of(one)[KEY] for one in found] == ["same"] * 4

    in_event_room(scenario)


@pytest.mark.parametrize("value", [b"\xff", b"k" * 129, ("ü" * 129).encode(), 5, [b"k"], True])
@pytest.mark.parametrize("name", [KEY, VIA])
def test_bytes_that_are_no_key_are_refused(name: Symbol, value: object) -> None:
    """L-8 Attack: no UTF-8, too many characters, other types."""
    payload = encode_message(AmqpMessage([b"x"], DATA, message_annotations={name: value}))
    with pytest.raises((BadArgument, DecodeError)):
        message_of(payload, False)


def test_a_session_id_stays_a_string() -> None:
    """M-2: the properties come back byte for byte, so bytes in them would reach receivers that want a string."""
    bare = encode_message(AmqpMessage([b"x"], DATA, properties=Properties(group_id="abc")))
    with pytest.raises(BadArgument, match="SessionId must be a string"):
        message_of(bare.replace(b"\xa1\x03abc", b"\xa0\x03abc"), False)


def test_an_id_in_bytes_is_the_id_in_text() -> None:
    """M-1: what was received with a text for its id is no other message when its id comes back in bytes."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        for message_id in ("id", b"id", b"\xff", b"\xff"):
            payload = encode_message(AmqpMessage([b"x"], DATA, properties=Properties(message_id=message_id)))
            assert await peer.sent(link, payload) == [Accepted()]
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        await room.turns()
        ids = [decode_message(one.payload).properties.message_id for one in peer.deliveries(receiver)]
        assert ids == ["id", b"\xff"]

    in_room(scenario, QueueDescription("q", requires_duplicate_detection=True))


def test_a_refused_key_stores_nothing() -> None:
    """L-8 Attack: the link goes on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        [outcome] = await peer.sent(link, annotated(x_opt_partition_key=b"\xff"))
        assert isinstance(outcome, Rejected)
        assert await peer.sent(link, annotated(x_opt_partition_key=b"k")) == [Accepted()]

    in_room(scenario, QueueDescription("q"))
