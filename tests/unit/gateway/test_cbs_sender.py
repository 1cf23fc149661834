"""One sender on `$cbs` for each connection."""

from __future__ import annotations

from busway.amqp.performatives import Accepted
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room, payload

QUEUE = QueueDescription("q")
AUDIENCE = "sb://localhost/q"


def test_a_second_sender_on_cbs_is_refused_as_long_as_the_first_stands() -> None:
    """A-7: amqp:not-allowed, on any session; Go takes that as a sign to begin a connection anew."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        first = await peer.sender("$cbs")
        assert peer.refusal(first) is None
        for address in ("$cbs", "amqps://localhost/$CBS"):
            refusal = peer.refusal(await peer.sender(address))
            assert refusal is not None
            assert refusal[0] == "amqp:not-allowed"
        own, peer.session = peer.session, peer.engine.begin()
        refusal = peer.refusal(await peer.sender("$cbs"))
        assert refusal is not None
        assert refusal[0] == "amqp:not-allowed"
        peer.session = own
        first.detach()
        await room.turns()
        assert await peer.put_token(AUDIENCE) == 202
        assert await peer.put_token(AUDIENCE) == 202
        assert await peer.sent(await peer.sender("q"), payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_a_session_that_ends_takes_its_sender_on_cbs_along() -> None:
    """A-7: Go has a session for each put-token."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        for _ in range(10):
            peer.session = peer.engine.begin()
            await room.turns()
            assert peer.refusal(await peer.sender("$cbs")) is None
            peer.session.end()
            await room.turns()

    in_room(scenario, QUEUE)


def test_other_connections_and_receivers_are_not_concerned() -> None:
    """A-7: other connections and receivers are not concerned."""

    async def scenario(room: Room) -> None:
        for _ in range(2):
            peer = await room.stranger()
            assert peer.refusal(await peer.sender("$cbs")) is None
            for _ in range(2):
                assert peer.refusal(await peer.receiver("$cbs")) is None

    in_room(scenario, QUEUE)
