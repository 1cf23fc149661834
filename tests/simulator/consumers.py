"""Clients that receive: with locks, by receive-and-delete, deferred ones by number; and those who only look."""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.outlet import Outlet
from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.client import Client, Question
from tests.simulator.journal import Call, Ended, Hold, Seen
from tests.simulator.topology import LOCK_S, fragment_index, group_of, value_of

_VERBS: Final = (
    *[Verb.COMPLETE] * 12,
    *[Verb.ABANDON] * 4,
    *[Verb.DEFER] * 2,
    *[Verb.DEAD_LETTER] * 2,
    Verb.RELEASE,
)
_INBOX_MAX: Final = 12


class Tap(Receiver):
    """A receiving link, as a gateway has one."""

    def __init__(self, client: Consumer, path: str, is_dead: bool, deletes: bool, hold: Hold | None) -> None:
        self.client = client
        self.path = path
        self.is_dead = is_dead
        self.deletes = deletes
        self.hold = hold
        self.credit = 0
        self.is_gone = False
        self.queue: Queue | None = None

    def room(self) -> int:
        return 0 if self.is_gone else self.credit

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        if self.is_gone:
            return deliveries
        if len(deliveries) > self.credit:
            self.client.journal.find("more than asked for", self.path)
        taken = self.client.kept(deliveries)
        self.credit -= len(taken)
        self.client.delivered(self, taken)
        return deliveries[len(taken) :]

    def caught_up(self) -> None:
        """Nobody drains here."""

    def evict(self, error: BrokerError) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self.client.note(f"evicted from {self.path}: {type(error).__name__}")

    def leave(self) -> None:
        """The client hangs up."""
        if self.is_gone:
            return
        self.is_gone = True
        if self.queue is not None:
            self.queue.outlet(self.is_dead).remove_receiver(self)
            self.queue.detach(self)


class SettleQuestion(Question):
    """Numbers of deferred messages are remembered: nobody finds them otherwise."""

    __slots__ = ()

    def told(self, place: int, call: Call) -> None:
        del place
        if isinstance(call, Ended) and call.seen is not None and call.verb == "defer" and call.result == OK:
            self._asker.world.deferred.setdefault((call.seen.path, call.seen.is_dead), []).append(call.seen)


class Consumer(Client):
    """Receives from one queue at a time, or from its dead-letter queue."""

    #: (path, dead-letter queue or not)
    places: tuple[tuple[str, bool], ...] = ()
    deletes = False

    def begin(self) -> None:
        super().begin()
        self.tap: Tap | None = None
        self.inbox: list[Seen] = []
        self.place = self.chance.choice(self.places)

    def leave(self) -> None:
        if self.tap is not None:
            self.tap.leave()

    async def act(self) -> None:
        if self.tap is None or self.tap.is_gone:
            self.attach()
            return
        draw = self.chance.random()
        if draw < 0.40 and len(self.inbox) < _INBOX_MAX:
            self.grant()
        elif draw < 0.80:
            await self.settle()
        elif draw < 0.84:
            await self.renew()
        elif draw < 0.89:
            await self.peek()
        elif draw < 0.95:
            await self.receive_deferred()
        elif draw < 0.98:
            self.hang_up()
        else:
            self.inbox = self.inbox[1:]  # forgotten: the lock will end

    # -- links

    def attach(self) -> None:
        path, is_dead = self.place
        tap = Tap(self, path, is_dead, self.deletes, None)
        try:
            queue = self.namespace.queue(path)
            queue.attach(tap, sends=False)
            tap.queue = queue
            queue.outlet(is_dead).add_receiver(tap)
        except BrokerError as error:
            self.journal.count("attach fail")
            self.note(f"attach {path} fail {type(error).__name__}")
            if tap.queue is not None:
                tap.queue.detach(tap)
            return
        self.journal.count("attach ok")
        self.note(f"attach {path} ok")
        self.tap = tap

    def hang_up(self) -> None:
        """R-19: locks outlive the link, and some are settled later."""
        if self.tap is not None:
            self.tap.leave()
        self.note("hangs up")
        self.journal.count("hang-up ok")
        self.place = self.chance.choice(self.places)
        if self.chance.random() < 0.5:
            self.inbox = []

    def grant(self) -> None:
        tap = self.tap
        if tap is not None and not tap.is_gone and tap.queue is not None:
            tap.credit += self.chance.randint(1, 6)
            self.journal.count("credit ok")
            tap.queue.outlet(tap.is_dead).wake(tap)

    # -- what comes

    def kept(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Now and then the socket takes only some of them."""
        if self.chance.random() < 0.03:
            return deliveries[: len(deliveries) // 2]
        return deliveries

    def delivered(self, tap: Tap, deliveries: list[Delivery]) -> None:
        how = "delete" if tap.deletes else "receive"
        for delivery in deliveries:
            seen = self.see(tap.path, tap.is_dead, how, delivery.message)
            seen.token = delivery.token
            seen.hold = tap.hold
            if tap.deletes:
                self._deleted(seen)
                continue
            if tap.hold is None and self.world.has_usual_locks(tap.path):
                seen.locked_until = seen.at + LOCK_S
            self.inbox.append(seen)

    def _deleted(self, seen: Seen) -> None:
        """R-1: it is gone when it is handed over."""
        ended = self.ended(seen, "complete")
        ended.done = seen.at
        ended.result = OK

    def see(self, path: str, is_dead: bool, how: str, message: Message) -> Seen:
        return self.world.see(path, is_dead, how, message, self.name)

    # -- settling

    def ended(self, seen: Seen, verb: str) -> Ended:
        ended = Ended(self.journal.now(), self.journal.life, verb, group_of(seen.path), seen.value, seen)
        self.journal.endings.append(ended)
        return ended

    def outlet(self, path: str, is_dead: bool) -> Outlet:
        return self.namespace.queue(path).outlet(is_dead)

    async def settle(self) -> None:
        if not self.inbox:
            await asyncio.sleep(self.chance.random() * 0.2)
            return
        first = self.chance.choice(self.inbox)
        alike = [seen for seen in self.inbox if seen.path == first.path and seen.is_dead == first.is_dead]
        chosen = [seen for seen in alike if seen.hold is first.hold][: self.chance.choice((1, 1, 2, 5))]
        self.inbox = [seen for seen in self.inbox if seen not in chosen]
        verb = self.chance.choice(_VERBS)
        if first.is_dead and verb is Verb.DEAD_LETTER:
            verb = Verb.COMPLETE
        endings = [self.ended(seen, verb.value) for seen in chosen]
        question = SettleQuestion(self, endings, f"{verb.value} {first.path} {_values(chosen)}")
        session_id = None if first.hold is None else first.hold.session_id
        try:
            self.outlet(first.path, first.is_dead).settle(
                [seen.token for seen in chosen], self._settlement(verb), question, session_id
            )
        except BrokerError as error:
            question.fail(error)
        await self.heard(question)

    def _settlement(self, verb: Verb) -> Settlement:
        properties: dict[str, object] | None = None
        if verb is not Verb.COMPLETE and verb is not Verb.RELEASE and self.chance.random() < 0.3:
            properties = {"note": "changed"}
        reason = "simulated" if verb is Verb.DEAD_LETTER else None
        return Settlement(verb, properties, reason)

    async def renew(self) -> None:
        held = [seen for seen in self.inbox if seen.hold is None]
        if not held:
            return
        seen = self.chance.choice(held)
        call = Call(self.journal.now(), self.journal.life)
        self.journal.others.append(call)
        problem: BrokerError | None = None
        try:
            await self.outlet(seen.path, seen.is_dead).renew([seen.token])
        except BrokerError as error:
            problem = error
        self.journal.end(call, problem, f"renew {seen.path} {seen.value}")
        if problem is None:
            is_usual = self.world.has_usual_locks(seen.path)
            seen.locked_until = self.journal.now() + LOCK_S if is_usual else 0.0

    # -- requests

    async def peek(self) -> None:
        path, is_dead = self.place
        call = Call(self.journal.now(), self.journal.life)
        self.journal.others.append(call)
        problem: BrokerError | None = None
        found: list[Message] = []
        try:
            found = await self.outlet(path, is_dead).peek(0, self.chance.choice((1, 5, 50)))
        except BrokerError as error:
            problem = error
        self.journal.end(call, problem, f"peek {path}")
        for message in found:
            self.see(path, is_dead, "peek", message).invoked = call.invoked

    async def receive_deferred(self) -> None:
        await self.receive_numbers(self.place, None)

    async def receive_numbers(self, place: tuple[str, bool], hold: Hold | None) -> None:
        """R-51: all of them or none."""
        known = list({seen.number: seen for seen in self.world.deferred.get(place, [])}.values())
        if hold is not None:
            known = [seen for seen in known if seen.key == hold.session_id]
        if not known:
            return
        chosen = self.chance.sample(known, min(len(known), self.chance.choice((1, 1, 3))))
        deletes = self.chance.random() < 0.3
        call = Call(self.journal.now(), self.journal.life)
        self.journal.others.append(call)
        endings = [self.ended(seen, "complete") for seen in chosen] if deletes else []
        for ended in endings:
            ended.seen = None  # no lock of ours
        problem: BrokerError | None = None
        found: list[Delivery] = []
        try:
            found = await self.outlet(*place).receive_by_number(
                [seen.number for seen in chosen],
                deletes=deletes,
                session_id=None if hold is None else hold.session_id,
            )
        except BrokerError as error:
            problem = error
        self.journal.end(call, problem, f"deferred {place[0]} {_values(chosen)}")
        if deletes:
            self._deleted_by_number(endings, found, problem, chosen)
        else:
            self._locked_by_number(place, hold, found, call)

    def _deleted_by_number(
        self,
        endings: list[Ended],
        found: list[Delivery],
        problem: BrokerError | None,
        chosen: list[Seen],
    ) -> None:
        """Over several fragments, one may have done its part where another failed."""
        handed_out = {value_of(delivery.message.bare) for delivery in found}
        is_spread = len({fragment_index(seen.number) for seen in chosen}) > 1
        for ended in endings:
            is_out = ended.value in handed_out
            self.journal.end(ended, problem, f"delete {ended.value}")
            if not is_out and (problem is None or (is_spread and ended.result == FAIL)):
                ended.result = INFO

    def _locked_by_number(
        self, place: tuple[str, bool], hold: Hold | None, found: list[Delivery], call: Call
    ) -> None:
        is_spread = len({fragment_index(delivery.message.sequence_number) for delivery in found}) > 1
        for delivery in found:
            seen = self.see(place[0], place[1], "deferred", delivery.message)
            seen.invoked = call.invoked
            seen.token = delivery.token
            seen.hold = hold
            # Over several fragments the locks begin at different moments.
            if hold is None and not is_spread and self.world.has_usual_locks(place[0]):
                seen.locked_until = self.journal.now() + LOCK_S
            self.inbox.append(seen)


def _values(seen: list[Seen]) -> str:
    return seen[0].value if len(seen) == 1 else f"{seen[0].value}+{len(seen) - 1}"
