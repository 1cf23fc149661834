"""Connections that begin with AMQP itself, without a SASL layer: nobody's until a token is put."""

from __future__ import annotations

import pytest

from busway.amqp.decode import AMQP_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    Properties,
    Source,
    Target,
    Transfer,
)
from busway.amqp.sections import AmqpMessage, encode_message
from busway.client.connection_string import sas_token
from busway.model.descriptions import ROOT_RULE_NAME, QueueDescription
from tests.harness.frame_factory import make_frame, performatives
from tests.unit.gateway.amqp_peer import KEY, MemoryTransport, Room, in_room, payload

QUEUE = QueueDescription("q")
AUDIENCE = "sb://localhost/q"
#: As JavaScript's client begins, whose connection string holds a SharedAccessSignature.
HELLO = AMQP_HEADER + make_frame(Open("rhea", "localhost")) + make_frame(Begin(None, 0, 2_048, 2_048))


class BareClient:
    """Writes frames and reads what is answered."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.transport = MemoryTransport()
        self.connection = room.gateway.connect(self.transport, "10.0.0.1")

    async def say(self, data: bytes) -> list[object]:
        self.connection.data_received(data)
        await self.room.turns()
        said = self.transport.take()
        return list(performatives(said.removeprefix(AMQP_HEADER)))


def attach(handle: int, address: str, *, sends: bool) -> bytes:
    return make_frame(
        Attach(
            f"l{handle}",
            handle,
            ROLE_SENDER if sends else ROLE_RECEIVER,
            source=Source("here" if sends else address),
            target=Target(address if sends else "answers"),
            initial_delivery_count=0 if sends else None,
        )
    )


def put_token(token: str) -> bytes:
    request = AmqpMessage(
        token,
        properties=Properties(message_id="1", reply_to="answers"),
        application_properties={
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": AUDIENCE,
        },
    )
    return make_frame(Transfer(0, 0, b"t", 0, False, False), payload=encode_message(request))


def refused_with(said: list[object], kind: type[Close] | type[Detach]) -> str | None:
    [farewell] = [one for one in said if isinstance(one, kind)]
    return None if farewell.error is None else str(farewell.error.condition)


def test_who_brings_no_sasl_puts_a_token_and_works() -> None:
    """A-7: the connection string holds a signature, and the client leaves SASL out; `$cbs` is all it needs."""

    async def scenario(room: Room) -> None:
        client = BareClient(room)
        assert [type(one) for one in await client.say(HELLO)] == [Open, Begin]
        assert client.connection.carrier.is_stranger
        links = attach(0, "$cbs", sends=True) + attach(1, "$cbs", sends=False)
        await client.say(
            links + make_frame(Flow(1, 2_048, 0, 2_048, handle=1, delivery_count=0, link_credit=10))
        )
        token = sas_token(AUDIENCE, ROOT_RULE_NAME, KEY, room.clock.wall_ms() // 1000 + 60)
        await client.say(put_token(token))
        assert not client.connection.carrier.is_stranger
        await client.say(attach(2, "q", sends=True))
        sent = make_frame(Transfer(2, 1, b"u", 0, False, False), payload=payload())
        said = await client.say(sent)
        assert [one.state for one in said if isinstance(one, Disposition)] == [Accepted()]

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("sends", [True, False])
def test_who_brings_no_sasl_has_no_right_by_that(sends: bool) -> None:
    """A-7 Attack: as little as ANONYMOUS has."""

    async def scenario(room: Room) -> None:
        client = BareClient(room)
        await client.say(HELLO)
        said = await client.say(attach(0, "q", sends=sends))
        assert refused_with(said, Detach) == "amqp:unauthorized-access"
        room.clock.advance(21)
        room.gateway.tick()
        said = list(performatives(client.transport.take()))
        assert refused_with(said, Close) == "amqp:unauthorized-access"

    in_room(scenario, QUEUE)


def test_who_says_nothing_behind_its_header_is_closed_in_time() -> None:
    """A-7 Attack: the deadline of the handshake is that of everybody."""

    async def scenario(room: Room) -> None:
        client = BareClient(room)
        client.connection.data_received(AMQP_HEADER)
        room.clock.advance(11)
        room.gateway.tick()
        await room.turns()
        assert client.transport.is_closed

    in_room(scenario, QUEUE)
