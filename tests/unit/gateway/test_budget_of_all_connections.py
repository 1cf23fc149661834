"""What all connections together may make the server hold, and that everything is given back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from busway.amqp.performatives import (
    Accepted,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Disposition,
    End,
    TransactionalState,
)
from busway.amqp.sections import encode_composite
from busway.gateway.amqp.carrier import BOOK_EVERY_BYTES
from busway.gateway.connection_budget import SMALL_BYTES, ConnectionBudget
from tests.harness.frame_factory import make_frame
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.attacker import (
    KIB,
    MIB,
    QUEUE,
    Attacker,
    filled,
    goes_on,
    peek,
)
from tests.unit.gateway.http_exchange import VERSION, Exchange, queue_body


def holds_unfinished(room: Room, size: int, address: str) -> Attacker:
    """A delivery of that size that does not end."""
    attacker = Attacker(room, address)
    attacker.sends_to("q")
    attacker.sends(bytes(size), more=True)
    return attacker


def test_over_the_budget_the_largest_holders_are_braked_then_closed_by_name_and_small_clients_go_on() -> None:
    """Attack: many connections, each within its own bound, and too much together."""

    async def scenario(room: Room) -> None:
        budget = room.gateway.shared.budget
        budget.bytes_max = 1 * MIB
        honest = await room.client(address="10.0.0.7")
        attackers = [holds_unfinished(room, 300 * KIB, f"10.9.9.{n}") for n in range(5)]
        largest = holds_unfinished(room, 400 * KIB, "10.9.9.99")
        assert budget.is_over
        assert budget.held_bytes >= 1_900 * KIB
        assert not largest.transport.is_reading
        await goes_on(honest)
        room.gateway.tick()
        assert not largest.transport.is_closed  # one look is no look
        room.gateway.tick()
        await room.turns()
        closed = [one for one in (*attackers, largest) if one.heard(Close)]
        assert largest in closed
        assert 1 < len(closed) < 6
        [close] = largest.heard(Close)
        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert "--connections-bytes-max" in close.error.description
        assert "unfinished deliveries" in close.error.description
        await goes_on(honest)
        assert not budget.is_over
        for one in attackers:
            assert one in closed or one.transport.is_reading
        room.gateway.tick()
        room.gateway.tick()
        assert [one for one in attackers if one.heard(Close)] == [one for one in attackers if one in closed]

    in_room(scenario, QUEUE)


def test_what_waits_for_the_store_brakes_and_closes_nobody() -> None:
    """S-1: senders wait until their messages are stored; none of them is sent away for a slow disk."""

    async def scenario(room: Room) -> None:
        room.gateway.shared.budget.bytes_max = 1 * MIB
        senders = []
        for number in range(4):
            client = await room.client(address=f"10.0.0.{number}")
            senders.append((client, await client.sender("q")))
        room.store.hold_commits()
        for client, sender in senders:
            for _ in range(4):
                client.send(sender, payload(bytes(200_000)))
        await room.turns()
        assert room.gateway.shared.budget.is_over
        for _ in range(5):
            room.gateway.tick()
        assert all(not client.transport.is_closed for client, _ in senders)
        room.store.release_commits()
        await room.until(lambda: all(len(client.outcomes(sender)) == 4 for client, sender in senders))
        for client, sender in senders:
            assert all(isinstance(one, Accepted) for one in client.outcomes(sender).values())
        room.gateway.tick()
        assert room.gateway.shared.budget.held_bytes == 0
        assert all(client.transport.is_reading for client, _ in senders)

    in_room(scenario, QUEUE)


def test_a_connection_that_holds_too_much_of_everything_is_closed_by_name() -> None:
    """Attack: a little below each single bound is still too much in all."""

    async def scenario(room: Room) -> None:
        honest = await room.client(address="10.0.0.7")
        attacker = holds_unfinished(room, 300 * KIB, "10.9.9.9")
        attacker.connection.carrier.holdings.kept_bytes += 48 * MIB  # as readers of hubs would
        attacker.sends(bytes(BOOK_EVERY_BYTES), more=True)
        await room.turns()
        [close] = attacker.heard(Close)
        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert "This connection holds" in close.error.description
        attacker.say(make_frame(Close()))
        assert room.gateway.shared.budget.held_bytes == 0
        await goes_on(honest)

    in_room(scenario, QUEUE)


Ending = Callable[[Room, Attacker], Coroutine[Any, Any, None]]


async def connection_lost(room: Room, attacker: Attacker) -> None:
    del room
    attacker.transport.lose()


async def aborted(room: Room, attacker: Attacker) -> None:
    del room
    attacker.connection.abort()


async def closed_by_peer(room: Room, attacker: Attacker) -> None:
    attacker.say(make_frame(Close()))
    await room.turns()


async def session_ended(room: Room, attacker: Attacker) -> None:
    attacker.say(make_frame(End()))
    await room.turns()


async def links_detached(room: Room, attacker: Attacker) -> None:
    for handle in range(6):
        attacker.say(make_frame(Detach(handle, True)))
    await room.turns()


async def protocol_broken(room: Room, attacker: Attacker) -> None:
    attacker.say(b"\x00\x00\x00\x02rubbish!")
    await room.turns()


async def entity_deleted(room: Room, attacker: Attacker) -> None:
    await room.namespace.delete("q")
    await room.turns()
    for handle in (1, 2, 5):  # requests and transactions may still be asked about
        attacker.say(make_frame(Detach(handle, True)))
    await room.turns()


async def server_closes(room: Room, attacker: Attacker) -> None:
    del attacker
    await room.gateway.close(grace_s=0)


@pytest.mark.parametrize(
    "ending",
    [
        connection_lost,
        aborted,
        closed_by_peer,
        session_ended,
        links_detached,
        protocol_broken,
        entity_deleted,
        server_closes,
    ],
)
def test_everything_is_given_back_however_it_ends(ending: Ending) -> None:
    """Attack: counters that leak would close honest clients in the end."""

    async def scenario(room: Room) -> None:
        honest = await filled(room, 3, 100_000)
        attacker = Attacker(room)
        attacker.sends_to("q", handle=0)
        attacker.sends(bytes(200_000), handle=0, more=True)
        attacker.receives_from("q/$management", handle=1, target="a")
        attacker.sends_to("q/$management", handle=2)
        attacker.sends(peek(1, "a"), handle=2, delivery=1)
        attacker.receives_from("q", handle=3)
        attacker.gives_credit(3, handle=3, window=1)
        attacker.sends_to("q", handle=4)
        attacker.sends_to(Coordinator(["amqp:local-transactions"]), handle=5)
        await room.turns(20)
        attacker.sends(encode_composite(Declare()), handle=5, delivery=2)
        await room.turns()
        [txn_id] = [
            one.state.txn_id for one in attacker.heard(Disposition) if isinstance(one.state, Declared)
        ]
        attacker.sends(payload(bytes(100_000)), handle=4, delivery=3, state=TransactionalState(txn_id))
        await room.turns()
        holds = attacker.connection.carrier.holdings
        assert holds.idle_bytes() > 500_000
        assert attacker.connection.carrier.transactions.held_bytes > 100_000
        assert attacker.connection.carrier.requests.unsent_bytes > 100_000
        attacker.transport.written.clear()  # it has read
        attacker.connection.carrier.holdings.book()
        assert room.gateway.shared.budget.held_bytes > 500_000
        await ending(room, attacker)
        await room.turns()
        room.gateway.tick()
        assert room.gateway.shared.budget.held_bytes == 0
        assert attacker.connection.carrier.transactions.held_bytes == 0
        assert attacker.connection.carrier.requests.unsent_bytes == 0
        assert attacker.connection.carrier.engine.allowance.partial_bytes() == 0
        assert holds.idle_bytes() < SMALL_BYTES
        if ending not in (entity_deleted, server_closes):
            await goes_on(honest)

    in_room(scenario, QUEUE)


def test_a_small_holder_is_not_booked_and_a_share_is_never_too_small_to_send_a_message() -> None:
    """Attack: ten thousand holders leave each of them its quarter of a megabyte."""

    class Small:
        peer = ""
        booked_bytes = 0

        def __init__(self) -> None:
            self.easings = 0

        def book(self) -> None: ...

        def idle_bytes(self) -> int:
            return 0

        def close_for_memory(self, all_bytes: int, bytes_max: int) -> None:
            raise AssertionError(f"it holds nothing to speak of: {all_bytes} {bytes_max}")

        def eased(self) -> None:
            self.easings += 1

    budget = ConnectionBudget(100 * SMALL_BYTES)
    small = Small()
    budget.book(small, SMALL_BYTES - 1)
    assert budget.held_bytes == 0
    many = [Small() for _ in range(200)]
    for one in many:
        budget.book(one, SMALL_BYTES)
    assert budget.is_over
    assert not any(budget.brakes(one) for one in many)
    greedy = Small()
    budget.book(greedy, 10 * SMALL_BYTES)
    assert budget.brakes(greedy)
    for _ in range(3):
        budget.look()
    for one in many:
        budget.forget(one)
    assert greedy.easings == 1
    budget.forget(greedy)
    budget.forget(greedy)
    assert budget.held_bytes == 0


def test_large_bodies_are_told_to_come_later_while_too_much_is_held_and_small_ones_are_taken(
    exchange: Exchange,
) -> None:
    """Attack: bodies of HTTP requests count as well, and are given back with the answer, whatever it is."""
    budget = ConnectionBudget(1 * MIB)
    exchange.gateway._budget = budget
    assert exchange.request("PUT", f"/q?{VERSION}", queue_body()).status == 201
    assert exchange.request("POST", "/q/messages", bytes(200 * KIB)).status == 201
    assert budget.held_bytes == 0
    budget.add(2 * MIB)
    refused = exchange.request("POST", "/q/messages", bytes(200 * KIB))
    assert refused.status == 503
    assert exchange.request("POST", "/q/messages", b"small").status == 201
    assert exchange.request("POST", "/nowhere/messages", b"small").status == 404
    assert budget.held_bytes == 2 * MIB
    budget.add(-2 * MIB)
    assert exchange.request("POST", "/q/messages", bytes(200 * KIB)).status == 201
    assert exchange.request("POST", "/q/messages", bytes(300 * KIB)).status in (400, 403, 413)
    assert budget.held_bytes == 0
