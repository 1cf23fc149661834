"""JMS: subscriptions that a receiver of a topic makes by attaching, and ends."""

from __future__ import annotations

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Described, Symbol, ULong
from busway.model.descriptions import (
    LINK_WORDS,
    AuthorizationRule,
    NewEntity,
    SubscriptionDescription,
    TopicDescription,
)
from busway.rules.rule import SqlFilter, TrueFilter
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload

TOPIC = TopicDescription("news")
SELECTOR = Symbol("jms-selector")
CODE = ULong(0x0000_468C_0000_0004)


async def subscriber(
    peer: Peer,
    name: str,
    *,
    durable: bool = False,
    shared: bool = False,
    everybody: bool = False,
    selector: str | None = None,
    topic: str = "news",
) -> Link:
    """As Qpid JMS attaches one. The container of these peers is `busway`."""
    marks = [("topic", True), ("shared", shared), ("global", everybody)]
    link = peer.session.attach(
        name,
        is_sender=False,
        source=Source(
            topic,
            durable=2 if durable else 0,
            expiry_policy=Symbol("never" if durable else "link-detach"),
            distribution_mode="copy" if durable else None,
            filter=None if selector is None else {SELECTOR: Described(CODE, selector)},
            capabilities=[Symbol(mark) for mark, is_set in marks if is_set],
        ),
        target=Target("there"),
        snd_settle_mode=1,
    )
    await peer.attach(link)
    return link


async def unsubscribing(peer: Peer, name: str) -> Link:
    link = peer.session.attach(name, is_sender=False, source=None, target=Target())
    await peer.attach(link)
    return link


async def publish(peer: Peer, *bodies: bytes, topic: str = "news") -> None:
    sender = await peer.sender(topic)
    for body in bodies:
        message = payload(body, application_properties={"body": body.decode()})
        assert await peer.sent(sender, message) == [Accepted()]


async def got(peer: Peer, link: Link, credit: int = 10) -> list[bytes]:
    link.grant_credit(credit, drain=True)
    await peer.room.until(lambda: link.credit() == 0)
    return [body_of(delivery) for delivery in peer.deliveries(link)]


def names(room: Room, topic: str = "news") -> list[str]:
    return [found.name for found in room.namespace.subscriptions(topic)]


async def open_topic(room: Room) -> Peer:
    await room.namespace.create([NewEntity(TOPIC)])
    return await room.client()


def test_a_plain_subscriber_has_a_subscription_of_its_own_that_goes_with_it() -> None:
    """E-60: each gets every message; the name cannot be guessed, and nothing is left behind."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        links = [await subscriber(peer, f"consumer {number}") for number in range(2)]
        assert [peer.refusal(link) for link in links] == [None, None]
        await publish(peer, b"a", b"b")
        assert [await got(peer, link) for link in links] == [[b"a", b"b"]] * 2
        [first, second] = room.namespace.subscriptions("news")
        assert first.name != second.name
        assert first.auto_delete_on_idle_ms == 300_000
        links[0].detach()
        await room.turns()
        assert len(names(room)) == 1
        peer.transport.lose()
        await room.turns()
        assert names(room) == []

    in_room(scenario)


def test_a_durable_subscription_keeps_what_comes_while_its_client_is_away() -> None:
    """E-60: found again by the link's name and the client's id; a detach that does not close it leaves it."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        link = await subscriber(peer, "mine", durable=True)
        assert peer.refusal(link) is None
        link.detach(closed=False)
        await room.turns()
        await publish(peer, b"while away")
        peer.transport.lose()
        await room.turns()
        assert names(room) == ["mine~busway"]
        again = await room.client()
        assert await got(again, await subscriber(again, "mine", durable=True)) == [b"while away"]

    in_room(scenario)


def test_a_shared_subscription_has_several_receivers() -> None:
    """E-60: of everybody, or of one client; Qpid JMS counts its consumers behind a bar."""

    async def scenario(room: Room) -> None:
        one = await open_topic(room)
        two = await room.client()
        first = await subscriber(one, "all|global", durable=True, shared=True, everybody=True)
        second = await subscriber(two, "all|global2", durable=True, shared=True, everybody=True)
        await subscriber(one, "ours|2", durable=True, shared=True)
        assert names(room) == ["all", "ours~busway"]
        await publish(one, b"a", b"b")
        assert await got(one, first, 1) + await got(two, second, 1) == [b"a", b"b"]

    in_room(scenario)


def test_a_shared_subscription_that_is_not_durable_goes_with_its_last_receiver() -> None:
    """E-60: not before, and it stays when another one comes in the moment that it is let go."""

    async def scenario(room: Room) -> None:
        one = await open_topic(room)
        two = await room.client()
        marks = {"shared": True, "everybody": True}
        first = await subscriber(one, "v|global-volatile1", **marks)  # type: ignore[arg-type]
        second = await subscriber(two, "v|global-volatile1", **marks)  # type: ignore[arg-type]
        assert names(room) == ["v~nd"]
        first.detach()
        await room.turns()
        await publish(one, b"a")
        assert await got(two, second) == [b"a"]
        async with room.namespace.contents.changing:
            second.detach()
            await room.turns()
            third = await subscriber(one, "v|global-volatile2", **marks)  # type: ignore[arg-type]
        await room.turns()
        assert names(room) == ["v~nd"]
        third.detach()
        await room.turns()
        assert names(room) == []

    in_room(scenario)


@pytest.mark.parametrize("durable", [False, True])
def test_the_selector_of_a_subscriber_becomes_the_rule_of_its_subscription(durable: bool) -> None:
    """T-20: and is echoed; the same subscription cannot be had with another one."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        link = await subscriber(peer, "some", durable=durable, selector="body = 'b' AND JMSType IS NULL")
        assert link.peer is not None
        assert link.peer.source is not None
        assert link.peer.source.filter == {SELECTOR: Described(CODE, "body = 'b' AND JMSType IS NULL")}
        await publish(peer, b"a", b"b", b"c")
        assert await got(peer, link) == [b"b"]
        [found] = room.namespace.subscriptions("news")
        [rule] = room.namespace.rules.of(found.path)
        assert rule.filter == SqlFilter("body = 'b' AND sys.Label IS NULL")
        if durable:
            link.detach(closed=False)
            await room.turns()
            for other in ("body = 'c'", None):
                refusal = peer.refusal(await subscriber(peer, "some", durable=True, selector=other))
                assert refusal is not None
                assert refusal[0] == "amqp:not-allowed"
                assert "another selector" in refusal[1]
            same = "body='b' and JMSType is null"
            assert peer.refusal(await subscriber(peer, "some", durable=True, selector=same)) is None

    in_room(scenario)


def test_a_client_unsubscribes_by_closing_a_link_without_a_source() -> None:
    """E-65: then it is gone, and unsubscribing again finds nothing, at once; not while somebody receives."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        link = await subscriber(peer, "gone", durable=True)
        other = await room.client()
        assert (other.refusal(await unsubscribing(other, "gone")) or ("", ""))[0] == "amqp:not-allowed"
        other.transport.lose()
        link.detach(closed=False)
        await room.turns()
        leaving = await unsubscribing(peer, "gone")
        assert leaving.peer is not None
        assert leaving.peer.source is not None
        assert leaving.peer.source.address == "news"
        leaving.detach(closed=False)
        await room.turns()
        assert names(room) == ["gone~busway"]
        leaving = await unsubscribing(peer, "gone")
        room.store.hold_commits()
        leaving.detach()
        await room.turns()
        other = await room.client()
        again = other.session.attach("gone", is_sender=False, source=None, target=Target())
        await room.turns()
        room.store.release_commits()
        await other.attach(again)
        assert (other.refusal(again) or ("", ""))[0] == "amqp:not-found"
        assert names(room) == []

    in_room(scenario)


def test_what_an_administrator_has_made_is_used_and_not_ended() -> None:
    """E-60: with whatever rules and metadata it has; Listen is enough to receive, and nothing deletes it."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        rule = AuthorizationRule("reader", frozenset({"Listen"}), "one", "two")
        await room.namespace.access.set((*room.namespace.access.rules(), rule))
        words = LINK_WORDS[SubscriptionDescription]
        given = SubscriptionDescription("news/Subscriptions/given~busway", user_metadata=words)
        await room.namespace.create([NewEntity(given)])
        reader = await room.client("reader", "one")
        link = await subscriber(reader, "given", durable=True)
        await publish(peer, b"a")
        assert await got(reader, link) == [b"a"]
        link.detach()
        await room.turns()
        assert (peer.refusal(await unsubscribing(peer, "given")) or ("", ""))[0] == "amqp:not-allowed"
        assert (reader.refusal(await unsubscribing(reader, "given")) or ("", ""))[
            0
        ] == "amqp:unauthorized-access"
        refusal = peer.refusal(await subscriber(peer, "given", durable=True, selector="a = 1"))
        assert refusal is not None
        assert names(room) == ["given~busway"]
        assert isinstance(room.namespace.rules.of(given.path)[0].filter, TrueFilter)

    in_room(scenario)


def test_a_client_may_end_its_subscription_whatever_an_administrator_wrote_on_it() -> None:
    """E-36 E-65: what was made for a link is known by no text that others may change."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        (await subscriber(peer, "mine", durable=True)).detach(closed=False)
        await room.turns()
        path = "news/Subscriptions/mine~busway"
        assert room.namespace.description(path).user_metadata == LINK_WORDS[SubscriptionDescription]
        await room.namespace.update(SubscriptionDescription(path, user_metadata="of the till"))
        (await unsubscribing(peer, "mine")).detach()
        await room.turns()
        assert names(room) == []

    in_room(scenario)


def test_making_a_subscription_needs_manage() -> None:
    """Attack: A-9: a key without it is told what to create, and creates nothing; nor does a stranger end anything."""

    async def scenario(room: Room) -> None:
        await open_topic(room)
        rule = AuthorizationRule("reader", frozenset({"Listen", "Send"}), "one", "two")
        await room.namespace.access.set((*room.namespace.access.rules(), rule))
        reader = await room.client("reader", "one")
        for durable in (True, False):
            refusal = reader.refusal(await subscriber(reader, f"wanted{durable}", durable=durable))
            assert refusal is not None
            assert refusal[0] == "amqp:unauthorized-access"
            assert "'Manage' claim(s) are required to make it" in refusal[1]
            assert not durable or "news/Subscriptions/wantedTrue~busway" in refusal[1]
        stranger = await room.stranger()
        link = await unsubscribing(stranger, "wanted")
        assert (stranger.refusal(link) or ("", ""))[0] == "amqp:unauthorized-access"
        assert names(room) == []

    in_room(scenario)


@pytest.mark.parametrize("name", ["a b", "a/b", "$Default", "x" * 51, "", "s/$DeadLetterQueue", "ключ"])
def test_a_name_that_no_subscription_can_have_is_refused(name: str) -> None:
    """Attack: E-3: in the words of the administration; nothing is made, and no sub-queue is reached by it."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        refusal = peer.refusal(
            await subscriber(peer, name + "|global", durable=True, shared=True, everybody=True)
        )
        assert refusal is not None
        assert refusal[0] == "com.microsoft:argument-error"
        assert "of a subscription" in refusal[1]
        assert names(room) == []

    in_room(scenario)


def test_a_subscription_that_is_made_for_a_client_that_has_gone_is_deleted() -> None:
    """E-60: unless it is durable, which is what was asked for."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        room.store.hold_commits()
        for durable in (0, 2):
            source = Source("news", durable=durable, capabilities=[Symbol("topic")])
            peer.session.attach(f"s{durable}", is_sender=False, source=source, target=Target("there"))
        await room.turns()
        peer.transport.lose()
        room.store.release_commits()
        await room.turns(60)
        assert names(room) == ["s2~busway"]

    in_room(scenario)


def test_others_are_still_told_that_a_topic_cannot_be_received_from() -> None:
    """E-9: whoever does not call it a topic gets no subscription."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        refusal = peer.refusal(await peer.receiver("news"))
        assert refusal is not None
        assert "cannot be received from" in refusal[1]
        missing = peer.refusal(await subscriber(peer, "s", topic="missing"))
        assert missing is not None
        assert missing[0] == "amqp:not-found"
        assert names(room) == []

    in_room(scenario)


@pytest.mark.parametrize("durable", [False, True])
def test_credit_that_is_given_behind_the_attach_counts(durable: bool) -> None:
    """R-9: rhea and others do not wait for the answer; what is asked for by then is answered, a drain too."""

    async def scenario(room: Room) -> None:
        peer = await open_topic(room)
        source = Source("news", durable=2 if durable else 0, capabilities=[Symbol("topic")])
        link = peer.session.attach("eager", is_sender=False, source=source, target=Target("there"))
        link.grant_credit(5, drain=True)
        await peer.attach(link)
        await room.until(lambda: link.credit() == 0)
        dynamic = Source(dynamic=True)
        answers = peer.session.attach("answers", is_sender=False, source=dynamic, target=Target("there"))
        answers.grant_credit(5, drain=True)
        await peer.attach(answers)
        await room.until(lambda: answers.credit() == 0)

    in_room(scenario)
