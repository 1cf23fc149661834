"""Delivery annotations: the sender's come back with events, and what is received and deleted has an empty section."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Symbol
from busway.message.event_record import event_of
from busway.model.descriptions import QueueDescription
from tests.harness.event_records import record_of
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.event_room import EventRoom, in_event_room, publish, reader

METRIC = Symbol("com.microsoft:enable-receiver-runtime-metric")
EMPTY = b"\x00\x53\x71\xc1\x01\x00"
MINE = {Symbol("x-mine"): "note", Symbol("x-number"): 7}


def annotated(body: bytes, annotations: dict[Symbol, object]) -> bytes:
    return encode_message(AmqpMessage([body], DATA, delivery_annotations=annotations))


@pytest.mark.parametrize("is_second", [False, True])
def test_what_is_received_and_deleted_has_an_empty_section(is_second: bool) -> None:
    """M-27a M-27b: on a first delivery and on a later one."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("q"), payload())
        if is_second:
            locked = await peer.receiver("q")
            locked.grant_credit(1)
            [delivery] = await peer.received(locked, 1)
            await room.pass_time(61)
            locked.detach()
            await room.turns()
        receiver = await peer.receiver("q", deletes=True)
        receiver.grant_credit(1)
        [delivery] = await peer.received(receiver, 1)
        found = scan(delivery.payload)
        start, end = found.delivery_annotations_start, found.delivery_annotations_end
        assert delivery.payload[start:end] == EMPTY
        header = decode_message(delivery.payload).header
        assert header is not None
        assert bool(header.delivery_count) is is_second

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_event_keeps_its_senders_delivery_annotations(is_batch: bool) -> None:
    """M-29 H-16: single or in a batch; an event without them has none."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        events = [annotated(b"a", MINE), payload(b"b"), annotated(b"c", {})]
        payloads = [encode_message(AmqpMessage(events, DATA))] if is_batch else events
        assert set(map(type, await publish(peer, "hub/Partitions/0", *payloads, is_batch=is_batch))) == {
            Accepted
        }
        link = await reader(peer)
        found = [decode_message(delivery.payload) for delivery in await peer.received(link, 3)]
        assert [message.delivery_annotations for message in found] == [MINE, None, None]
        assert [message.body for message in found] == [[b"a"], [b"b"], [b"c"]]
        numbers = [(message.message_annotations or {})["x-opt-sequence-number"] for message in found]
        assert numbers == [0, 1, 2]

    in_event_room(scenario)


def test_a_reader_with_the_metric_gets_one_section_with_both() -> None:
    """H-26 M-29: beside the sender's own; nobody can forge what the broker tells."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        forged = {**MINE, Symbol("last_enqueued_offset"): "999", Symbol("last_enqueued_sequence_number"): 999}
        await publish(
            peer,
            "hub/Partitions/0",
            payload(b"a"),
            annotated(b"b", forged),
            annotated(b"c", {}),
            payload(b"d"),
        )
        link = await reader(peer, desired_capabilities=[METRIC])
        found = [decode_message(delivery.payload) for delivery in await peer.received(link, 4)]
        for message in found:
            told = dict(message.delivery_annotations or {})
            own = {name: told.pop(name) for name in MINE if name in told}
            assert own == (MINE if message.body == [b"b"] else {})
            assert set(told) == {
                "last_enqueued_sequence_number",
                "last_enqueued_offset",
                "last_enqueued_time_utc",
                "runtime_info_retrieval_time_utc",
            }
            assert (told["last_enqueued_sequence_number"], told["last_enqueued_offset"]) == (3, "3")
        plain = await reader(peer)
        second = decode_message((await peer.received(plain, 4))[1].payload)
        assert second.delivery_annotations == MINE

    in_event_room(scenario)


def test_long_delivery_annotations_are_kept_whole() -> None:
    """M-29: in the long form; they count for the size of an event."""
    long = {Symbol(f"x-{n}"): "v" * 90 for n in range(300)}
    event = event_of(annotated(b"x", long))
    assert event.size_bytes() > 300 * 90
    assert decode_message(record_of(event, 1, 2)).delivery_annotations == long
