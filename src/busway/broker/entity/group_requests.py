"""Requests that several fragments of a partitioned entity answer together; settlements that somebody awaits.

The next session. Whoever waits for the next available session stands in line at all fragments at once (X-20).
Whoever is given a session first wins; the places in the other lines are given up, and a session that another
fragment hands over at the same moment is freed again. A fragment that comes into service meanwhile is asked too.

The list of sessions in order is a merge of what the fragments list, page by page (X-17). Each fragment lists its
own in order and goes on behind the last one that it gave, so a request costs what it skips and what it asks for,
however the sessions are spread, and holds a page of each fragment at a time.

Cancellation. Scheduled messages of several fragments are cancelled together or not at all (S-33, S-38). What was
found is kept from activation and from others who would cancel it (`Intake.withheld`) until all of it is found;
then all of it joins in one step, in each store's batch. There are as many commits as stores. When one fails, what
the others have deleted is scheduled again under its number, so the request may be repeated. Only the part of a
store whose outcome is unknown may be gone; that is what the client is told.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Sequence
from typing import Final

from busway.broker.entity.fragment_choice import Members
from busway.broker.entity.group_shares import ReceiverShare, ReceiverShares
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.journal import CANCEL
from busway.broker.fragment.locks import Receiver
from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.read_requests import CANCELLED, read
from busway.broker.fragment.runtime import broker_error
from busway.clock import Clock
from busway.event_loop import Steps
from busway.message.message import Message
from busway.model.errors import BrokerError, OperationTimedOut, ServerBusy, StoreOutcomeUnknown
from busway.model.settlement import Settlement
from busway.store.contract import StoreError

_Accepting = asyncio.Task[MessageSession]


class NextSession:
    """One receiver's wish, until it is granted or its time is over."""

    def __init__(self, shares: ReceiverShares, receiver: Receiver, deadline: float) -> None:
        self._shares = shares
        self._receiver = receiver
        #: Monotonic.
        self._deadline = deadline
        self._lines: dict[_Accepting, ReceiverShare] = {}
        #: Done when a line was added, or has come to something.
        self._news = asyncio.Event()

    def ask(self, member: Fragment) -> None:
        """Joins the line of a fragment."""
        share = ReceiverShare(self._shares, member, self._receiver, holds_session=True)
        left_s = self._deadline - member.runtime.clock.monotonic()
        named = Steps(
            member.accept_session(share, None, left_s), lambda: "a wait for the next session of a fragment"
        )
        line = asyncio.get_running_loop().create_task(named)
        self._lines[line] = share
        line.add_done_callback(self._tell)
        self._news.set()

    def _tell(self, _line: _Accepting) -> None:
        self._news.set()

    async def granted(self) -> tuple[MessageSession, ReceiverShare]:
        """Raises OperationTimedOut, or why no fragment is left to wait for."""
        error: BrokerError = OperationTimedOut("No session became available within the allotted time.")
        try:
            while self._lines:
                self._news.clear()
                for line in [line for line in self._lines if line.done()]:
                    share = self._lines.pop(line)
                    problem = line.exception()
                    if problem is None:
                        return line.result(), share
                    if not isinstance(problem, BrokerError):
                        raise problem
                    error = problem
                if self._lines:
                    await self._news.wait()
            raise error
        finally:
            await self._leave()

    async def _leave(self) -> None:
        lines, self._lines = list(self._lines), {}
        for line in lines:
            line.cancel()
        for ended in await asyncio.gather(*lines, return_exceptions=True):
            if isinstance(ended, MessageSession):
                ended.close()


class SessionLines:
    """Receivers in line for the next available session."""

    __slots__ = ("_clock", "_members", "_shares", "_wishes")

    def __init__(self, members: Members, shares: ReceiverShares, clock: Clock) -> None:
        self._members = members
        self._shares = shares
        self._clock = clock
        self._wishes: dict[NextSession, None] = {}

    async def next_session(
        self, receiver: Receiver, timeout_s: float
    ) -> tuple[MessageSession, ReceiverShare]:
        """Raises what `NextSession.granted` raises."""
        wish = NextSession(self._shares, receiver, self._clock.monotonic() + timeout_s)
        members = self._members.usable()
        start = self._shares.next_turn(len(members))
        for member in members[start:] + members[:start]:
            wish.ask(member)
        self._wishes[wish] = None
        try:
            return await wish.granted()
        finally:
            self._wishes.pop(wish, None)

    def add_member(self, member: Fragment) -> None:
        """It came into service: whoever waits, waits there too."""
        for wish in list(self._wishes):
            wish.ask(member)


#: Sessions that are listed at once by one fragment.
_PAGE_MAX: Final = 1_000


class _Walk:
    """The way through one fragment's sessions."""

    __slots__ = ("_fragment", "_from_id", "_page", "_state_set_after_ms")

    def __init__(self, fragment: Fragment, state_set_after_ms: int | None) -> None:
        self._fragment = fragment
        self._state_set_after_ms = state_set_after_ms
        self._from_id = ""
        #: The last one is the next.
        self._page: list[str] = []

    async def next_id(self, count_max: int) -> str | None:
        """None at the end. `count_max`: no more than these will be asked for. Raises ServerBusy."""
        if not self._page:
            fragment = self._fragment
            limit = min(count_max, _PAGE_MAX)
            ids = fragment.sessions.ids(self._state_set_after_ms, 0, limit, self._from_id)
            self._page = (await read(fragment.settings.path, ids))[::-1]
            if not self._page:
                return None
            self._from_id = self._page[0] + "\0"  # the first text behind it
        return self._page.pop()


async def listed_sessions(
    fragments: Sequence[Fragment], state_set_after_ms: int | None, skip: int, top: int
) -> list[str]:
    """Raises ServerBusy."""
    left = skip + top
    walks = [_Walk(fragment, state_set_after_ms) for fragment in fragments]
    heads: list[tuple[str, int]] = []
    for place, walk in enumerate(walks):
        name = await walk.next_id(left)
        if name is not None:
            heads.append((name, place))
    heapq.heapify(heads)
    found: list[str] = []
    while heads and left > 0:
        name, place = heads[0]
        left -= 1
        if left < top:
            found.append(name)
        following = await walks[place].next_id(left)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following, place))
    return found


_log = logging.getLogger(__name__)


class _Part:
    """The messages of one fragment."""

    __slots__ = ("_cancellation", "error", "fragment", "messages")

    def __init__(self, cancellation: Cancellation, fragment: Fragment, messages: list[Message]) -> None:
        self._cancellation = cancellation
        self.fragment = fragment
        self.messages = messages
        self.error: BrokerError | None = None

    def numbers(self) -> list[int]:
        return [message.sequence_number for message in self.messages]

    def join(self) -> None:
        write = self.fragment.write()
        write.remove(CANCELLED, self.messages, is_noted=False)  # as long as another part may fail
        write.join()
        write.batch.callbacks.append(self.committed)

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self.error = broker_error(error)
        self._cancellation.part_over()

    def schedule_again(self) -> None:
        fragment = self.fragment
        try:
            write = fragment.write()
        except ServerBusy:
            _log.warning(
                "%d scheduled messages of %s are cancelled although the request failed: their store failed too",
                len(self.messages),
                fragment.settings.path,
            )
            return
        fragment.intake.join_reserved(write, self.messages)


class Cancellation:
    """One request. It goes on to its end although whoever asked may have gone."""

    __slots__ = ("_ended", "_left", "_parts")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._left = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def find(self, fragment: Fragment, numbers: list[int]) -> None:
        """Raises MessageNotFound when one is missing, ServerBusy."""
        part = _Part(self, fragment, await fragment.reads.cancellable(numbers))
        fragment.intake.withheld.update(part.numbers())
        self._parts.append(part)

    def release(self) -> None:
        for part in self._parts:
            part.fragment.intake.withheld.difference_update(part.numbers())

    async def commit(self) -> None:
        """Raises ServerBusy when nothing was cancelled, StoreOutcomeUnknown."""
        for part in self._parts:
            part.fragment.batch()  # raises before anything has joined
        self._left = len(self._parts)
        for part in self._parts:
            part.join()
        await self._ended

    def part_over(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        errors = [part.error for part in self._parts if part.error is not None]
        for part in self._parts:
            if part.error is not None:
                continue
            if errors:
                part.schedule_again()
            else:
                part.fragment.tell(CANCEL, part.messages)
        if self._ended.done():
            return
        if errors:
            unknown = [error for error in errors if isinstance(error, StoreOutcomeUnknown)]
            self._ended.set_exception((unknown or errors)[0])
        else:
            self._ended.set_result(None)


async def settle_durably(
    outlet: Outlet, tokens: list[bytes], settlement: Settlement, session_id: str | None
) -> list[tuple[int, BrokerError]]:
    """What was refused, by its place; everything else is durable."""
    ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not ended.done():  # whoever asked may be gone meanwhile
            ended.set_result(refused)

    outlet.settle(tokens, settlement, report, session_id)
    return await ended
