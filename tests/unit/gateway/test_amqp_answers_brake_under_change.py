"""Requests whose answers wait for a slow reader, while their entity, its rights or its store change: each is answered
in the end, or its link is told why not; and nothing of it stays in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from busway.amqp.events import LinkDetached
from busway.amqp.link import Link
from busway.amqp.sections import decode_message
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload
from tests.unit.gateway.test_amqp_answers_brake import MESSAGES, REQUESTS, held_bytes, peek, reads_again

RULE = AuthorizationRule("worker", frozenset({"Send", "Listen"}), "first", "first-2")
QUEUE = QueueDescription("q", authorization_rules=(RULE,))
Change = Callable[[Room], Awaitable[None]]


async def with_waiting_answers(room: Room) -> tuple[Peer, Link, Link]:
    peer = await room.stranger()
    assert await peer.put_token("sb://localhost/q", rule="worker", key="first") == 202
    sender = await peer.sender("q")
    await peer.sent(sender, *(payload(bytes(50_000)) for _ in range(MESSAGES)))
    requests, answers = await peer.request_links("q/$management")
    answers.grant_credit(1_000)
    await room.turns()
    peer.transport.holds = True
    for number in range(REQUESTS):
        peer.send(requests, peek(number))
    await room.turns(50)
    assert held_bytes(peer) > 0
    return peer, requests, answers


def statuses(peer: Peer, answers: Link) -> list[object]:
    told = [decode_message(one.payload).application_properties for one in peer.deliveries(answers)]
    return [
        (properties or {}).get("statusCode", (properties or {}).get("status-code")) for properties in told
    ]


async def delete(room: Room) -> None:
    await room.namespace.delete("q")


async def create_again(room: Room) -> None:
    await room.namespace.delete("q")
    await room.namespace.create([NewEntity(QUEUE)])


async def rotate_the_key(room: Room) -> None:
    other = replace(RULE, primary_key="second", secondary_key="second-2")
    await room.namespace.update(replace(QUEUE, authorization_rules=(other,)))


async def disable_store(room: Room) -> None:
    await room.namespace.stores.disable("a")


async def disable_receiving(room: Room) -> None:
    await room.namespace.update(replace(QUEUE, status="ReceiveDisabled"))


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (delete, create_again, rotate_the_key, disable_store, disable_receiving)
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_waits_behind_the_brake_survives_a_change(name: str) -> None:
    """Attack: a client that reads nothing, and an entity that changes under it: who reads again is told, and what
    was held for it is gone."""

    async def scenario(room: Room) -> None:
        peer, requests, answers = await with_waiting_answers(room)
        await CHANGES[name](room)
        await room.turns(30)
        reads_again(peer)

        def is_over() -> bool:
            is_detached = bool(peer.seen(LinkDetached, answers) or peer.seen(LinkDetached, requests))
            return is_detached or len(peer.deliveries(answers)) == REQUESTS

        await room.until(is_over)
        desk = peer.connection.carrier.requests
        await room.until(lambda: not desk._running and not desk._waiting)
        await room.turns(5)
        assert set(statuses(peer, answers)) <= {200, 204, 400, 401, 403, 404, 410, 500, 503}
        assert held_bytes(peer) == 0
        assert peer.connection.carrier.holdings.input_bytes == 0, "nothing is counted that is not there"
        assert peer.transport.is_reading
        if name == "disable_store":
            await room.namespace.stores.enable("a")

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("name", CHANGES)
def test_a_client_that_is_cut_off_during_the_change_leaves_nothing(name: str) -> None:
    """Attack: its requests end with it."""

    async def scenario(room: Room) -> None:
        peer, _, _ = await with_waiting_answers(room)
        desk = peer.connection.carrier.requests
        await CHANGES[name](room)
        peer.connection.connection_lost()
        await room.turns(50)
        assert desk._running == set()
        assert not desk._waiting
        assert room.gateway.connections == 0
        if name == "disable_store":
            await room.namespace.stores.enable("a")

    in_room(scenario, QUEUE)
