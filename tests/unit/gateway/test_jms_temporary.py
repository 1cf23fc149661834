"""JMS: temporary queues and topics, made by attaching to a dynamic node."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Described, Symbol, ULong
from busway.gateway.amqp.attach.client_made_entities import IDLE_MS
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload

QUEUE = Symbol("temporary-queue")
TOPIC = Symbol("temporary-topic")
ON_CLOSE = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
ON_NO_LINKS = {Symbol("lifetime-policy"): Described(ULong(0x2C), [])}


async def made(peer: Peer, capability: Symbol = QUEUE, **more: Any) -> Link:
    """As Qpid JMS makes one: by a sender that it keeps as long as the destination."""
    target = Target(
        dynamic=True,
        durable=0,
        expiry_policy=Symbol("link-detach"),
        dynamic_node_properties=more.pop("properties", ON_CLOSE),
        capabilities=[capability],
    )
    name = more.pop("name", f"creator {len(peer.events)}")
    link = peer.session.attach(name, is_sender=True, source=Source("here"), target=target, **more)
    await peer.attach(link)
    return link


def address_of(link: Link) -> str:
    assert link.peer is not None
    terminus = link.peer.target if link.is_sender else link.peer.source
    return str(getattr(terminus, "address", None))


def test_a_temporary_queue_is_a_queue_and_goes_with_its_link() -> None:
    """E-1 E-30: found by the address that the answer tells; deleted when the link is detached."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        creator = await made(peer)
        assert peer.refusal(creator) is None
        address = address_of(creator)
        [queue] = room.namespace.queues()
        assert (queue.path, queue.auto_delete_on_idle_ms) == (address, 300_000)
        assert await other.sent(await other.sender(address), payload(b"answer")) == [Accepted()]
        receiver = await peer.receiver(address)
        receiver.grant_credit(1)
        assert body_of((await peer.received(receiver, 1))[0]) == b"answer"
        creator.detach()
        await room.turns()
        assert room.namespace.queues() == []
        assert (peer.refusal(receiver) or ("", ""))[0] == "amqp:not-found"

    in_room(scenario)


def test_a_temporary_queue_can_be_made_by_a_receiver() -> None:
    """E-1: as AMQP clients do for answers; messages are received by the same link."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = peer.session.attach(
            "answers", is_sender=False, source=Source(dynamic=True), target=Target("there"), snd_settle_mode=1
        )
        await peer.attach(link)
        address = address_of(link)
        link.grant_credit(1)
        assert await peer.sent(await peer.sender(address), payload(b"answer")) == [Accepted()]
        assert body_of((await peer.received(link, 1))[0]) == b"answer"
        link.detach()
        await room.turns()
        assert not room.namespace.exists(address)

    in_room(scenario)


def test_temporary_nodes_go_with_their_connection() -> None:
    """E-1: also when the network is lost, and with messages in them; others' stay."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        for capability in (QUEUE, TOPIC):
            await peer.sent(await made(peer, capability), payload(b"left"))
        kept = address_of(await made(other))
        assert (len(room.namespace.queues()), len(room.namespace.topics())) == (2, 1)
        peer.transport.lose()
        await room.turns()
        assert [queue.path for queue in room.namespace.queues()] == [kept]
        assert room.namespace.topics() == []

    in_room(scenario)


def test_a_node_that_is_made_for_a_client_that_has_gone_is_deleted() -> None:
    """E-1: the connection is lost while the catalogue is being written."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        room.store.hold_commits()
        peer.session.attach("creator", is_sender=True, source=Source("here"), target=Target(dynamic=True))
        await room.turns()
        peer.transport.lose()
        room.store.release_commits()
        await room.turns(40)
        assert room.namespace.queues() == []

    in_room(scenario)


def test_a_temporary_queue_stays_as_long_as_its_link() -> None:
    """E-111: its AutoDeleteOnIdle ends it only when nobody holds it any more, as after a restart."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        address = address_of(await made(peer))
        await room.pass_time(1_000)
        assert room.namespace.exists(address)

    in_room(scenario)


def test_a_temporary_queue_outlives_no_restart() -> None:
    """E-110: the server went without a word; five minutes later the queue goes by itself."""

    async def scenario(room: Room) -> None:
        left = QueueDescription("temporary-left", auto_delete_on_idle_ms=IDLE_MS)
        await room.namespace.create([NewEntity(left)])
        await room.pass_time(290)
        assert room.namespace.exists("temporary-left")
        await room.pass_time(130)
        assert not room.namespace.exists("temporary-left")

    in_room(scenario)


@pytest.mark.parametrize("rights", [("Send", "Listen"), ("Listen",)])
def test_a_temporary_queue_needs_manage_on_the_namespace(rights: tuple[str, ...]) -> None:
    """Attack: A-9: a key without it, or one of a queue only, makes nothing."""

    async def scenario(room: Room) -> None:
        rule = AuthorizationRule("weak", frozenset(rights), "one", "two")
        await room.namespace.access.set((*room.namespace.access.rules(), rule))
        peer = await room.client("weak", "one")
        for link in (await made(peer), await made(peer, TOPIC)):
            refusal = peer.refusal(link)
            assert refusal is not None
            assert refusal[0] == "amqp:unauthorized-access"
            assert "Manage" in refusal[1]
        stranger = await room.stranger()
        assert (stranger.refusal(await made(stranger)) or ("", ""))[0] == "amqp:unauthorized-access"
        assert room.namespace.queues() == []

    in_room(scenario)


def test_temporary_queues_count_among_the_entities() -> None:
    """Attack: L-1: no more than the namespace may have, in the words of the quota; there is room again afterwards."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        first = await made(peer)
        await made(peer)
        refusal = peer.refusal(await made(peer))
        assert refusal is not None
        assert refusal[0] == "amqp:resource-limit-exceeded"
        first.detach()
        await room.turns()
        assert peer.refusal(await made(peer)) is None

    in_room(scenario, limits=Limits(entities_max=2))


def test_what_a_temporary_node_cannot_be_is_refused() -> None:
    """ERR-19: another lifetime, or a topic that is received from; in words, and nothing is made."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        refusal = peer.refusal(await made(peer, properties=ON_NO_LINKS))
        assert refusal is not None
        assert refusal[0] == "amqp:not-implemented"
        link = peer.session.attach(
            "r", is_sender=False, source=Source(dynamic=True, capabilities=[TOPIC]), target=Target("there")
        )
        await peer.attach(link)
        assert (peer.refusal(link) or ("", ""))[0] == "amqp:not-implemented"
        assert room.namespace.queues() == []

    in_room(scenario)


def test_a_receiver_that_makes_a_queue_has_no_selector() -> None:
    """T-20: as any receiver of a queue: refused in words, not left out in silence; nothing is made."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        wanted = {Symbol("jms-selector"): Described(ULong(0x0000_468C_0000_0004), "a = 1")}
        source = Source(dynamic=True, filter=wanted)
        link = peer.session.attach("r", is_sender=False, source=source, target=Target("there"))
        await peer.attach(link)
        assert (peer.refusal(link) or ("", ""))[0] == "amqp:not-implemented"
        assert room.namespace.queues() == []

    in_room(scenario)
