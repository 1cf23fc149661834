"""Publishing to a hub whose store hangs in a commit (H-11, H-12, P-31, P-32)."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted
from busway.amqp.sections import BATCH_FORMAT
from busway.gateway.amqp.links.send_link import ATTEMPT_S_MAX
from tests.unit.gateway.event_room import EventRoom, envelope, event, in_event_room


@pytest.mark.parametrize("address", ["hub", "hub/Partitions/0", "hub/Publishers/p"])
@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT])
def test_a_publication_that_hangs_is_dropped_without_an_outcome(address: str, message_format: int) -> None:
    """H-11, P-31, P-32: within 15 seconds, so that a client that waits for 60 can try again; it may be stored."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sender = await peer.sender(address)
        room.store.hold_commits()
        body = envelope(event(b"hangs")) if message_format else event(b"hangs")
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
        assert sum(log.info().events for log in room.hubs.hub("hub").logs()) == 1

    in_event_room(scenario)


def test_a_busy_producer_is_not_dropped() -> None:
    """P-32: each publication is answered in time, though some is always under way."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sender = await peer.sender("hub")
        for _ in range(40):
            room.store.hold_commits()
            number = peer.send(sender, event(b"x"))
            await room.turns()
            await room.pass_time(1)
            room.store.release_commits()
            await room.turns()
            assert isinstance(peer.outcomes(sender)[number], Accepted)
        assert peer.refusal(sender) is None

    in_event_room(scenario)


def test_a_producer_that_goes_leaves_no_alarm_behind() -> None:
    """P-32, R-22: a producer that goes leaves no alarm behind."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sender = await peer.sender("hub")
        room.store.hold_commits()
        peer.send(sender, event(b"x"))
        await room.turns()
        sender.detach()
        await room.turns()
        room.store.release_commits()
        await room.pass_time(20)
        assert peer.closed_with() is None

    in_event_room(scenario)
