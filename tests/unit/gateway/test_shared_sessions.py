"""Sessions that several receivers would share (.NET): refused in words, never taken for something else."""

from __future__ import annotations

import pytest

from busway.amqp.types import Described, Symbol
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Room, in_room

SHARED = Symbol("com.microsoft:non-exclusive-session-filter:list")
ALONE = Symbol("com.microsoft:session-filter")


@pytest.mark.parametrize("queue", ["sessions", "plain"])
@pytest.mark.parametrize("value", [["s", None], None, Described(SHARED, ["s", b"token"])])
def test_a_shared_session_is_refused_by_its_name(queue: str, value: object) -> None:
    """X-3: whatever the filter holds and wherever it is tried, beside another filter too; nothing is locked by it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for filters in ({SHARED: value}, {SHARED: value, ALONE: "s"}):
            refusal = peer.refusal(await peer.receiver(queue, filters=filters))
            assert refusal is not None
            assert refusal[0] == "amqp:not-implemented"
            assert "non-exclusive-session-filter:list" in refusal[1]
        assert peer.refusal(await peer.receiver("sessions", filters={ALONE: "s"})) is None

    in_room(scenario, QueueDescription("sessions", requires_session=True), QueueDescription("plain"))
