"""Clients that receive: with locks or by receive-and-delete; they complete, abandon, defer, dead-letter or forget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.outlet import Outlet
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from tests.changes.client import Answer, Client
from tests.changes.messages import value_of
from tests.changes.record import Work
from tests.chaos.history import OK

if TYPE_CHECKING:
    from tests.changes.world import World

_INBOX_MAX: Final = 8


class Held:
    """A message that somebody holds a lock of."""

    __slots__ = ("number", "partition_key", "session_id", "token", "value")

    def __init__(self, delivery: Delivery) -> None:
        self.value = value_of(delivery.message.bare)
        self.number = delivery.message.sequence_number
        self.session_id = delivery.message.session_id
        self.partition_key = delivery.message.partition_key
        self.token = delivery.token


class ReceiveLink(Receiver):
    """A receiving link, as a gateway has one."""

    def __init__(self, client: Consumer, path: str) -> None:
        self.client = client
        self.path = path
        self.deletes = client.deletes
        self.credit = 0
        self.is_gone = False
        self.queue: Queue | None = None
        #: Since credit was given.
        self.work: Work | None = None
        self.hold = ""
        #: From then on what was promised before may come beyond its credit.
        self._was_withdrawn = False

    @property
    def outlet(self) -> Outlet:
        assert self.queue is not None
        return self.queue.outlet(self.client.is_dead)

    def room(self) -> int:
        return 0 if self.is_gone else self.credit

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        if self.is_gone:
            return deliveries
        if len(deliveries) > self.credit and not self._was_withdrawn:
            self.client.record.find("more than asked for", self.path)
        taken = self.client.kept(deliveries[: self.credit])
        self.credit -= len(taken)
        if len(taken) < len(deliveries):
            self.credit, self._was_withdrawn = 0, True
        if taken and self.work is not None:
            self.client.record.end(self.work)
            self.work = None
        self.client.delivered(self, taken)
        return deliveries[len(taken) :]

    def evict(self, error: BrokerError) -> None:
        if not self.is_gone:
            self.is_gone = True
            self.client.evicted(error)

    def leave(self) -> None:
        """The client hangs up."""
        if not self.is_gone and self.queue is not None:
            self.is_gone = True
            self.outlet.remove_receiver(self)
            self.queue.detach(self)


class Consumer(Client):
    """Receives from one queue or subscription, or from its dead letters."""

    deletes = False
    is_dead = False
    work_kind = "receive"
    verbs: tuple[Verb, ...] = (Verb.COMPLETE,)

    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name)
        self.path = path
        self.link: ReceiveLink | None = None
        self.inbox: list[Held] = []

    def leave(self) -> None:
        if self.link is not None:
            self.link.leave()

    async def act(self) -> None:
        self.doing = f"attaches to {self.path}"
        try:
            link = await self.attached()
        except BrokerError as error:
            await self.refused(error)
            return
        self.served()
        self.grant(link)
        self.doing = f"waits for messages of {self.path}"
        await asyncio.sleep(self.chance.random() * 0.004)
        await self.settle_some()

    async def attached(self) -> ReceiveLink:
        link = self.link
        if link is None or link.is_gone:
            link = ReceiveLink(self, self.path)
            queue = self.world.namespace.queue(self.path)
            queue.attach(link, sends=False)
            link.queue = queue
            try:
                link.outlet.add_receiver(link)
            except BrokerError:
                queue.detach(link)
                raise
            self.link = link
        return link

    def grant(self, link: ReceiveLink) -> None:
        if link.credit == 0 and len(self.inbox) < _INBOX_MAX and not link.is_gone:
            link.credit = self.chance.randint(1, 5)
            if link.work is None:
                link.work = self.record.begin("delete" if self.deletes else self.work_kind)
            link.outlet.wake(link)

    def evicted(self, error: BrokerError) -> None:
        self.record.note(f"{self.name} evicted: {type(error).__name__}")
        self.record.count(f"evicted {type(error).__name__}")

    # -- what comes

    def kept(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Now and then credit is withdrawn at that very moment."""
        if self.chance.random() < 0.05:
            return deliveries[: len(deliveries) // 2]
        return deliveries

    def delivered(self, link: ReceiveLink, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            held = Held(delivery)
            token = f"{self.name}:{held.number}" if self.deletes else held.token.hex()
            locked_s = (delivery.locked_until_ms - self.world.clock.wall_ms()) / 1_000
            self.record.received(
                "delete" if self.deletes else "receive",
                self.path,
                held.value,
                held.number,
                token=token,
                locked_until=0.0 if self.deletes or link.hold else self.record.now() + locked_s,
                hold=link.hold,
                # What credit was withdrawn for is put back by a commit of its own, and may be overtaken meanwhile.
                session=held.session_id if link.hold and not self.deletes else None,
            )
            if self.deletes:  # it is gone when it is handed over
                self.record.settled("complete", held.value, self.record.now(), None, token, link.hold)
            else:
                self.inbox.append(held)

    # -- settling

    async def settle_some(self) -> None:
        if not self.inbox:
            return
        chosen = self.inbox[: self.chance.choice((1, 2, 4))]
        self.inbox = self.inbox[len(chosen) :]
        await self.settle(chosen, self.chance.choice(self.verbs))

    def place(self) -> Outlet:
        """Of the link, or when that is gone of whatever is there now (R-19)."""
        link = self.link
        if link is not None and not link.is_gone:
            return link.outlet
        return self.world.namespace.queue(self.path).outlet(self.is_dead)

    async def settle(self, chosen: list[Held], verb: Verb, session_id: str | None = None) -> None:
        kind = verb.value
        work = self.record.begin(f"dead {kind}" if self.is_dead else kind)
        self.doing = f"settles {chosen[0].value} of {self.path}"
        invoked = self.record.now()
        hold = "" if self.link is None else self.link.hold
        errors: list[BrokerError | None]
        try:
            answer = Answer(self, len(chosen))
            reason = "for the test" if verb is Verb.DEAD_LETTER else None
            tokens = [held.token for held in chosen]
            self.place().settle(tokens, Settlement(verb, None, reason), answer, session_id)
            errors = await answer.come()
        except BrokerError as refusal:
            errors = [refusal] * len(chosen)
        for held, error in zip(chosen, errors, strict=True):
            result = self.record.settled(kind, held.value, invoked, error, held.token.hex(), hold)
            if result == OK:
                self.record.end(work)
                self.settled(held, verb)

    def settled(self, held: Held, verb: Verb) -> None:
        """For those who want to know."""


class Deleter(Consumer):
    deletes = True


class Changeable(Consumer):
    """Does everything that can be done with a lock."""

    verbs = (Verb.COMPLETE, Verb.COMPLETE, Verb.ABANDON, Verb.ABANDON, Verb.RELEASE)

    async def settle_some(self) -> None:
        draw = self.chance.random()
        if self.inbox and draw < 0.1:
            self.inbox.pop(0)  # forgotten: its lock will end
        elif self.inbox and draw < 0.25:
            await self._renew(self.inbox[0])
        await super().settle_some()

    async def _renew(self, held: Held) -> None:
        self.doing = f"renews {held.value}"
        try:
            await self.place().renew([held.token])
        except BrokerError as error:
            self.record.count(f"renew {type(error).__name__}")


class Deferrer(Consumer):
    """Lays messages aside and comes back for them."""

    verbs: tuple[Verb, ...] = (Verb.DEFER, Verb.DEFER, Verb.COMPLETE)

    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name, path)
        self._aside: list[Held] = []

    def settled(self, held: Held, verb: Verb) -> None:
        if verb is Verb.DEFER:
            self._aside.append(held)

    async def settle_some(self) -> None:
        await super().settle_some()
        if self._aside and self.chance.random() < 0.6:
            await self.fetch(self._aside.pop(0), None)

    async def fetch(self, aside: Held, session_id: str | None) -> None:
        """Once: what is refused now is found in the end."""
        self.doing = f"fetches {aside.value} by number"
        work = self.record.begin("by number")
        deletes = self.chance.random() < 0.3
        invoked = self.record.now()
        problem: BrokerError | None = None
        found: list[Delivery] = []
        try:
            found = await self.place().receive_by_number(
                [aside.number], deletes=deletes, session_id=session_id
            )
        except BrokerError as error:
            problem = error
            self.record.count(f"by number {type(error).__name__}")
        for delivery in found:
            self.record.end(work)
            held = Held(delivery)
            token = f"{self.name}:{held.number}" if deletes else held.token.hex()
            self.record.received("by number", self.path, held.value, held.number, token=token, asked=invoked)
            if deletes:  # in an entity that was made anew the number is another message's
                self.record.settled("complete", held.value, invoked, None, token)
            else:
                await self.settle([held], Verb.COMPLETE, session_id)
        if deletes and not found:
            self.record.settled("complete", aside.value, invoked, problem, f"{self.name}:{aside.number}")


class Mortician(Consumer):
    """Sends messages to the dead letters."""

    verbs = (Verb.DEAD_LETTER, Verb.DEAD_LETTER, Verb.COMPLETE)


class Heir(Consumer):
    """Takes what lies there."""

    is_dead = True
    work_kind = "dead receive"


class Sleepy(Consumer):
    """Comes too late for much."""

    def pause_s(self) -> float:
        return self.chance.random() * 0.03


class Visitor(Consumer):
    """Comes, takes some, and goes again before the next one comes; what it holds it settles when it is back."""

    async def act(self) -> None:
        work = self.record.begin("visit")
        await super().act()
        if self.link is not None and not self.link.is_gone:
            self.record.end(work)
            if self.chance.random() < 0.7:
                self.link.leave()
                await asyncio.sleep(self.chance.random() * 0.01)
