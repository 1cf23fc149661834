"""Clients that hold sessions, one at a time, with their messages and states."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.outlet import Outlet
from busway.model.errors import BrokerError, SessionLockLost
from busway.model.settlement import Verb
from tests.changes.receivers import Deferrer, Held, ReceiveLink
from tests.chaos.history import OK, Operation

if TYPE_CHECKING:
    from tests.changes.world import World


class SessionConsumer(Deferrer):
    """Accepts the next session, works in it for a while, goes on to the next."""

    verbs: tuple[Verb, ...] = (Verb.COMPLETE,)
    writes_states = False

    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name, path)
        self.session: MessageSession | None = None
        self._turns_left = 0

    async def attached(self) -> ReceiveLink:
        link, self._turns_left = self.link, self._turns_left - 1
        if link is not None and not link.is_gone and self.session is not None and self._turns_left > 0:
            return link
        if link is not None and not link.is_gone:
            self.leave()
        self.inbox = []
        work = self.record.begin("accept")
        invoked = self.record.now()
        link = ReceiveLink(self, self.path)
        queue = self.world.namespace.queue(self.path)
        queue.attach(link, sends=False)
        link.queue = queue
        try:
            session = await link.outlet.accept_session(link, None, 0.5)
        except BrokerError:
            queue.detach(link)
            raise
        if link.is_gone:  # evicted at that very moment
            session.close()
            return await self.attached()
        link.hold = f"{self.name}-{len(self.record.history.operations)}"
        now = self.record.now()
        self.record.history.add(Operation("accept", link.hold, invoked, now, OK, session=session.session_id))
        self.record.note(f"accept {session.session_id}")
        self.record.end(work)
        self.link, self.session, self._turns_left = link, session, self.chance.randint(2, 8)
        return link

    def leave(self) -> None:
        """X-11: the session is free at once."""
        link = self.link
        if link is not None and not link.is_gone:
            link.is_gone = True
            if self.session is not None:
                self.session.close()
            if link.queue is not None:
                link.queue.detach(link)
        self.session = None

    def place(self) -> Outlet:
        """X-11: whoever has lost the link has lost the session."""
        if self.link is None or self.link.is_gone:
            raise SessionLockLost
        return self.link.outlet

    async def settle(self, chosen: list[Held], verb: Verb, session_id: str | None = None) -> None:
        del session_id
        if self.session is not None:
            await super().settle(chosen, verb, self.session.session_id)

    async def settle_some(self) -> None:
        await super().settle_some()
        session = self.session
        if self.writes_states and session is not None and self.chance.random() < 0.4:
            await self._write_state(session.session_id)

    async def fetch(self, aside: Held, session_id: str | None) -> None:
        """Only of the session that is held."""
        del session_id
        if self.session is not None and aside.session_id == self.session.session_id:
            await super().fetch(aside, self.session.session_id)

    async def _write_state(self, session_id: str) -> None:
        possible = self.world.states.setdefault(session_id, [None])
        self.doing = f"reads the state of {session_id}"
        try:
            found = await self.place().session_state(session_id)
            if found not in possible:
                self.record.find("wrong session state", f"{session_id}: {found!r}, not {possible}")
            self.doing = f"writes the state of {session_id}"
            state = f"{self.name} {self.record.now():.6f}".encode()
            possible.append(state)
            await self.place().set_session_state(session_id, state)
        except BrokerError as error:
            self.record.count(f"state {type(error).__name__}")
            await asyncio.sleep(0)
        else:
            self.record.count("state")


class SessionSpeaker(SessionConsumer):
    """With a state, and all that can be done with a lock."""

    verbs = (Verb.COMPLETE, Verb.COMPLETE, Verb.ABANDON)
    writes_states = True


class SessionChanger(SessionConsumer):
    verbs = (Verb.COMPLETE, Verb.COMPLETE, Verb.ABANDON, Verb.ABANDON, Verb.RELEASE)


class SessionDeferrer(SessionConsumer):
    verbs = (Verb.DEFER, Verb.DEFER, Verb.COMPLETE)


class SessionMortician(SessionConsumer):
    verbs = (Verb.DEAD_LETTER, Verb.DEAD_LETTER, Verb.COMPLETE)


class SessionDeleter(SessionConsumer):
    deletes = True


class SessionSleepy(SessionConsumer):
    def pause_s(self) -> float:
        return self.chance.random() * 0.03
