"""Clients that hold sessions: by name or the next one, with messages, states and renewals; and receive-and-delete."""

from __future__ import annotations

import asyncio

from busway.broker.fragment.locks import Delivery
from busway.broker.fragment.message_sessions import MessageSession
from busway.model.errors import BrokerError, SessionLockLost
from tests.chaos.history import FAIL, OK
from tests.simulator.consumers import Consumer, Tap
from tests.simulator.journal import Call, Hold, StateWrite
from tests.simulator.topology import LOCK_S, SESSION_IDS


class SessionConsumer(Consumer):
    """Holds one session at a time."""

    def begin(self) -> None:
        super().begin()
        self.session: MessageSession | None = None

    async def act(self) -> None:
        if self.tap is None or self.tap.is_gone or self.session is None:
            await self.accept()
            return
        draw = self.chance.random()
        if draw < 0.35:
            self.grant()
        elif draw < 0.75:
            await self.settle()
        elif draw < 0.80:
            await self.renew_session()
        elif draw < 0.85:
            await self.set_state()
        elif draw < 0.89:
            await self.get_state()
        elif draw < 0.92:
            await self.peek()
        elif draw < 0.96:
            await self.receive_numbers(self.place, self.tap.hold)
        else:
            self.hang_up()

    # -- holding

    async def accept(self) -> None:
        """The attach is answered when the session is held; a client may lose patience before."""
        path, is_dead = self.place = self.chance.choice(self.places)
        hold = Hold(self.journal.now(), self.journal.life, f"{self.name}-{len(self.journal.holds)}", path)
        self.journal.holds.append(hold)
        tap = Tap(self, path, is_dead, self.deletes, hold)
        wanted = self.chance.choice(SESSION_IDS) if self.chance.random() < 0.4 else None
        try:
            queue = self.namespace.queue(path)
            queue.attach(tap, sends=False)
            tap.queue = queue
            session = await self._accepted(tap, wanted)
        except BrokerError as error:
            self.journal.end(hold, error, f"accept {path}")
            if tap.queue is not None:
                tap.queue.detach(tap)
            return
        if session is None:
            tap.leave()
            self.journal.end(hold, SessionLockLost(), f"accept {path} gave up")
            return
        if tap.is_gone:  # evicted at the very moment
            session.close()
            self.journal.end(hold, SessionLockLost(), f"accept {path} too late")
            return
        hold.session_id = session.session_id
        is_usual = self.world.has_usual_locks(path)
        hold.locked_until = self.journal.now() + LOCK_S if is_usual else 0.0
        self.journal.end(hold, None, f"accept {path} {session.session_id}")
        self.tap, self.session = tap, session
        self.inbox = []
        self.grant()

    async def _accepted(self, tap: Tap, session_id: str | None) -> MessageSession | None:
        """None when the client has hung up meanwhile."""
        assert tap.queue is not None
        outlet = tap.queue.outlet(tap.is_dead)
        timeout_s = self.chance.choice((0.0, 0.5, 5.0, 65.0))
        waiting = asyncio.get_running_loop().create_task(outlet.accept_session(tap, session_id, timeout_s))
        waiting.add_done_callback(_heard)
        if self.chance.random() < 0.2:
            await asyncio.sleep(self.chance.random() * 0.02)
            if not waiting.done():
                waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None

    def hang_up(self) -> None:
        """X-11: the session is free at once."""
        if self.tap is not None:
            self.tap.is_gone = True
            if self.session is not None:
                self.session.close()
            if self.tap.queue is not None:
                self.tap.queue.detach(self.tap)
        self.note("hangs up its session")
        self.session = None
        if self.chance.random() < 0.7:
            self.inbox = []

    def leave(self) -> None:
        if self.tap is not None and not self.tap.is_gone:
            self.hang_up()

    async def renew_session(self) -> None:
        hold = self._hold()
        call = Call(self.journal.now(), self.journal.life)
        self.journal.others.append(call)
        problem: BrokerError | None = None
        try:
            await self.outlet(*self.place).renew_session(hold.session_id)
        except BrokerError as error:
            problem = error
        self.journal.end(call, problem, f"renew-session {hold.path} {hold.session_id}")
        if problem is None and self.tap is not None and not self.tap.is_gone:
            is_usual = self.world.has_usual_locks(hold.path)
            hold.locked_until = self.journal.now() + LOCK_S if is_usual else 0.0

    def _hold(self) -> Hold:
        assert self.tap is not None
        assert self.tap.hold is not None
        return self.tap.hold

    # -- states

    async def set_state(self) -> None:
        hold = self._hold()
        state = None if self.chance.random() < 0.2 else self.world.new_value().encode()
        write = StateWrite(self.journal.now(), self.journal.life, hold.path, hold.session_id, state)
        self.journal.states.append(write)
        problem: BrokerError | None = None
        try:
            await self.outlet(*self.place).set_session_state(hold.session_id, state)
        except BrokerError as error:
            problem = error
        self.journal.end(write, problem, f"set-state {hold.path} {hold.session_id}")

    async def get_state(self) -> None:
        hold = self._hold()
        call = Call(self.journal.now(), self.journal.life)
        self.journal.others.append(call)
        problem: BrokerError | None = None
        state: bytes | None = None
        try:
            state = await self.outlet(*self.place).session_state(hold.session_id)
        except BrokerError as error:
            problem = error
        self.journal.end(call, problem, f"get-state {hold.path} {hold.session_id}")
        if problem is None and state not in self._possible_states(hold, call):
            self.journal.find("wrong session state", f"{hold.path} {hold.session_id} {state!r}")

    def _possible_states(self, hold: Hold, read: Call) -> list[bytes | None]:
        """What the last acknowledged write wrote, or one that may have come after it."""
        possible: list[bytes | None] = [None]
        for write in self.journal.states:
            if (write.path, write.session_id) != (hold.path, hold.session_id) or write.result == FAIL:
                continue
            if write.result == OK and write.done <= read.invoked:
                possible = []
            possible.append(write.state)
        return possible


def _heard(waiting: asyncio.Task[MessageSession]) -> None:
    """Whoever asked may be dead by now."""
    if not waiting.cancelled():
        waiting.exception()


class Deleter(Consumer):
    """Receive-and-delete."""

    deletes = True

    async def act(self) -> None:
        if self.tap is None or self.tap.is_gone:
            self.attach()
        elif self.chance.random() < 0.9:
            self.grant()
        else:
            self.hang_up()

    def kept(self, deliveries: list[Delivery]) -> list[Delivery]:
        return (
            deliveries[: self.chance.randint(0, len(deliveries))]
            if self.chance.random() < 0.1
            else deliveries
        )
