"""Receiving Service Bus sessions: asking, waiting, holding, losing."""

import asyncio

import pytest

from busway.amqp.events import LinkAttached, LinkDetached, SettlementsAnswered
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Attach, Properties, Rejected, Source, Target
from busway.amqp.sections import decode_message
from busway.amqp.types import Described, Int, Long, Symbol, UInt, ULong
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload

FILTER = Symbol("com.microsoft:session-filter")
GO_DESCRIPTOR = ULong(0x137000000C)
SESSIONS = QueueDescription("q", requires_session=True)


async def fill(peer: Peer, *entries: tuple[str, bytes]) -> None:
    link = await peer.sender("q")
    await peer.sent(link, *(payload(body, properties=Properties(group_id=name)) for name, body in entries))


async def accept(peer: Peer, wish: object, timeout_ms: int | None = None) -> Link:
    properties = None if timeout_ms is None else {Symbol("com.microsoft:timeout"): UInt(timeout_ms)}
    return await peer.receiver("q", filters={FILTER: wish}, properties=properties)


def ask(peer: Peer, wish: object, name: str = "waiting") -> Link:
    """As `accept`, without waiting for the answer."""
    return peer.session.attach(
        name,
        is_sender=False,
        source=Source("q", filter={FILTER: wish}),
        target=Target("there"),
        snd_settle_mode=0,
        rcv_settle_mode=1,
    )


def granted(link: Link) -> object:
    """The filter value in the server's answer."""
    answer = link.peer
    assert isinstance(answer, Attach)
    assert answer.source is not None
    assert answer.source.filter is not None
    return answer.source.filter[FILTER]


def refused_with(peer: Peer, link: Link) -> str:
    refusal = peer.refusal(link)
    assert refusal is not None
    return refusal[0]


def test_a_named_session_is_answered_with_its_id_and_the_end_of_its_lock() -> None:
    """X-3, X-9: a plain string back for a plain string, and .NET ticks as a long."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, "a")
        assert granted(link) == "a"
        assert type(granted(link)) is str
        assert link.peer is not None
        until = (link.peer.properties or {})[Symbol("com.microsoft:locked-until-utc")]
        assert type(until) is Long
        assert (until - 621_355_968_000_000_000) // 10_000 == room.clock.wall_ms() + 60_000

    in_room(scenario, SESSIONS)


def test_a_described_wish_is_answered_described() -> None:
    """X-3: Go refuses any other shape."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, Described(GO_DESCRIPTOR, None))
        assert granted(link) == Described(GO_DESCRIPTOR, "a")

    in_room(scenario, SESSIONS)


def test_the_next_available_session_is_the_one_with_the_oldest_message() -> None:
    """X-7, X-8, X-4: and a held one is passed over."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("b", b"1"), ("a", b"2"), ("b", b"3"))
        assert granted(await accept(peer, None)) == "b"
        assert granted(await accept(peer, None)) == "a"

    in_room(scenario, SESSIONS)


def test_messages_of_the_session_come_in_order_and_only_those() -> None:
    """X-4, X-12, X-13, M-27b: locked until the session's lock ends."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"), ("b", b"x"), ("a", b"2"))
        link = await accept(peer, "a")
        link.grant_credit(10)
        found = await peer.received(link, 2)
        await fill(peer, ("b", b"y"), ("a", b"3"))
        found = await peer.received(link, 3)
        assert [body_of(one) for one in found] == [b"1", b"2", b"3"]
        annotations = decode_message(found[0].payload).message_annotations or {}
        assert annotations["x-opt-locked-until"] == room.clock.wall_ms() + 60_000
        assert await peer.settle(link, found, Accepted()) == [Accepted()] * 3

    in_room(scenario, SESSIONS)


def test_a_session_without_messages_can_be_accepted_by_name() -> None:
    """X-6, S-7: the empty string is a name."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert granted(await accept(peer, "new")) == "new"
        assert granted(await accept(peer, "")) == ""

    in_room(scenario, SESSIONS)


def test_a_held_session_cannot_be_locked_again() -> None:
    """X-5, ERR-13: at once."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        await accept(peer, "a")
        assert refused_with(other, await accept(other, "a")) == "com.microsoft:session-cannot-be-locked"

    in_room(scenario, SESSIONS)


def test_the_attach_is_held_until_a_session_appears() -> None:
    """X-7: the attach is held until a session appears."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = ask(peer, None)
        await room.turns()
        assert peer.seen(LinkAttached, link) == []
        await fill(peer, ("late", b"1"))
        await room.until(lambda: peer.seen(LinkAttached, link))
        assert granted(link) == "late"

    in_room(scenario, SESSIONS)


@pytest.mark.parametrize(("timeout_ms", "wait_s"), [(5_000, 5), (None, 65), (900_000, 65)])
def test_waiting_for_a_session_ends_in_a_timeout(timeout_ms: int | None, wait_s: int) -> None:
    """X-7, ERR-16: after the link's own time, at most 65 s."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        properties = None if timeout_ms is None else {Symbol("com.microsoft:timeout"): UInt(timeout_ms)}
        link = peer.session.attach(
            "waiting",
            is_sender=False,
            source=Source("q", filter={FILTER: None}),
            target=Target("there"),
            properties=properties,
        )
        await room.turns()
        await room.pass_time(wait_s - 1)
        assert peer.refusal(link) is None
        await room.pass_time(2)
        condition, _ = await room.until(lambda: peer.refusal(link))
        assert condition == "com.microsoft:timeout"

    in_room(scenario, SESSIONS)


def test_a_client_that_stops_waiting_takes_no_session() -> None:
    """X-7, X-11: detached or lost while it waits."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        link = ask(peer, None)
        ask(other, None)
        await room.turns()
        link.detach()
        other.transport.lose()
        await room.turns()
        await fill(peer, ("a", b"1"))
        assert granted(await accept(peer, None, 1_000)) == "a"

    in_room(scenario, SESSIONS)


def test_a_stop_cancels_those_who_wait_for_a_session() -> None:
    """ERR-25, X-7: a wait that a stop cuts short ends with com.microsoft:operation-cancelled, which clients retry;
    links that hold a session go with the connection."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        holding = await accept(peer, "held")
        waiting = ask(peer, None)
        await room.turns()

        async def pump() -> None:
            while room.gateway.connections:
                await room.turns(1)

        await asyncio.gather(room.gateway.close(), pump())
        assert refused_with(peer, waiting) == "com.microsoft:operation-cancelled"
        assert refused_with(peer, holding) == "amqp:connection:forced"
        assert peer.closed_with() == "amqp:connection:forced"

    in_room(scenario, SESSIONS)


def test_a_deleted_queue_refuses_those_who_wait_for_a_session() -> None:
    """E-86: a deleted queue refuses those who wait for a session."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = ask(peer, None)
        await room.turns()
        await room.namespace.delete("q")
        condition, _ = await room.until(lambda: peer.refusal(link))
        assert condition == "amqp:not-found"

    in_room(scenario, SESSIONS)


@pytest.mark.parametrize("wish", [Int(5), b"bytes", Symbol("symbol"), ["list"], Described(GO_DESCRIPTOR, 5)])
def test_a_wish_that_is_neither_text_nor_null_is_refused(wish: object) -> None:
    """X-3: a wish that is neither text nor null is refused."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert refused_with(peer, await accept(peer, wish)) == "com.microsoft:argument-error"

    in_room(scenario, SESSIONS)


def test_a_session_id_has_128_characters_at_most() -> None:
    """L-8: a session id has 128 characters at most."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert refused_with(peer, await accept(peer, "s" * 129)) == "com.microsoft:argument-error"

    in_room(scenario, SESSIONS)


def test_plain_receivers_and_session_receivers_have_their_own_queues() -> None:
    """X-1, X-2, D-4: each refused with the service's sentence; a dead-letter queue has no sessions."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.receiver("q"))
        assert refusal is not None
        assert refusal[0] == "amqp:not-allowed"
        assert refusal[1].startswith(
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
        )
        for address in ("plain", "q/$DeadLetterQueue"):
            refusal = peer.refusal(await peer.receiver(address, filters={FILTER: "a"}))
            assert refusal is not None
            assert refusal[0] == "amqp:not-allowed"
            assert refusal[1].startswith(
                "A sessionful message receiver cannot be created on an entity that does not require sessions."
            )
        assert peer.refusal(await peer.receiver("q/$DeadLetterQueue")) is None

    in_room(scenario, SESSIONS, QueueDescription("plain"))


def test_a_closed_session_is_free_at_once_and_nothing_is_counted() -> None:
    """X-11, R-19: unsettled messages return without a count."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, "a")
        link.grant_credit(1)
        await peer.received(link, 1)
        link.detach()
        await room.turns()
        again = await accept(other, "a")
        again.grant_credit(1)
        [delivery] = await other.received(again, 1)
        header = decode_message(delivery.payload).header
        assert header is not None
        assert header.delivery_count == 0
        other.transport.lose()
        await room.turns()
        assert granted(await accept(peer, "a")) == "a"

    in_room(scenario, SESSIONS)


def test_a_session_whose_lock_ends_is_lost() -> None:
    """X-10, ERR-12: the link is detached, delivered messages are counted."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, "a")
        link.grant_credit(1)
        await peer.received(link, 1)
        await room.pass_time(61)
        condition, _ = await room.until(lambda: peer.refusal(link))
        assert condition == "com.microsoft:session-lock-lost"
        again = await accept(peer, None)
        again.grant_credit(1)
        [delivery] = await peer.received(again, 1)
        header = decode_message(delivery.payload).header
        assert header is not None
        assert header.delivery_count == 1

    in_room(scenario, SESSIONS)


def _answers_and_end(peer: Peer, link: Link) -> list[object]:
    """What the server said about settlements, and how it ended the link, in the order it came."""
    told: list[object] = []
    for event in peer.events:
        if isinstance(event, SettlementsAnswered) and event.link is link:
            told.append(event.state)
        elif isinstance(event, LinkDetached) and event.link is link and event.error is not None:
            told.append(event.error.condition)
    return told


def test_a_completion_under_way_is_answered_before_the_lost_session_is_told() -> None:
    """X-10, R-16: it was applied, so its client must not be told that it came too late."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"), ("a", b"2"))
        link = await accept(peer, "a")
        link.grant_credit(2)
        first, second = await peer.received(link, 2)
        room.store.hold_commits()
        link.settle(first.delivery_id, first.delivery_id, Accepted(), settled=False)
        await room.turns()
        await room.pass_time(61)
        assert _answers_and_end(peer, link) == []
        assert not peer.connection.carrier.links.holds_session("q", "a")
        link.settle(second.delivery_id, second.delivery_id, Accepted(), settled=False)
        await room.turns()
        [late] = _answers_and_end(peer, link)
        assert isinstance(late, Rejected)
        assert late.error is not None
        assert late.error.condition == "com.microsoft:session-lock-lost"
        room.store.release_commits()
        await room.until(lambda: peer.refusal(link))
        assert _answers_and_end(peer, link)[1:] == [Accepted(), "com.microsoft:session-lock-lost"]
        await room.turns()
        again = await accept(peer, "a")
        again.grant_credit(5)
        assert [body_of(one) for one in await peer.received(again, 1)] == [b"2"]

    in_room(scenario, SESSIONS)


def test_a_completion_that_finds_the_session_over_is_answered_too() -> None:
    """X-10, R-17: the settlement itself finds that the session's time is over, before any timer does."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, "a")
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        room.clock.advance(61)
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
        await room.until(lambda: peer.refusal(link))
        answer, end = _answers_and_end(peer, link)
        assert isinstance(answer, Rejected)
        assert answer.error is not None
        assert answer.error.condition == end == "com.microsoft:session-lock-lost"

    in_room(scenario, SESSIONS)


def test_a_client_that_leaves_a_lost_session_before_its_answers_gets_no_second_word() -> None:
    """X-10, X-11: the link is gone, whatever the commit brings."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"))
        link = await accept(peer, "a")
        link.grant_credit(1)
        [delivery] = await peer.received(link, 1)
        room.store.hold_commits()
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
        await room.turns()
        await room.pass_time(61)
        link.detach()
        await room.turns()
        room.store.release_commits()
        await room.turns()
        assert _answers_and_end(peer, link) == []
        assert await room.namespace.queue("q").outlet(False).peek(0, 10) == []
        assert peer.closed_with() is None

    in_room(scenario, SESSIONS)


def test_a_session_can_be_received_and_deleted() -> None:
    """R-1, X-4: a session can be received and deleted."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, ("a", b"1"), ("a", b"2"))
        link = await peer.receiver("q", deletes=True, filters={FILTER: "a"})
        link.grant_credit(5)
        found = await peer.received(link, 2)
        assert all(one.settled for one in found)
        assert await room.namespace.queue("q").outlet(False).peek(0, 10) == []

    in_room(scenario, SESSIONS)


def test_the_connection_knows_which_sessions_its_links_hold() -> None:
    """X-15: management requests ask for it by link name or by session."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.receiver("Q", filters={FILTER: "a"}, name="mine")
        connection = peer.connection
        assert connection.carrier.links.session_of_link("mine") == "a"
        assert connection.carrier.links.session_of_link("other") is None
        assert connection.carrier.links.holds_session("q", "a")
        assert not connection.carrier.links.holds_session("q", "b")
        assert not connection.carrier.links.holds_session("p", "a")
        link.detach()
        await room.turns()
        assert not connection.carrier.links.holds_session("q", "a")

    in_room(scenario, SESSIONS)
