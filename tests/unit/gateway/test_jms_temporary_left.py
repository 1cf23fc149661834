"""JMS: what becomes of temporary nodes when they cannot be deleted, and how many of them there may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from busway.amqp.events import LinkDetached
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Symbol, Timestamp
from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.links.waiting_attaches import WaitingAttaches
from busway.model.descriptions import NewEntity, TopicDescription
from busway.model.limits import Limits
from tests.harness.manual_clock import SeededEntropy
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, in_room, payload

QUEUE = Symbol("temporary-queue")
TOPIC = Symbol("temporary-topic")
YEAR_MS = 365 * 86_400_000


def making(peer: Peer, capability: Symbol = QUEUE, name: str = "") -> Link:
    """The answer is not waited for."""
    target = Target(dynamic=True, capabilities=[capability])
    name = name or f"creator {len(peer.events)} {capability}"
    return peer.session.attach(name, is_sender=True, source=Source("here"), target=target)


async def made(peer: Peer, capability: Symbol = QUEUE) -> str:
    """Its address."""
    link = making(peer, capability)
    await peer.attach(link)
    assert peer.refusal(link) is None
    assert link.peer is not None
    return str(getattr(link.peer.target, "address", None))


async def schedule(peer: Peer, address: str) -> None:
    """A message that comes in a year: use of a queue, as long as it waits (E-111)."""
    at = Timestamp(peer.room.clock.wall_ms() + YEAR_MS)
    message = payload(b"later", message_annotations={Symbol("x-opt-scheduled-enqueue-time"): at})
    assert await peer.sent(await peer.sender(address), message) == [Accepted()]


def refuse(room: Room) -> None:
    room.store.refuse_next_commit()


def lose(room: Room) -> None:
    room.store.lose_next_commit(is_applied=False)


def lose_done(room: Room) -> None:
    room.store.lose_next_commit(is_applied=True)


@pytest.mark.parametrize("fails", [refuse, lose, lose_done])
@pytest.mark.parametrize("leaves", ["detach", "lose"])
def test_a_node_whose_deletion_fails_goes_later(fails: Callable[[Room], None], leaves: str) -> None:
    """E-110: whoever leaves neither waits nor hears of it; five minutes later it is gone, whatever is in it."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        creator = making(peer)
        await peer.attach(creator)
        address = str(getattr(creator.peer.target, "address", None)) if creator.peer else ""
        await schedule(other, address)
        room.store.hold_commits()
        fails(room)
        if leaves == "detach":
            creator.detach()
            await room.turns()
            assert peer.seen(LinkDetached, creator)
        else:
            peer.transport.lose()
        room.store.release_commits()
        await room.pass_time(200)
        assert room.namespace.exists(address) == (fails is not lose_done)
        await room.pass_time(400)
        assert room.namespace.queues() == []

    in_room(scenario)


@pytest.mark.parametrize("dies", [False, True])
def test_nothing_temporary_outlives_the_server_for_long(dies: bool) -> None:
    """E-110: it was closed, or it crashed with all clients attached; messages that are still to come keep nothing."""

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(TopicDescription("news"))])
        peer = await room.client()
        for address in [await made(peer), await made(peer, TOPIC)]:
            await schedule(peer, address)
        source = Source("news", capabilities=[Symbol("topic")])
        subscriber = peer.session.attach("s", is_sender=False, source=source, target=Target("there"))
        await peer.attach(subscriber)
        if dies:
            room.store.crash()
        else:
            await room.namespace.close()
        clock, store = room.clock, room.store
        room.namespace = Namespace("ns.local", [store], clock, SeededEntropy(3), Limits(), root_key=KEY)
        await room.namespace.open()
        room.peers.clear()
        room.gateway = AmqpGateway(room.namespace, clock, SeededEntropy(4), None, room.call_later)
        assert len(room.namespace.queues()) == 1
        await room.pass_time(600)
        assert room.namespace.queues() == []
        assert [topic.path for topic in room.namespace.topics()] == ["news"]
        assert room.namespace.subscriptions("news") == []

    in_room(scenario)


def test_a_node_that_turned_its_link_away_goes_later() -> None:
    """E-110: its store failed for a moment; nobody can come back to it, because nobody holds it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        address = await made(peer)
        await schedule(peer, address)
        sender = await peer.sender(address)
        room.store.refuse_next_commit()
        peer.send(sender, payload(b"lost"))
        await room.pass_time(200)
        assert room.namespace.exists(address)
        await room.pass_time(400)
        assert not room.namespace.exists(address)

    in_room(scenario)


def test_a_message_that_is_to_come_keeps_a_queue_of_an_administrator() -> None:
    """E-111: as ever, whatever its metadata say; only what was made for a link does not live by it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        address = await made(peer)
        left = room.namespace.queues()[0]
        assert left.path == address
        await room.namespace.create([NewEntity(replace(left, path="mine", made_for_a_link=False))])
        await schedule(peer, "mine")
        await room.pass_time(1_000)
        assert room.namespace.exists("mine")
        assert room.namespace.exists(address)

    in_room(scenario)


def test_nothing_is_made_for_a_link_that_has_gone_already() -> None:
    """Attack: attached and detached in one read, again and again: no change of the namespace comes of it."""

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(TopicDescription("news"))])
        peer = await room.client()
        before = room.namespace.contents.catalogue.version
        for number in range(60):
            making(peer, name=f"n{number}").detach()
            source = Source("news", capabilities=[Symbol("topic")])
            peer.session.attach(f"s{number}", is_sender=False, source=source, target=Target("there")).detach()
            peer.session.attach(f"e{number}", is_sender=False, source=None, target=Target()).detach()
        await room.turns(60)
        assert room.namespace.contents.catalogue.version == before

    in_room(scenario)


@pytest.mark.parametrize("clients", [1, 6])
def test_only_so_many_attaches_wait_for_changes(clients: int) -> None:
    """Attack: while a store hangs; attached, detached and attached again, by one client or by several. The rest is
    refused with a sentence, also to who comes then, and all is as before when the store goes on."""

    async def scenario(room: Room) -> None:
        waiting = WaitingAttaches(room.namespace.background, of_one_max=20, of_all_max=50)
        room.gateway.shared.waiting_attaches = waiting
        peers = [await room.client() for _ in range(clients)]
        room.store.hold_commits()
        for peer in peers:
            for at in range(5):
                links = [making(peer, name=f"n{at}-{number}") for number in range(5)]
                await room.turns(2)
                for link in links:
                    link.detach()
                await room.turns(2)
        assert waiting.count == min(clients * 20, 50)
        late = making(peers[-1], name="late")
        await peers[-1].attach(late)
        assert (peers[-1].refusal(late) or ("", ""))[0] == "com.microsoft:server-busy"
        room.store.release_commits()
        await room.until(
            lambda: not room.namespace.contents.changing.locked() and not room.namespace.queues()
        )
        assert waiting.count == 0
        await made(peers[-1])

    in_room(scenario)


def test_a_node_of_whose_making_nobody_knows_goes_too() -> None:
    """E-110: the outcome of the commit that makes it is unknown, the link is refused, and then it is there."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        room.store.lose_next_commit(is_applied=True)
        link = making(peer)
        await peer.attach(link)
        assert peer.refusal(link) is not None
        await room.pass_time(60)
        assert len(room.namespace.queues()) == 1
        await room.pass_time(400)
        assert room.namespace.queues() == []

    in_room(scenario)
