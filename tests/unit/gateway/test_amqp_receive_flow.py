"""Receiving over a link: credit, drains, and clients that take slowly."""

import pytest

from busway.amqp.events import CreditDrained, DeliveriesArrived
from busway.amqp.performatives import Accepted
from busway.gateway.amqp.carrier import OUTPUT_HIGH_BYTES
from busway.model.descriptions import QueueDescription
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import Room, body_of, delivery_count, fill, in_room, payload


def test_credit_is_what_counts_and_is_served_in_order() -> None:
    """R-3, R-8, R-70, R-71: never more than the credit, oldest first, later ones when credit comes."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, *(b"%d" % index for index in range(10)))
        link = await peer.receiver("q")
        link.grant_credit(3)
        await room.turns()
        assert [body_of(one) for one in peer.deliveries(link)] == [b"0", b"1", b"2"]
        link.grant_credit(2)
        await room.turns()
        assert [body_of(one) for one in peer.deliveries(link)] == [b"0", b"1", b"2", b"3", b"4"]

    in_room(scenario, QueueDescription("q"))


def test_drain_is_answered_at_once() -> None:
    """R-9: what there is, then the rest of the credit is used up."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1", b"2")
        link = await peer.receiver("q")
        link.grant_credit(1)
        await peer.received(link, 1)
        link.grant_credit(10, drain=True)
        peer.pump()
        assert len(peer.deliveries(link)) == 2
        assert len(peer.seen(CreditDrained, link)) == 1
        await fill(peer, b"3")
        await room.turns()
        assert len(peer.deliveries(link)) == 2
        link.grant_credit(1)
        assert len(await peer.received(link, 3)) == 3

    in_room(scenario, QueueDescription("q"))


def test_a_drain_does_not_wait_for_a_slow_commit() -> None:
    """R-9, R-1: answered within 100 ms; what was being deleted is put back and comes with the next credit."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1", b"2")
        link = await peer.receiver("q", deletes=True)
        room.store.hold_commits()
        link.grant_credit(5, drain=True)
        await room.turns()
        assert peer.seen(CreditDrained, link) == []
        await room.pass_time(0.1)
        assert len(peer.seen(CreditDrained, link)) == 1
        room.store.release_commits()
        await room.turns()
        assert peer.deliveries(link) == []
        link.grant_credit(5, drain=True)
        assert [body_of(one) for one in await peer.received(link, 2)] == [b"1", b"2"]
        await room.turns()
        assert len(peer.seen(CreditDrained, link)) == 2
        await room.pass_time(1)
        assert len(peer.seen(CreditDrained, link)) == 2

    in_room(scenario, QueueDescription("q"))


def test_a_drain_does_not_wait_for_a_slow_read() -> None:
    """R-9: answered within 100 ms; nothing is locked for a credit that is gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, *(b"%d" % index for index in range(6)))
        room.store.hold_reads()
        link = await peer.receiver("q")
        link.grant_credit(6, drain=True)
        await room.turns()
        seen = len(peer.deliveries(link))
        assert seen < 6
        assert peer.seen(CreditDrained, link) == []
        await room.pass_time(0.1)
        assert len(peer.seen(CreditDrained, link)) == 1
        room.store.release_reads()
        await room.turns()
        assert len(peer.deliveries(link)) == seen
        assert len(room.namespace.queue("q").main.locks.live) == seen

    in_room(scenario, QueueDescription("q"), limits=Limits(window_messages_max=2))


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_commit_that_fails_under_a_drain_ends_the_link(is_certain: bool) -> None:
    """R-9, ERR-17, ERR-23: the client is not left waiting."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1")
        link = await peer.receiver("q", deletes=True)
        if is_certain:
            room.store.refuse_next_commit()
        else:
            room.store.lose_next_commit(is_applied=False)
        link.grant_credit(5, drain=True)
        await room.turns()
        refusal = peer.refusal(link)
        assert refusal is not None
        expected = "com.microsoft:server-busy" if is_certain else "amqp:link:detach-forced"
        assert refusal[0] == expected
        await room.pass_time(0.1)

    in_room(scenario, QueueDescription("q"))


def test_withdrawn_credit_is_respected() -> None:
    """R-70: a flow with credit 0 stops deliveries; what was deleted meanwhile is put back."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, b"1")
        link = await peer.receiver("q", deletes=True)
        room.store.hold_commits()
        link.grant_credit(1)
        await room.turns()
        link.grant_credit(0)
        await room.turns()
        room.store.release_commits()
        await room.turns()
        assert peer.deliveries(link) == []
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        assert (body_of(delivery), delivery_count(delivery)) == (b"1", 0)

    in_room(scenario, QueueDescription("q"))


def test_a_client_holds_at_most_2048_unsettled_messages_on_a_link() -> None:
    """R-70: the rest comes when some are settled."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        for _ in range(3):
            await peer.sent(sender, *(payload() for _ in range(700)))
        link = await peer.receiver("q")
        link.grant_credit(5_000)
        await peer.received(link, 2_048)
        await room.turns()
        assert len(peer.deliveries(link)) == 2_048
        await peer.settle(link, peer.deliveries(link)[:52], Accepted())
        assert len(await peer.received(link, 2_100)) == 2_100

    in_room(scenario, QueueDescription("q"))


def test_large_messages_wait_for_a_slow_reader_and_none_is_lost() -> None:
    """R-2: a peer that does not read bounds what is written and locked for it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        await peer.sent(sender, *(payload(b"x" * 100_000) for _ in range(40)))
        link = await peer.receiver("q")
        peer.transport.holds = True
        link.grant_credit(40)
        await room.turns()
        assert peer.transport.get_write_buffer_size() < 3 * 1024 * 1024
        peer.connection.pause_writing()
        await room.turns()
        peer.transport.holds = False
        peer.connection.resume_writing()
        found = await peer.received(link, 40)
        assert [delivery_count(one) for one in found] == [0] * 40

    in_room(scenario, QueueDescription("q"))


def test_deliveries_of_one_turn_leave_in_one_write() -> None:
    """R-71: a run is one write, not one per message."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, *(b"x" for _ in range(100)))
        link = await peer.receiver("q")
        await room.turns()
        before = peer.transport.writes
        link.grant_credit(100)
        await peer.received(link, 100)
        assert peer.transport.writes - before <= 2
        assert len(peer.seen(DeliveriesArrived, link)) <= 2

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize("size", [60_000, 200_000, 250_000])
def test_deliveries_stop_only_where_the_transport_tells_of_its_draining(size: int) -> None:
    """Found by measuring: while there is any room there is room for a message, however large. A transport that is
    filled up to less than its mark never says that it has drained, and the rest would wait for a timer."""

    async def scenario(room: Room) -> None:
        sender = await room.client()
        link = await sender.sender("q")
        for _ in range(60):
            await sender.sent(link, payload(bytes(size)))
        peer = await room.client()
        receiver = await peer.receiver("q", deletes=True)
        receiver.grant_credit(20)
        await peer.received(receiver, 20)  # from now on it is known how large they are
        peer.transport.holds = True
        receiver.grant_credit(40)
        await room.turns(50)
        assert OUTPUT_HIGH_BYTES <= peer.transport.get_write_buffer_size() <= OUTPUT_HIGH_BYTES + size + 1_000

    in_room(scenario, QueueDescription("q"))
