"""Answers of request nodes and the output brake: who does not read is not answered without end."""

from __future__ import annotations

from busway.amqp.link import Link
from busway.amqp.performatives import Properties
from busway.amqp.sections import AmqpMessage, decode_message, encode_message
from busway.amqp.types import Int, Long
from busway.gateway.amqp.carrier import OUTPUT_HIGH_BYTES
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload

QUEUE = QueueDescription("q")
MIB = 1024 * 1024
MESSAGES = 5
MESSAGE_BYTES = 50_000
REQUESTS = 60


def peek(number: int) -> bytes:
    message = AmqpMessage(
        {"from-sequence-number": Long(0), "message-count": Int(MESSAGES)},
        properties=Properties(message_id=f"{number}", reply_to="answers"),
        application_properties={"operation": "com.microsoft:peek-message"},
    )
    return encode_message(message)


async def with_messages(room: Room) -> tuple[Peer, Link, Link]:
    peer = await room.client()
    sender = await peer.sender("q")
    await peer.sent(sender, *(payload(bytes(MESSAGE_BYTES)) for _ in range(MESSAGES)))
    requests, answers = await peer.request_links("q/$management")
    answers.grant_credit(1_000)
    await room.turns()
    return peer, requests, answers


def answered(peer: Peer, answers: Link) -> list[object]:
    """The requests that were answered, in order."""
    told = [decode_message(one.payload).properties for one in peer.deliveries(answers)]
    return [properties.correlation_id for properties in told if properties is not None]


def reads_again(peer: Peer) -> None:
    peer.connection.pause_writing()  # as a socket's transport had long done
    peer.transport.holds = False
    peer.connection.resume_writing()


def held_bytes(peer: Peer) -> int:
    """Written and not read, or waiting to be written."""
    return sum(map(len, peer.transport.written)) + sum(
        link._unsent_bytes if hasattr(link, "_unsent_bytes") else sum(map(len, link._unsent))
        for link in peer.connection.carrier.requests._responses
    )


def test_who_does_not_read_its_answers_holds_little_and_gets_them_all_later() -> None:
    """Attack: small requests, large answers and a client that reads nothing: 73 KB of peeks made 120 MiB."""

    async def scenario(room: Room) -> None:
        peer, requests, answers = await with_messages(room)
        peer.transport.holds = True
        for number in range(REQUESTS):
            peer.send(requests, peek(number))
        await room.turns(50)
        assert held_bytes(peer) < 2 * OUTPUT_HIGH_BYTES
        reads_again(peer)
        await peer.received(answers, REQUESTS)
        assert answered(peer, answers) == [f"{n}" for n in range(REQUESTS)]

    in_room(scenario, QUEUE)


def test_requests_wait_as_input_while_their_answers_wait() -> None:
    """Attack: what waits for its turn pauses the reading, as messages do that wait for the store."""

    async def scenario(room: Room) -> None:
        peer, requests, answers = await with_messages(room)
        peer.transport.holds = True
        large = AmqpMessage(
            {"lock-tokens": bytes(900_000)},
            properties=Properties(message_id="x", reply_to="answers"),
            application_properties={"operation": "com.microsoft:renew-lock"},
        )
        for number in range(10):
            peer.send(requests, peek(number))
        await room.turns(50)
        for _ in range(12):
            peer.send(requests, encode_message(large))
            await room.turns(5)
        assert not peer.transport.is_reading
        reads_again(peer)
        assert len(await peer.received(answers, 22)) == 22
        assert peer.transport.is_reading

    in_room(scenario, QUEUE)


def test_answers_without_credit_are_bounded_in_bytes() -> None:
    """Attack: the newest ones wait for credit, up to four megabytes of them."""

    async def scenario(room: Room) -> None:
        peer, requests, answers = await with_messages(room)
        answers.grant_credit(0)
        await room.turns()
        for number in range(REQUESTS):
            peer.send(requests, peek(number))
        await room.turns(80)
        assert MIB < held_bytes(peer) <= 4 * MIB
        answers.grant_credit(1_000)
        await room.until(lambda: f"{REQUESTS - 1}" in answered(peer, answers))

    in_room(scenario, QUEUE)
