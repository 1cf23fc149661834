"""JMS: a subscription that is ended while somebody comes to receive from it, and while stores fail or are slow."""

from __future__ import annotations

import asyncio

import pytest

from busway.amqp.events import LinkAttached, LinkDetached
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Symbol
from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.limits import Limits
from tests.harness.manual_clock import SeededEntropy
from tests.unit.gateway.amqp_peer import KEY, HeldStore, Peer, Room, body_of, in_room, payload

PATH = "news/Subscriptions/gone~busway"


def subscribing(peer: Peer, name: str = "gone", *, durable: bool = True, shared: bool = False) -> Link:
    """An attach as of Qpid JMS; nobody has waited for the answer yet."""
    capabilities = [Symbol("topic"), *([Symbol("shared")] if shared else [])]
    return peer.session.attach(
        name,
        is_sender=False,
        source=Source("news", durable=2 if durable else 0, capabilities=capabilities),
        target=Target("there"),
        snd_settle_mode=1,
    )


async def subscriber(peer: Peer, name: str = "gone", *, durable: bool = True, shared: bool = False) -> Link:
    link = subscribing(peer, name, durable=durable, shared=shared)
    await peer.attach(link)
    return link


async def unsubscribing(peer: Peer, name: str = "gone") -> Link:
    """It stands for the subscription, which ends when it is closed."""
    link = peer.session.attach(name, is_sender=False, source=None, target=Target())
    await peer.attach(link)
    return link


async def publish(peer: Peer, body: bytes) -> None:
    assert await peer.sent(await peer.sender("news"), payload(body)) == [Accepted()]


async def got(peer: Peer, link: Link) -> list[bytes]:
    link.grant_credit(10, drain=True)
    await peer.room.until(lambda: link.credit() == 0)
    return [body_of(delivery) for delivery in peer.deliveries(link)]


def is_answered(peer: Peer, link: Link) -> bool:
    return bool(peer.seen(LinkDetached, link))


def condition(peer: Peer, link: Link) -> str | None:
    refusal = peer.refusal(link)
    return None if refusal is None else refusal[0]


async def left_alone(room: Room) -> tuple[Peer, Peer]:
    """A durable subscription that nobody receives from, with one message; and two clients."""
    await room.namespace.create([NewEntity(TopicDescription("news"))])
    one, two = await room.client(), await room.client()
    link = await subscriber(one)
    link.detach(closed=False)
    await room.turns()
    await publish(one, b"kept")
    return one, two


@pytest.mark.parametrize("comes", ["subscriber", "receiver"])
def test_nobody_comes_to_receive_from_a_subscription_that_is_about_to_end(comes: str) -> None:
    """E-65 E-86: between the attach of the link that ends it and the close of that link; as a subscriber, or by its
    address. Refused with a sentence, and it is there again for whoever comes when the client has thought better."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        ending = await unsubscribing(one)
        late = await subscriber(two) if comes == "subscriber" else await two.receiver(PATH)
        assert condition(two, late) == "amqp:not-allowed"
        assert "unsubscribe" in (two.refusal(late) or ("", ""))[1]
        ending.detach(closed=False)
        await room.turns()
        again = await subscriber(two)
        assert await got(two, again) == [b"kept"]
        assert condition(one, await unsubscribing(one)) == "amqp:not-allowed"

    in_room(scenario)


def test_a_subscription_ends_when_its_link_is_closed_and_the_close_is_answered_then() -> None:
    """E-65: the answer to the close says that it is durable. Others of the connection go on meanwhile."""

    async def scenario(room: Room) -> None:
        one, _ = await left_alone(room)
        ending = await unsubscribing(one)
        room.store.hold_commits()
        ending.detach()
        await room.turns()
        assert not is_answered(one, ending)
        assert one.refusal(await one.receiver(PATH + "/$DeadLetterQueue")) is not None
        room.store.release_commits()
        await room.until(lambda: is_answered(one, ending))
        assert condition(one, ending) is None
        assert not room.namespace.exists(PATH)

    in_room(scenario)


def test_who_subscribes_while_it_ends_gets_a_new_one() -> None:
    """E-65: answered when the old one has gone; it holds everything that was published since, and nothing older."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        ending = await unsubscribing(one)
        room.store.hold_commits()
        ending.detach()
        await room.turns()
        late = subscribing(two)
        await room.turns()
        assert not two.seen(LinkAttached, late)
        room.store.release_commits()
        await two.attach(late)
        assert two.refusal(late) is None
        assert is_answered(one, ending)
        await publish(one, b"new")
        assert await got(two, late) == [b"new"]

    in_room(scenario)


@pytest.mark.parametrize("outcome", ["refused", "lost", "lost and done"])
def test_the_close_tells_when_a_subscription_could_not_be_ended(outcome: str) -> None:
    """E-65: the commit fails, or nobody knows; who subscribed meanwhile has one that stays."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        ending = await unsubscribing(one)
        room.store.hold_commits()
        ending.detach()
        await room.turns()
        late = subscribing(two)
        await room.turns()
        if outcome == "refused":
            room.store.refuse_next_commit()
        else:
            room.store.lose_next_commit(is_applied=outcome == "lost and done")
        room.store.release_commits()
        await room.until(lambda: is_answered(one, ending))
        assert condition(one, ending) is not None
        await two.attach(late)
        await room.pass_time(10)
        if two.refusal(late) is not None:
            late = await subscriber(two)
        assert two.refusal(late) is None
        await publish(one, b"new")
        await room.pass_time(60)
        assert await got(two, late) == ([b"new"] if outcome == "lost and done" else [b"kept", b"new"])
        assert two.refusal(late) is None

    in_room(scenario)


def test_an_ending_link_that_outlives_the_failure_of_a_store_ends_nothing() -> None:
    """E-65: it was turned away with everybody else; whoever has come since keeps the subscription."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        ending = await unsubscribing(one)
        room.store.refuse_next_commit()
        sender = await two.sender("news")
        two.send(sender, payload(b"lost"))
        await room.turns()
        assert condition(one, ending) is not None
        await room.pass_time(10)
        late = await subscriber(two)
        assert two.refusal(late) is None
        ending.detach()
        await room.turns()
        assert await got(two, late) == [b"kept"]

    in_room(scenario)


def test_two_links_may_stand_for_the_end_of_one_subscription() -> None:
    """E-65: the first close ends it, and the other link is told that there is nothing any more."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        first, second = await unsubscribing(one), await unsubscribing(two)
        first.detach()
        await room.turns()
        assert is_answered(one, first)
        assert (condition(one, first), condition(two, second)) == (None, "amqp:not-found")

    in_room(scenario)


def test_subscriptions_of_one_name_on_several_topics_end_together_or_not_at_all() -> None:
    """E-65: one of them is being received from."""

    async def scenario(room: Room) -> None:
        one, two = await left_alone(room)
        await room.namespace.create([NewEntity(TopicDescription("olds"))])
        source = Source("olds", durable=2, capabilities=[Symbol("topic")])
        other = two.session.attach("gone", is_sender=False, source=source, target=Target("there"))
        await two.attach(other)
        assert condition(one, await unsubscribing(one)) == "amqp:not-allowed"
        late = await subscriber(one)
        assert one.refusal(late) is None
        for peer, link in ((one, late), (two, other)):
            link.detach(closed=False)
            await room.turns()
            assert peer.refusal(link) is None
        ending = await unsubscribing(one)
        ending.detach()
        await room.turns()
        assert is_answered(one, ending)
        assert room.namespace.subscriptions("news") == room.namespace.subscriptions("olds") == []

    in_room(scenario)


def test_a_client_that_is_lost_behind_its_close_has_unsubscribed_all_the_same() -> None:
    """E-65: the deletion goes on to its end."""

    async def scenario(room: Room) -> None:
        one, _ = await left_alone(room)
        ending = await unsubscribing(one)
        room.store.hold_commits()
        ending.detach()
        await room.turns()
        one.transport.lose()
        room.store.release_commits()
        await room.turns(40)
        assert not room.namespace.exists(PATH)

    in_room(scenario)


def test_a_shared_subscription_that_is_just_let_go_is_made_anew_for_who_comes() -> None:
    """E-60: while its deletion is being written; nobody stands on what goes."""

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(TopicDescription("news"))])
        one, two = await room.client(), await room.client()
        first = await subscriber(one, "s|1", durable=False, shared=True)
        room.store.hold_commits()
        first.detach()
        await room.turns()
        late = subscribing(two, "s|2", durable=False, shared=True)
        await room.turns()
        room.store.release_commits()
        await two.attach(late)
        await room.turns(40)
        assert two.refusal(late) is None
        await publish(one, b"new")
        assert await got(two, late) == [b"new"]

    in_room(scenario)


class TwoStores(Room):
    """The topic lies in the first store; the next entity in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.second = HeldStore("b")
        stores = [self.store, self.second]
        self.namespace = Namespace("ns.local", stores, self.clock, SeededEntropy(), Limits(), root_key=KEY)


def test_unsubscribing_waits_for_changes_of_others_at_its_close_only() -> None:
    """E-65: a new queue hangs in its store. The link stands at once, its close is answered late, and everything else
    of the connection goes on."""

    async def scenario(room: TwoStores) -> None:
        one, two = await left_alone(room)
        await room.namespace.create([NewEntity(SubscriptionDescription("news/Subscriptions/other"))])
        room.second.hold_commits()
        creating = asyncio.create_task(room.namespace.create([NewEntity(QueueDescription("slow"))]))
        await room.turns()
        assert room.namespace.contents.changing.locked()
        ending = await unsubscribing(one)
        ending.detach()
        await room.turns()
        assert not is_answered(one, ending)
        late = subscribing(two)
        await publish(one, b"goes on")
        assert await got(one, await one.receiver("news/Subscriptions/other", deletes=True)) == [b"goes on"]
        assert not two.seen(LinkAttached, late)
        room.second.release_commits()
        await creating
        await room.until(lambda: is_answered(one, ending))
        assert condition(one, ending) is None
        await two.attach(late)
        assert await got(two, late) == []

    async def run() -> None:
        room = TwoStores()
        await room.open()
        try:
            await scenario(room)
        finally:
            await room.close()

    asyncio.run(run())
