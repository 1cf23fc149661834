"""An attacker after its login: raw frames on a connection of its own, which has the root key. What it makes the
server keep is counted, not measured. Beside it an honest client goes on."""

from __future__ import annotations

from typing import Any

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Flow,
    Open,
    Properties,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from busway.amqp.sasl import plain_response
from busway.amqp.sections import AmqpMessage, encode_message
from busway.amqp.types import Int, Long
from busway.model.descriptions import ROOT_RULE_NAME, QueueDescription
from tests.harness.frame_factory import make_frame, performatives, sasl
from tests.unit.gateway.amqp_peer import KEY, MemoryTransport, Peer, Room, payload

QUEUE = QueueDescription("q")
KIB = 1024
MIB = 1024 * KIB
CONNECTION_BYTES_MAX = 64 * MIB
#: What a socket's transport reads at most at once.
READ_BYTES = 256 * KIB
WINDOW = 65_536


class Attacker:
    """Bytes of a test's choice on a connection that is logged in."""

    def __init__(self, room: Room, address: str = "10.9.9.9") -> None:
        self.transport = MemoryTransport()
        self.connection = room.gateway.connect(self.transport, address)
        self.transport.lost = self.connection.connection_lost
        room.peers.append(self)  # type: ignore[arg-type]
        self.say(
            SASL_HEADER
            + sasl(SaslInit("PLAIN", plain_response(ROOT_RULE_NAME, KEY)))
            + AMQP_HEADER
            + make_frame(Open("attacker"))
            + make_frame(Begin(None, 0, WINDOW, WINDOW))
        )
        assert not self.connection.carrier.is_stranger

    def say(self, data: bytes) -> None:
        for at in range(0, len(data), READ_BYTES):
            if self.transport.is_reading and not self.transport.is_closed:
                self.connection.data_received(data[at : at + READ_BYTES])

    def pump(self) -> None:
        """It has said what it says."""

    def heard(self, kind: type) -> list[Any]:
        return [one for one in performatives(b"".join(self.transport.written)) if isinstance(one, kind)]

    def sends_to(self, address: str | Coordinator, handle: int = 0, channel: int = 0) -> None:
        target = Target(address) if isinstance(address, str) else address
        attach = Attach(
            f"s{channel}-{handle}",
            handle,
            ROLE_SENDER,
            source=Source("here"),
            target=target,
            initial_delivery_count=0,
        )
        self.say(make_frame(attach, channel=channel))

    def receives_from(self, address: str, handle: int = 0, channel: int = 0, target: str = "there") -> None:
        attach = Attach(
            f"r{channel}-{handle}", handle, ROLE_RECEIVER, source=Source(address), target=Target(target)
        )
        self.say(make_frame(attach, channel=channel))

    def gives_credit(self, credit: int, handle: int = 0, channel: int = 0, window: int = WINDOW) -> None:
        flow = Flow(None, window, 0, WINDOW, handle, 0, credit)
        self.say(make_frame(flow, channel=channel))

    def sends(
        self,
        data: bytes,
        handle: int = 0,
        delivery: int = 0,
        *,
        more: bool = False,
        state: object = None,
        message_format: int = 0,
        channel: int = 0,
        tag: bytes = b"t",
    ) -> None:
        frames = b""
        room = 60_000
        pieces = [data[at : at + room] for at in range(0, len(data), room)] or [b""]
        for number, piece in enumerate(pieces):
            is_last = number == len(pieces) - 1
            transfer = Transfer(
                handle, delivery, tag, message_format, False, more or not is_last, state=state
            )
            frames += make_frame(transfer, payload=piece, channel=channel)
        self.say(frames)


def peek(number: int, reply_to: str) -> bytes:
    message = AmqpMessage(
        {"from-sequence-number": Long(0), "message-count": Int(5)},
        properties=Properties(message_id=f"{number}", reply_to=reply_to),
        application_properties={"operation": "com.microsoft:peek-message"},
    )
    return encode_message(message)


async def filled(room: Room, count: int, size: int, queue: str = "q") -> Peer:
    """Messages in the queue, and the honest client that sent them."""
    honest = await room.client(address="10.0.0.7")
    sender = await honest.sender(queue)
    for first in range(0, count, 20):
        await honest.sent(sender, *(payload(bytes(size)) for _ in range(min(20, count - first))))
    return honest


async def goes_on(honest: Peer, queue: str = "q") -> None:
    """The honest client still sends."""
    sender = await honest.sender(queue)
    [outcome] = await honest.sent(sender, payload(b"still here"))
    assert isinstance(outcome, Accepted)


def unsent_bytes(attacker: Attacker) -> int:
    return sum(sum(map(len, link._unsent)) for link in attacker.connection.carrier.requests._responses)


def held_frame_bytes(attacker: Attacker) -> int:
    sessions = attacker.connection.carrier.engine.sessions.values()
    return sum(len(head) + len(data) for session in sessions for _, head, data in session.held)
