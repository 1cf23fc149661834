"""Service Bus sessions (X-1…X-18).

Theory of operation. A session exists in the store as long as it has messages or a state; here lies only what
receivers hold: a `MessageSession` is one receiver's claim on one session. It has a lane of its own, so one
long session never hides another, and its lock is the lock of all its messages (X-13).

"Next available" is a look-up: the store lists sessions by their oldest active message and we skip those held.
Whoever finds none waits in line; the line is matched again, by one coroutine, when messages are sent or a
session is freed. Looking suspends, so a session found is checked once more, and taken, in one step.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.intake import namespace_fault, quota_fault
from busway.broker.fragment.journal import SESSION_ACCEPT, SESSION_END, OperationRow
from busway.broker.fragment.lane import Lane
from busway.broker.fragment.locks import Receiver, SessionLock
from busway.broker.fragment.message_states import MessageInput
from busway.message.message import Message
from busway.model.errors import (
    ArgumentOutOfRange,
    BadArgument,
    BrokerError,
    InvalidOperation,
    MessageTooLarge,
    OperationTimedOut,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
)
from busway.store.contract import StoreError
from busway.timers import Timer

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_log = logging.getLogger(__name__)

_LOOK_UP_SESSIONS_MAX: Final = 256
_LOOK_UP_BYTES_MAX: Final = 1024 * 1024
_LIST_SESSIONS_MAX: Final = 1_000


class MessageSession(SessionLock):
    """One receiver's claim on one session (X-4)."""

    __slots__ = ("_sessions", "is_open", "lane", "receiver", "state_bytes", "timer")

    def __init__(self, sessions: MessageSessions, session_id: str, receiver: Receiver) -> None:
        super().__init__(session_id)
        self._sessions = sessions
        self.receiver = receiver
        self.lane: Lane = sessions.new_lane(self)
        self.timer: Timer | None = None
        self.is_open = True
        #: Size of its state in the store; None until it was looked at.
        self.state_bytes: int | None = None

    def give_back(self, number: int) -> None:
        self.lane.window.give_number_back(number)

    def serve(self) -> None:
        self.lane.serve()

    def close(self) -> None:
        """Frees the lock at once; unsettled messages return without a count (X-11). Idempotent."""
        self._sessions.end(self, MessageInput.RELEASED)

    def lock_ended(self) -> None:
        """X-10: its time is over, and the receiver loses it."""
        self._sessions.lock_ended(self)


class _WaitingAccept:
    """A receiver in line for the next available session."""

    __slots__ = ("accepted", "receiver", "timer")

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.accepted: asyncio.Future[MessageSession] = asyncio.get_running_loop().create_future()
        self.timer: Timer | None = None

    def time_out(self) -> None:
        self.fail(OperationTimedOut("No session became available within the allotted time."))

    def fail(self, error: BrokerError) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(error)


class MessageSessions:
    """The sessions of one fragment that are held, and those who wait for one."""

    __slots__ = ("_fragment", "_held", "_is_matching", "_match_again", "_state_room", "_waiting")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._held: dict[str, MessageSession] = {}
        #: In order of arrival.
        self._waiting: dict[_WaitingAccept, None] = {}
        self._is_matching = False
        self._match_again = False
        self._state_room = SessionStateRoom(fragment)

    def new_lane(self, session: MessageSession) -> Lane:
        return Lane(self._fragment, session)

    def waiting_count(self) -> int:
        return len(self._waiting)

    # -- accepting

    async def accept(self, receiver: Receiver, session_id: str | None, timeout_s: float) -> MessageSession:
        """A named session, or with None the next available one."""
        if not self._fragment.settings.requires_session:
            raise InvalidOperation(
                "A sessionful message receiver cannot be created on an entity that does not require sessions."
            )
        if session_id is None:
            return await self._accept_next(receiver, timeout_s)
        limit = self._fragment.runtime.limits.key_characters_max
        if len(session_id) > limit:
            raise BadArgument(f"SessionId is {len(session_id)} characters long; at most {limit} are allowed.")
        if self.is_held(session_id):
            raise SessionCannotBeLocked(
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
            )
        self._fragment.check_lease()
        return self._hold(session_id, receiver)

    async def _accept_next(self, receiver: Receiver, timeout_s: float) -> MessageSession:
        runtime = self._fragment.runtime
        waiting = _WaitingAccept(receiver)
        waiting.timer = runtime.timers.at(runtime.clock.monotonic() + max(0.0, timeout_s), waiting.time_out)
        self._waiting[waiting] = None
        self._match()
        try:
            return await waiting.accepted
        except asyncio.CancelledError:
            if waiting.accepted.done() and not waiting.accepted.cancelled():
                _close_unless_failed(waiting.accepted)
            raise
        finally:
            self._waiting.pop(waiting, None)
            runtime.timers.cancel(waiting.timer)

    def _hold(self, session_id: str, receiver: Receiver) -> MessageSession:
        session = MessageSession(self, session_id, receiver)
        self._held[session_id] = session
        self._extend(session)
        self._tell(SESSION_ACCEPT, session_id)
        self._fragment.lanes.stand(receiver, session.lane)
        return session

    def resume(self) -> None:
        """The store's lease was over, and is renewed."""
        self._match()

    def _match(self) -> None:
        """Has the line looked at, once more if that is under way."""
        if not self._waiting:
            return
        if self._is_matching:
            self._match_again = True
        else:
            self._is_matching = True
            self._fragment.runtime.spawn(self._match_line())

    async def _match_line(self) -> None:
        try:
            self._match_again = True
            while self._match_again and self._waiting:
                self._match_again = False
                await self._match_once()
        except StoreError as error:
            _log.warning("Cannot look for sessions of %s: %s", self._fragment.settings.path, error)
            for waiting in list(self._waiting):
                waiting.fail(ServerBusy("The sessions cannot be looked at just now. Please try again."))
        finally:
            self._is_matching = False

    async def _match_once(self) -> None:
        """Goes along the sessions by their oldest message until the line is empty or they are."""
        fragment = self._fragment
        after = 0
        while self._waiting and fragment.is_usable():
            limit = min(len(self._held) + len(self._waiting), _LOOK_UP_SESSIONS_MAX)
            found = await fragment.store.next_sessions(fragment.key, after, limit)
            for session_id, first_number in found:
                after = max(after, first_number)
                if await self._can_be_had(session_id, first_number) and not self.is_held(session_id):
                    self._give_to_first(session_id)
            if len(found) < limit:
                return

    async def _can_be_had(self, session_id: str, first_number: int) -> bool:
        """Whether a session that nobody holds has something to give, though its first messages be held back."""
        fragment = self._fragment
        horizon = fragment.horizon
        if self.is_held(session_id) or not horizon.holds_back(first_number):
            return not self.is_held(session_id) and not horizon.hides(first_number)
        after = max(first_number, horizon.held_back_up_to)
        while True:
            page = await fragment.store.session_messages(
                fragment.key, session_id, after, _LOOK_UP_SESSIONS_MAX, _LOOK_UP_BYTES_MAX
            )
            if any(not horizon.hides(message.sequence_number) for message in page.messages):
                return True
            if not page.more or not fragment.is_usable():
                return False
            after = max([message.sequence_number for message in page.messages] + page.damaged)

    def _give_to_first(self, session_id: str) -> None:
        if self._fragment.is_suspended():
            return
        for waiting in list(self._waiting):
            del self._waiting[waiting]
            if not waiting.accepted.done():
                waiting.accepted.set_result(self._hold(session_id, waiting.receiver))
                return

    # -- the lock

    def is_held(self, session_id: str | None) -> bool:
        """Held by somebody whose lock is alive. One whose time is over is ended on the way."""
        session = None if session_id is None else self._held.get(session_id)
        if session is None:
            return False
        if session.deadline > self._fragment.runtime.clock.monotonic():
            return True
        self.lock_ended(session)
        return False

    def held(self, session_id: str) -> MessageSession:
        """Raises SessionLockLost."""
        if not self.is_held(session_id):
            raise SessionLockLost
        return self._held[session_id]

    def renew(self, session_id: str) -> int:
        """X-9: one whole duration from now on."""
        session = self.held(session_id)
        self._fragment.check_lease()
        self._extend(session)
        return session.locked_until_ms

    def _extend(self, session: MessageSession) -> None:
        fragment = self._fragment
        runtime = fragment.runtime
        duration_ms = fragment.settings.lock_duration_ms
        session.deadline = runtime.clock.monotonic() + duration_ms / 1000
        session.locked_until_ms = runtime.clock.wall_ms() + duration_ms
        runtime.timers.cancel(session.timer)
        session.timer = runtime.timers.at(session.deadline, session.lock_ended)

    def lock_ended(self, session: MessageSession) -> None:
        """X-10: the receiver loses the session; messages that were delivered count one failure more."""
        if session.is_open:
            self.end(session, MessageInput.LOCK_ENDED)
            session.receiver.evict(SessionLockLost())

    def end(self, session: MessageSession, happened: MessageInput) -> None:
        if not session.is_open:
            return
        session.is_open = False
        fragment = self._fragment
        fragment.runtime.timers.cancel(session.timer)
        if self._held.get(session.session_id) is session:
            del self._held[session.session_id]
        fragment.lanes.leave(session.receiver)
        session.lane.window.close()
        fragment.settling.session_ended(session, happened)
        self._tell(SESSION_END, session.session_id)
        session.lane.session = None  # they would hold one another, and the receiver
        self._match()

    def _tell(self, operation: int, session_id: str) -> None:
        fragment = self._fragment
        journal = fragment.runtime.journal
        if journal is not None:
            row = OperationRow(session_id=session_id)
            journal.rows(operation, fragment.settings.path, fragment.index, [row])

    def close_all(self, error: BrokerError) -> None:
        """The entity goes: receivers are evicted by the caller, waiting accepts fail here."""
        for session in list(self._held.values()):
            self.end(session, MessageInput.RELEASED)
        for waiting in list(self._waiting):
            waiting.fail(error)
        self._waiting.clear()

    # -- messages

    def sent(self, messages: list[Message]) -> None:
        """A run is durable: it goes to the lanes of sessions that are held."""
        by_session: dict[str, list[Message]] = {}
        for message in messages:
            by_session.setdefault(message.session_id or "", []).append(message)
        for session_id, run in by_session.items():
            session = self._held.get(session_id)
            if session is not None:
                session.lane.committed(run, sum(message.size() for message in run))
        self._match()

    def arrived(self, entries: list[tuple[int, str | None]]) -> None:
        for number, session_id in entries:
            session = self._held.get(session_id or "")
            if session is not None:
                session.lane.window.arrived(number)
                session.lane.serve()
        self._match()

    def read_again(self) -> None:
        """Rows may be shown that were hidden, or are no longer to be shown."""
        for session in list(self._held.values()):
            session.lane.read_again()
        self._match()

    def start_over(self) -> None:
        """M-37: the fragment is empty and its numbers begin anew."""
        for session in self._held.values():
            session.lane.start_over()

    def withdraw(self, messages: list[Message]) -> None:
        """Rows leave by other ways than delivery."""
        by_session: dict[str, set[int]] = {}
        for message in messages:
            by_session.setdefault(message.session_id or "", set()).add(message.sequence_number)
        for session_id, numbers in by_session.items():
            session = self._held.get(session_id)
            if session is not None:
                session.lane.window.discard(numbers)

    # -- state

    async def state(self, session_id: str) -> bytes | None:
        """X-15; needs the lock."""
        self.held(session_id)
        row = await self._fragment.store.session(self._fragment.key, session_id)
        self.held(session_id)
        return None if row is None else row.state or None

    async def seen_state(self, session_id: str) -> bytes | None:
        """For whoever looks and holds nothing: as it was a moment ago."""
        row = await self._fragment.store.session(self._fragment.key, session_id)
        return None if row is None else row.state or None

    async def set_state(self, session_id: str, state: bytes | None) -> None:
        """X-15: counts in the entity's size; None clears it, and so does a state without a byte."""
        fragment = self._fragment
        state = state or None
        size = 0 if state is None else len(state)
        if size > fragment.settings.message_bytes_max:
            raise MessageTooLarge(
                f"A session state may have at most {fragment.settings.message_bytes_max} bytes, not {size}."
            )
        session = self.held(session_id)
        if session.state_bytes is None:
            row = await fragment.store.session(fragment.key, session_id)
            if session.state_bytes is None:
                session.state_bytes = 0 if row is None or row.state is None else len(row.state)
        if state is not None and session.state_bytes == 0:
            await self._state_room.take()
        if self.held(session_id) is not session:
            raise SessionLockLost
        self._check_state_growth(size - session.state_bytes)
        write = fragment.write()
        write.set_session_state(session_id, state, size - session.state_bytes)
        session.state_bytes = size
        write.join()
        await fragment.durable()

    def _check_state_growth(self, growth_bytes: int) -> None:
        """A state that grows needs room in its entity (L-3) and in the namespace (L-4)."""
        fragment = self._fragment
        used = fragment.intake.stored_bytes()
        if growth_bytes <= 0:
            return
        if used + growth_bytes > fragment.settings.size_bytes_max:
            raise quota_fault(fragment.settings, used)
        fault = namespace_fault(fragment.runtime.namespace_size, growth_bytes)
        if fault is not None:
            raise fault

    async def ids(self, state_set_after_ms: int | None, skip: int, top: int, from_id: str = "") -> list[str]:
        """X-17. `from_id`: this one and what comes behind it."""
        self._fragment.check_receivable()
        if not self._fragment.settings.requires_session:
            raise InvalidOperation("The entity does not require sessions: it has none to list.")
        if skip < 0 or top < 0:
            raise ArgumentOutOfRange("skip and top must not be negative.")
        return await self._fragment.store.sessions(
            self._fragment.key, state_set_after_ms, skip, min(top, _LIST_SESSIONS_MAX), from_id
        )


class SessionStateRoom:
    """How many more sessions of a fragment may get a state (L-14).

    Nobody counts states. The store can tell whether there are more than n of them, so room is granted in shares: if
    fewer than the limit less a share exist, the whole share may be added before the next look. Shares shrink as the
    limit comes near; at the limit every new state looks."""

    __slots__ = ("_fragment", "_granted")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._granted = 0

    async def take(self) -> None:
        """One session more gets a state. Raises QuotaExceeded."""
        limit = self._fragment.runtime.limits.session_states_max
        share = max(limit // 2, 1)
        while self._granted < 1:
            if share < 1:
                raise QuotaExceeded(
                    f"'{self._fragment.settings.path}' keeps the states of {limit} sessions, which is the limit."
                    " Clear states that are no longer needed."
                )
            if not await self._has_more_than(limit - share) and self._granted < 1:
                self._granted = share
            share //= 2
        self._granted -= 1

    async def _has_more_than(self, count: int) -> bool:
        """More states than this many."""
        store, key = self._fragment.store, self._fragment.key
        return bool(await store.sessions(key, 0, count, 1))


def _close_unless_failed(accepted: asyncio.Future[MessageSession]) -> None:
    """The receiver is gone before it could take what it was given."""
    if accepted.exception() is None:
        accepted.result().close()
