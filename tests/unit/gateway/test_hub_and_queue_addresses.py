"""A queue at an address of a hub, as earlier versions allowed it: each one's key opens that one only."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted
from busway.broker.namespace.contents import NoHubs
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.amqp_peer import payload
from tests.unit.gateway.event_room import EventRoom, event, in_event_room

ALL = (AuthorizationRule("all", frozenset({"Manage", "Send", "Listen"}), "", ""),)
PUBLISHER = "hub/publishers/x"
PARTITION = "hub/consumergroups/g/partitions/0"
HOST = "sb://ns.local"


async def pairs(room: EventRoom) -> dict[str, str]:
    """By path the key of each entity."""
    await room.hubs.create(EventHubDescription("hub", partition_count=1, authorization_rules=ALL))
    room.namespace.contents.hubs = NoHubs()
    for path in (PUBLISHER, PARTITION, "hub/other"):
        await room.namespace.create([NewEntity(QueueDescription(path, authorization_rules=ALL))])
    room.namespace.contents.hubs = room.hubs
    keys = {"hub": room.hubs.description("hub").authorization_rules[0].primary_key}
    for path in (PUBLISHER, PARTITION, "hub/other"):
        keys[path] = room.namespace.description(path).authorization_rules[0].primary_key
    return keys


@pytest.mark.parametrize("path", [PUBLISHER, PARTITION])
def test_the_key_of_a_queue_does_not_open_the_hub_at_its_address(path: str) -> None:
    """Attack: A-2, A-6: links to an address of a hub reach the hub, so the hub's rules count."""

    async def scenario(room: EventRoom) -> None:
        key = (await pairs(room))[path]
        peer = await room.stranger()
        assert await peer.put_token(f"{HOST}/{path}", rule="all", key=key) == 202
        link = await peer.sender(path) if path == PUBLISHER else await peer.receiver(path)
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "amqp:unauthorized-access"
        assert room.hubs.hub("hub").partition("0").info().last_number == -1

    in_event_room(scenario, EventHubDescription("unused"))


def test_the_key_of_the_hub_opens_it_there_and_not_the_queue() -> None:
    """A-2: publishing goes on; the management of the queue is the queue's."""

    async def scenario(room: EventRoom) -> None:
        key = (await pairs(room))["hub"]
        peer = await room.stranger()
        assert await peer.put_token(f"{HOST}/{PUBLISHER}", rule="all", key=key) == 202
        assert await peer.sent(await peer.sender(PUBLISHER), event(b"e")) == [Accepted()]
        assert room.hubs.hub("hub").partition("0").info().last_number == 0
        dead_letters = await peer.receiver(f"{PUBLISHER}/$DeadLetterQueue")
        refusal = peer.refusal(dead_letters)
        assert refusal is not None
        assert refusal[0] == "amqp:unauthorized-access"

    in_event_room(scenario, EventHubDescription("unused"))


def test_a_queue_below_a_hub_that_is_no_address_of_it_can_be_used() -> None:
    """E-8: its messages can be had, and moved elsewhere."""

    async def scenario(room: EventRoom) -> None:
        key = (await pairs(room))["hub/other"]
        peer = await room.stranger()
        assert await peer.put_token(f"{HOST}/hub/other", rule="all", key=key) == 202
        assert await peer.sent(await peer.sender("hub/other"), payload(b"m")) == [Accepted()]
        receiver = await peer.receiver("hub/other")
        receiver.grant_credit(1)
        assert len(await peer.received(receiver, 1)) == 1

    in_event_room(scenario, EventHubDescription("unused"))
