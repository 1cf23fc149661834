"""Over AMQP too: no kind of traffic leaves a message behind for the cyclic collector."""

import gc
from pathlib import Path

import pytest

from busway.amqp.performatives import Accepted, Modified, Properties, Released
from busway.amqp.types import Symbol
from busway.message.message import Message
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload

COUNT = 30


def messages_alive() -> int:
    return sum(isinstance(each, Message) for each in gc.get_objects())


async def _filled(peer: Peer, path: str) -> None:
    link = await peer.sender(path)
    await peer.sent(link, *(payload(b"x" * 100, properties=Properties(group_id="s")) for _ in range(COUNT)))
    link.detach(closed=True)
    await peer.room.turns()


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
def test_traffic_over_amqp_leaves_no_message_behind(
    is_partitioned: bool, on_disk: bool, tmp_path: Path
) -> None:
    """Found by review: memory grew until the collector ran."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        gc.collect()
        gc.disable()
        before = messages_alive()  # other tests of this process may keep some
        try:
            for outcome in (Modified(delivery_failed=True), Released(), Accepted()):
                if not isinstance(outcome, Accepted):
                    await _filled(peer, "q")
                link = await peer.receiver("q")
                link.grant_credit(COUNT)
                got = await peer.received(link, COUNT)
                sender = await peer.sender("q")
                peer.send(sender, payload(b"beside"), settled=True)
                await peer.settle(link, got[:COUNT], outcome)
                link.detach(closed=True)
                await room.turns(40)
            link = await peer.receiver("q", deletes=True)
            link.grant_credit(1000)
            await room.turns(80)
            link.detach(closed=True)
            await _filled(peer, "grouped")
            link = await peer.receiver("grouped", filters={Symbol("com.microsoft:session-filter"): None})
            link.grant_credit(10)
            await peer.received(link, 10)
            peer.transport.lose()
            await room.turns(80)
            await room.namespace.delete("grouped")
            await room.namespace.delete("q")
            await room.turns(80)
            peer.events.clear()
            assert messages_alive() <= before
        finally:
            gc.enable()

    in_room(
        scenario,
        QueueDescription("q", enable_partitioning=is_partitioned),
        QueueDescription("grouped", requires_session=True, enable_partitioning=is_partitioned),
        sqlite_folder=tmp_path if on_disk else None,
    )
