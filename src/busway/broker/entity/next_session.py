"""Waiting for the next available session of a partitioned entity: in line at all its fragments at once (X-20).

Whoever is given a session first wins; the places in the other lines are given up, and a session that another fragment
hands over at the same moment is freed again. A fragment that comes into service meanwhile is asked too.
"""

from __future__ import annotations

import asyncio

from busway.broker.entity.receiver_share import ReceiverShare, ShareOwner
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.receiver import Receiver
from busway.loop_entries import Steps
from busway.model.errors import BrokerError, OperationTimedOut

_Accepting = asyncio.Task[MessageSession]


class NextSession:
    """One receiver's wish, until it is granted or its time is over."""

    def __init__(self, owner: ShareOwner, receiver: Receiver, deadline: float) -> None:
        self._owner = owner
        self._receiver = receiver
        #: Monotonic.
        self._deadline = deadline
        self._lines: dict[_Accepting, ReceiverShare] = {}
        #: Done when a line was added, or has come to something.
        self._news = asyncio.Event()

    def ask(self, member: Fragment) -> None:
        """Joins the line of a fragment."""
        share = ReceiverShare(self._owner, member, self._receiver, holds_session=True)
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
