"""JMS: clients that make, hold and end things by attaching, while commits fail, hang or are lost, connections go and
the server is started anew. A seed says what happens; nobody waits for anybody."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from busway.amqp.events import LinkAttached, LinkDetached
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Described, Symbol, ULong
from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.gateway import AmqpGateway
from busway.model.descriptions import NewEntity, TopicDescription
from busway.model.limits import Limits
from tests.harness.manual_clock import SeededEntropy
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, body_of, in_room, payload

STEPS = 120
NAMES = ("d0", "d1", "d2")
SELECTORS = {"d0": None, "d1": "kind = 'new'", "d2": None}


def path_of(name: str) -> str:
    return f"news/Subscriptions/{name}~busway"


class Subscription:
    """A durable one, as its clients know it."""

    def __init__(self) -> None:
        #: Counts its ends, as far as somebody has asked for one.
        self.life = 0
        #: Somebody subscribed since.
        self.is_there = False
        self.owed: set[bytes] = set()

    def may_be_gone(self) -> None:
        self.life += 1
        self.is_there = False
        self.owed = set()


class Play:
    def __init__(self, room: Room, seed: int) -> None:
        self.room = room
        self.chance = Random(seed)
        self.subscriptions = {name: Subscription() for name in NAMES}
        #: (client, link, what it is for, the name of a durable subscription)
        self.asked: list[tuple[Peer, Link, str, str]] = []
        self.standing: list[tuple[Peer, Link, str, str]] = []
        self.sent: list[tuple[Peer, Link, int, bytes, dict[str, int]]] = []
        self.made = 0
        self.is_held = False
        self.seen = dict.fromkeys(("made", "subscribed", "refused", "ended", "accepted", "restarted"), 0)

    # -- clients

    async def peer(self) -> Peer:
        living = [peer for peer in self.room.peers if not peer.transport.is_closed]
        if len(living) < 2 or (len(living) < 4 and self.chance.random() < 0.1):
            return await self.room.client()
        return self.chance.choice(living)

    def attach(self, peer: Peer, purpose: str, name: str, source: Source | None, target: Target) -> None:
        self.made += 1
        link_name = name if purpose in ("durable", "ending") else f"{purpose} {self.made}"
        is_sender = purpose in ("temporary", "publisher")
        if (link_name, is_sender) in peer.session._names:
            return  # it is under way or stands
        link = peer.session.attach(
            link_name, is_sender=is_sender, source=source, target=target, snd_settle_mode=1
        )
        self.asked.append((peer, link, purpose, name))

    async def subscribe(self) -> None:
        name = self.chance.choice(NAMES)
        source = Source("news", durable=2, capabilities=[Symbol("topic")])
        selector = SELECTORS[name]
        if selector is not None:
            source.filter = {Symbol("s"): Described(ULong(0x0000_468C_0000_0004), selector)}
        self.attach(await self.peer(), "durable", name, source, Target("there"))

    async def subscribe_for_a_while(self) -> None:
        capabilities = [Symbol("topic"), *([Symbol("shared")] if self.chance.random() < 0.5 else [])]
        self.attach(
            await self.peer(), "volatile", "", Source("news", capabilities=capabilities), Target("there")
        )

    async def make_temporary(self) -> None:
        capability = self.chance.choice(("temporary-queue", "temporary-topic"))
        target = Target(dynamic=True, capabilities=[Symbol(capability)])
        self.attach(await self.peer(), "temporary", "", Source("here"), target)

    async def ask_for_the_end(self) -> None:
        self.attach(await self.peer(), "ending", self.chance.choice(NAMES), None, Target())

    async def leave(self) -> None:
        """A link that stands; one that stands for an end is closed, mostly."""
        if not self.standing:
            return
        entry = self.standing.pop(self.chance.randrange(len(self.standing)))
        _, link, purpose, name = entry
        if purpose == "ending" and self.chance.random() < 0.8:
            self.subscriptions[name].may_be_gone()
            link.detach()
        else:
            link.detach(closed=purpose not in ("durable", "ending"))

    async def publish(self) -> None:
        peer = await self.peer()
        sender = next((each[1] for each in self.standing if each[0] is peer and each[2] == "publisher"), None)
        if sender is None:
            self.attach(peer, "publisher", "", Source("here"), Target("news"))
            return
        if sender.room() < 1 or peer.seen(LinkDetached, sender):
            return
        self.made += 1
        body = f"m{self.made}".encode()
        number = peer.send(sender, payload(body, application_properties={"kind": "new"}))
        lives = {name: each.life for name, each in self.subscriptions.items() if each.is_there}
        self.sent.append((peer, sender, number, body, lives))

    # -- faults

    async def fail(self) -> None:
        store = self.room.store
        self.chance.choice(
            (
                store.refuse_next_commit,
                lambda: store.lose_next_commit(is_applied=True),
                lambda: store.lose_next_commit(is_applied=False),
            )
        )()

    async def hang(self) -> None:
        if self.is_held:
            self.room.store.release_commits()
        else:
            self.room.store.hold_commits()
        self.is_held = not self.is_held

    async def lose_client(self) -> None:
        (await self.peer()).transport.lose()

    async def restart(self) -> None:
        room = self.room
        for peer in room.peers:
            peer.transport.lose()
        room.peers.clear()
        if self.chance.random() < 0.5:
            await room.namespace.background.close()
            room.store.crash()
        else:
            room.store.release_commits()
            await room.namespace.close()
        room.store.release_commits()
        self.is_held = False
        self.asked, self.standing, self.sent = [], [], []
        entropy = SeededEntropy(self.chance.randrange(1 << 30))
        room.namespace = Namespace("ns.local", [room.store], room.clock, entropy, Limits(), root_key=KEY)
        await room.namespace.open()
        room.gateway = AmqpGateway(room.namespace, room.clock, entropy, None, room.call_later)
        self.seen["restarted"] += 1

    async def wait(self) -> None:
        if self.is_held:
            await self.hang()
        await self.room.pass_time(self.chance.choice((1, 10, 90)))

    # -- what clients hear

    def look(self) -> None:
        for entry in list(self.asked):
            peer, link, purpose, name = entry
            if peer.transport.is_closed or peer.seen(LinkDetached, link):
                self.asked.remove(entry)
                self.seen["refused"] += 1
            elif peer.seen(LinkAttached, link):
                self.asked.remove(entry)
                self.standing.append(entry)
                if purpose == "durable":
                    self.subscriptions[name].is_there = True
                self.seen[{"durable": "subscribed", "ending": "ended"}.get(purpose, "made")] += 1
        self.standing = [
            each
            for each in self.standing
            if not each[0].transport.is_closed and not each[0].seen(LinkDetached, each[1])
        ]
        for sent in list(self.sent):
            peer, sender, number, body, lives = sent
            outcome = peer.outcomes(sender).get(number)
            if outcome is None:
                continue
            self.sent.remove(sent)
            if outcome == Accepted():
                self.seen["accepted"] += 1
                for name, life in lives.items():
                    if self.subscriptions[name].life == life:
                        self.subscriptions[name].owed.add(body)

    def check(self) -> None:
        """Nobody stands on what is gone."""
        for _, _, purpose, name in self.standing:
            if purpose in ("durable", "ending"):
                assert self.room.namespace.exists(path_of(name)), f"{purpose} {name}"

    # -- from the beginning to the end

    async def run(self) -> None:
        await self.room.namespace.create([NewEntity(TopicDescription("news"))])
        usual: list[Callable[[], object]] = (
            [self.subscribe] * 4 + [self.ask_for_the_end] * 3 + [self.leave] * 4
        )
        usual += [self.publish] * 6 + [self.make_temporary, self.subscribe_for_a_while, self.wait, self.wait]
        faults = [self.fail, self.fail, self.hang, self.hang, self.lose_client, self.restart]
        for _ in range(STEPS):
            step = self.chance.choice(faults if self.chance.random() < 0.1 else usual)
            await step()  # type: ignore[misc]
            await self.room.turns(self.chance.choice((1, 3, 12)))
            self.look()
            if not self.is_held:
                await self.room.turns(12)
                self.look()
                self.check()
        await self.wait()
        self.look()
        self.check()

    async def end(self) -> None:
        """Everybody goes: what was made for links goes too, what is durable has all that was promised."""
        room = self.room
        for peer in room.peers:
            peer.transport.lose()
        room.peers.clear()
        await room.pass_time(800)
        assert room.gateway.shared.waiting_attaches.count == 0
        assert room.namespace.queues() == []
        assert [topic.path for topic in room.namespace.topics()] == ["news"]
        left = {each.path for each in room.namespace.subscriptions("news")}
        assert left <= set(map(path_of, NAMES))
        peer = await room.client()
        for name, subscription in self.subscriptions.items():
            if not subscription.is_there:
                continue
            assert path_of(name) in left
            link = await peer.receiver(path_of(name), deletes=True)
            link.grant_credit(1_000, drain=True)
            await room.until(lambda link=link: link.credit() == 0)  # type: ignore[misc]
            got = [body_of(delivery) for delivery in peer.deliveries(link)]
            assert len(got) == len(set(got))
            assert subscription.owed <= set(got), (name, sorted(subscription.owed), got)


@pytest.mark.parametrize("seed", range(1, 31))
def test_nothing_is_lost_left_or_gone_under_its_client(seed: int) -> None:
    """E-60 E-65 E-110: a durable subscription keeps what was accepted since somebody subscribed, until somebody
    unsubscribes; nobody stands on one that is gone; and nothing else stays."""

    async def scenario(room: Room) -> None:
        play = Play(room, seed)
        await play.run()
        await play.end()
        print(play.seen)

    in_room(scenario)
