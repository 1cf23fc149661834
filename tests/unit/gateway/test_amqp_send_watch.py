"""Sends to a partitioned entity whose store hangs in a commit (P-31, P-32)."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted
from busway.client.messages import encode_batch
from busway.gateway.amqp.links.send_link import ATTEMPT_S_MAX
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room, payload

PARTITIONED = QueueDescription("p", enable_partitioning=True)
PLAIN = QueueDescription("q")
BATCH_FORMAT = 0x80013700


@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT])
def test_a_send_that_hangs_is_dropped_without_an_outcome_in_time_for_another_try(message_format: int) -> None:
    """P-32, P-31: within 15 seconds, so that a client that waits for 60 can send again; it may be stored."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        [told] = await peer.sent(sender, payload(b"before"))
        assert isinstance(told, Accepted)
        room.store.hold_commits()
        body = encode_batch([payload(b"hangs")]) if message_format else payload(b"hangs")
        number = peer.send(sender, body, message_format=message_format)
        await room.turns()
        waited_s = 0.0
        while peer.refusal(sender) is None and waited_s <= ATTEMPT_S_MAX:
            await room.pass_time(0.5)
            waited_s += 0.5
        assert (peer.refusal(sender) or ("",))[0] == "amqp:link:detach-forced"
        assert ATTEMPT_S_MAX / 2 <= waited_s <= ATTEMPT_S_MAX
        assert number not in peer.outcomes(sender)
        room.store.release_commits()
        await room.turns()
        assert room.namespace.queue("p").counts().active == 2

    in_room(scenario, PARTITIONED)


def test_a_busy_link_is_not_dropped() -> None:
    """P-32: each run is answered in time, though some run is always under way."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        for _ in range(40):
            room.store.hold_commits()
            number = peer.send(sender, payload())
            await room.turns()
            await room.pass_time(1)
            room.store.release_commits()
            await room.turns()
            assert number in peer.outcomes(sender)
        assert peer.refusal(sender) is None

    in_room(scenario, PARTITIONED)


def test_a_plain_entity_waits_for_its_store() -> None:
    """P-32 speaks of fragments: there is nowhere else to go here, and the client knows how long it waits."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        room.store.hold_commits()
        number = peer.send(sender, payload())
        await room.pass_time(60)
        assert peer.refusal(sender) is None
        room.store.release_commits()
        await room.turns()
        assert isinstance(peer.outcomes(sender)[number], Accepted)

    in_room(scenario, PLAIN)


def test_a_link_that_goes_leaves_no_alarm_behind() -> None:
    """P-32, R-22: a link that goes leaves no alarm behind."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("p")
        room.store.hold_commits()
        peer.send(sender, payload())
        await room.turns()
        sender.detach()
        await room.turns()
        room.store.release_commits()
        await room.pass_time(20)
        assert peer.closed_with() is None
        assert room.namespace.queue("p").counts().active == 1

    in_room(scenario, PARTITIONED)
