"""JMS: a queue browser shows messages and takes none; a selector is evaluated there, and refused elsewhere."""

from __future__ import annotations

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Modified, Properties, Released, Source, Target
from busway.amqp.types import Described, Symbol, ULong
from busway.model.descriptions import QueueDescription
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload

SELECTOR = Symbol("apache.org:selector-filter:string")
CODE = ULong(0x0000_468C_0000_0004)
#: As Qpid JMS writes it.
NAME = Symbol("jms-selector")


async def browser(peer: Peer, address: str = "q", selector: object = None, *, deletes: bool = False) -> Link:
    filters = None if selector is None else {NAME: Described(CODE, selector)}
    link = peer.session.attach(
        f"browser of {address}",
        is_sender=False,
        source=Source(
            address, distribution_mode="copy", filter=filters, durable=0, capabilities=[Symbol("queue")]
        ),
        target=Target("there"),
        snd_settle_mode=1 if deletes else 0,
    )
    await peer.attach(link)
    return link


async def fill(peer: Peer, *colors: str, address: str = "q", **more: str) -> None:
    sender = await peer.sender(address)
    for color in colors:
        message = payload(
            color.encode(), application_properties={"color": color}, properties=Properties(**more)
        )
        assert await peer.sent(sender, message) == [Accepted()]


async def browsed(peer: Peer, link: Link, credit: int = 100) -> list[bytes]:
    """What comes until the credit is drained."""
    link.grant_credit(credit, drain=True)
    await peer.room.until(lambda: link.credit() == 0)
    return [body_of(delivery) for delivery in peer.deliveries(link)]


@pytest.mark.parametrize("deletes", [False, True])
def test_a_browser_shows_what_is_there_and_others_receive_it(deletes: bool) -> None:
    """R-60: nothing is locked, counted or deleted by it, whatever it settles with; also what others hold is shown."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, "a", "b", "c")
        other = await peer.receiver("q")
        other.grant_credit(1)
        await peer.received(other, 1)
        link = await browser(peer, deletes=deletes)
        assert peer.refusal(link) is None
        assert await browsed(peer, link) == [b"a", b"b", b"c"]
        shown = peer.deliveries(link)
        if not deletes:
            assert await peer.settle(link, shown[:1], Accepted()) == [Accepted()]
            assert await peer.settle(link, shown[1:2], Released()) == [Released()]
            assert await peer.settle(link, shown[2:], Modified(True)) == [Modified(True)]
        other.grant_credit(10)
        assert [body_of(one) for one in await peer.received(other, 3)] == [b"a", b"b", b"c"]
        found = await room.namespace.queue("q").outlet(False).peek(0, 10)
        assert [message.delivery_count for message in found] == [0, 0, 0]

    in_room(scenario, QueueDescription("q"))


def test_a_browser_at_the_end_sees_what_has_come_when_it_asks_again() -> None:
    """R-9: each drain is answered at the end; nothing is shown twice."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await browser(peer)
        assert await browsed(peer, link) == []
        await fill(peer, "a")
        await room.turns()
        assert peer.deliveries(link) == []
        assert await browsed(peer, link, 1) == [b"a"]
        assert await browsed(peer, link, 1) == [b"a"]

    in_room(scenario, QueueDescription("q"))


def test_a_browser_takes_no_more_than_its_credit() -> None:
    """R-6: it goes on from there with the next credit, across pages."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, *[str(number) for number in range(23)])
        link = await browser(peer)
        for count in (1, 5, 20):
            link.grant_credit(count)
            await room.turns()
        assert [body_of(one) for one in peer.deliveries(link)] == [str(n).encode() for n in range(23)]
        assert link.credit() == 3

    in_room(scenario, QueueDescription("q"), limits=Limits(peek_messages_max=4))


def test_a_browser_looks_into_sessions_and_dead_letters() -> None:
    """R-60: as peek does, where a receiver needs a session; a browser of a sub-queue locks nothing either."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, "a", "b", address="sessions", group_id="s")
        assert await browsed(peer, await browser(peer, "sessions")) == [b"a", b"b"]
        for address in ("q/$deadletterqueue", "q/$Transfer/$DeadLetterQueue"):
            assert await browsed(peer, await browser(peer, address)) == []

    in_room(scenario, QueueDescription("sessions", requires_session=True), QueueDescription("q"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("color = 'blue'", [b"blue"]),
        ("color IN ('red', 'blue') AND NOT color LIKE 'b%'", [b"red", b"red"]),
        ("JMSType = 'T' AND color IS NOT NULL", [b"red", b"blue", b"red"]),
        ("JMSType = 'other'", []),
        ("missing = 1", []),
    ],
)
def test_a_browser_shows_what_its_selector_selects(selector: str, expected: list[bytes]) -> None:
    """T-20: a page at a time, and the filter is echoed, by which JMS knows that it counts."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, "red", "blue", "red", subject="T")
        link = await browser(peer, selector=selector)
        assert peer.refusal(link) is None
        source = link.peer and link.peer.source
        assert source is not None
        assert source.filter == {NAME: Described(CODE, selector)}
        assert await browsed(peer, link) == expected

    in_room(scenario, QueueDescription("q"), limits=Limits(peek_messages_max=2))


@pytest.mark.parametrize(
    ("selector", "condition", "words"),
    [
        ("color = = 1", "com.microsoft:argument-error", "At character 9"),
        ("n BETWEEN 1 AND 3", "com.microsoft:argument-error", "At character 3"),
        ("", "com.microsoft:argument-error", "cannot be read"),
        ("a = '" + "x" * 1_100 + "'", "com.microsoft:argument-error", "1024"),
        ("(" * 200 + "a = 1" + ")" * 200, "com.microsoft:argument-error", "nested"),
        ("JMSPriority > 4", "amqp:not-implemented", "'JMSPriority'"),
        (5, "com.microsoft:argument-error", "must be a string"),
        (None, "com.microsoft:argument-error", "must be a string"),
    ],
)
def test_a_selector_that_cannot_be_read_is_refused_with_its_place(
    selector: object, condition: str, words: str
) -> None:
    """Attack: T-36: of a browser, under the name and under the number of the filter. That of a receiver, which cannot
    have any, is not even read."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        for filters in ({NAME: Described(CODE, selector)}, {SELECTOR: Described(SELECTOR, selector)}):
            for mode in ("copy", "move", None):
                link = peer.session.attach(
                    f"{mode} {filters}"[:60],
                    is_sender=False,
                    source=Source("q", distribution_mode=mode, filter=filters),
                    target=Target("there"),
                )
                await peer.attach(link)
                refusal = peer.refusal(link)
                assert refusal is not None
                if mode == "copy" or not isinstance(selector, str):
                    assert refusal[0] == condition
                    assert words in refusal[1]
                else:
                    assert refusal[0] == "amqp:not-implemented"
                link.detach()
                await room.turns()

    in_room(scenario, QueueDescription("q"))


def test_a_selector_of_a_receiver_is_refused_with_what_to_do_instead() -> None:
    """ERR-19: never ignored in silence; on a queue, a session and a sub-queue, and a no-local filter too."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        wanted = Described(SELECTOR, "color = 'blue'")
        session = Symbol("com.microsoft:session-filter")
        for address, filters in (
            ("q", {Symbol("selector"): wanted}),
            ("q/$deadletterqueue", {SELECTOR: "color = 'blue'"}),
            ("sessions", {NAME: wanted, session: "s"}),
        ):
            refusal = peer.refusal(await peer.receiver(address, filters=filters))
            assert refusal is not None
            assert refusal[0] == "amqp:not-implemented"
            assert "subscription with an SQL rule" in refusal[1]
        no_local = {Symbol("no-local"): Described(ULong(0x0000_468C_0000_0003), "NoLocalFilter{}")}
        refusal = peer.refusal(await peer.receiver("q", filters=no_local))
        assert refusal is not None
        assert refusal[0] == "amqp:not-implemented"
        other = {Symbol("example.org:other"): "color = 'blue'"}
        assert peer.refusal(await peer.receiver("q", filters=other)) is None

    in_room(scenario, QueueDescription("q"), QueueDescription("sessions", requires_session=True))


def test_a_browser_goes_with_its_queue() -> None:
    """E-84: it is detached when the queue is deleted, also while it reads, and reads no more when it has gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await fill(peer, "a")
        link, going = await browser(peer), await browser(peer, "Q")
        going.grant_credit(1)
        going.detach()
        link.grant_credit(5)
        await room.namespace.delete("q")
        await room.turns()
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "amqp:not-found"

    in_room(scenario, QueueDescription("q"))
