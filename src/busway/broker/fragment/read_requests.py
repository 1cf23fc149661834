"""Requests that begin with a read: peek, receive by number, batch delete, cancellation.

A read suspends, so each of them acts on what it read in one step afterwards and looks at locks, sessions and
the horizon of durable rows only then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

from busway.broker.fragment.journal import COMPLETE, RECEIVE
from busway.broker.fragment.locks import NO_DEADLINE, Delivery
from busway.broker.fragment.message_states import MessageInput, MessageState, Step, step_of
from busway.broker.fragment.property_changes import stamp_of
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.model.errors import ArgumentOutOfRange, MessageNotFound, ServerBusy, SessionLockLost
from busway.store.contract import Page, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.message_sessions import MessageSession

_DELETE_PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
_CONSUMED: Final = step_of(MessageState.DEFERRED, MessageInput.CONSUMED)
_DELETED: Final = step_of(MessageState.ACTIVE, MessageInput.DELETED)
CANCELLED: Final = step_of(MessageState.SCHEDULED, MessageInput.CANCELLED)
_DELETED_DEFERRED: Final = step_of(MessageState.DEFERRED, MessageInput.DELETED)
#: Where a message may lie, and what its deletion is there.
_DELETIONS: Final = (
    (PLACE_ACTIVE, _DELETED),
    (PLACE_DEFERRED, _DELETED_DEFERRED),
    (PLACE_SCHEDULED, CANCELLED),
)
T = TypeVar("T")


async def read(path: str, request: Awaitable[T]) -> T:
    """Whatever a failed store says: the client is told to come again."""
    try:
        return await request
    except StoreError:
        raise ServerBusy.without(f"The store of '{path}'") from None


def check_fits(numbers: Iterable[int], sizes: Mapping[int, int], bytes_max: int) -> None:
    """Raises ArgumentOutOfRange when the messages are too large for one answer; one alone never is."""
    wanted = list(dict.fromkeys(numbers))
    filled = list(accumulate(sizes.get(number, 0) for number in wanted))
    if len(wanted) > 1 and filled[-1] > bytes_max:
        fitting = max(bisect_right(filled, bytes_max), 1)
        raise ArgumentOutOfRange(
            f"The messages asked for have {filled[-1]} bytes, and one answer may have {bytes_max}: the first"
            f" {fitting} of the {len(wanted)} numbers fit. Please ask for fewer at a time."
        )


class ReadRequests:
    """The rare requests to one fragment."""

    __slots__ = ("_fragment",)

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment

    async def peek(self, from_number: int, count: int, bytes_max: int, session_id: str | None) -> Page:
        """R-60…R-66: copies of all states by number; may be fewer than asked for. Raises ServerBusy."""
        fragment = self._fragment
        fragment.check_readable()
        fragment.touch(fragment.runtime.clock.wall_ms())  # E-111
        if count < 1:
            raise ArgumentOutOfRange(f"The number of messages to peek must be at least 1, not {count}.")
        limits = fragment.runtime.limits
        found = fragment.store.peek(
            fragment.key,
            max(from_number, 0),
            min(count, limits.peek_messages_max),
            bytes_max,
            session_id,
        )
        page = await read(fragment.settings.path, found)
        horizon = fragment.horizon
        shown = [message for message in page.messages if not horizon.hides(message.sequence_number)]
        return Page(shown, page.more, page.damaged)

    # -- deferred messages

    async def receive_by_number(
        self, numbers: list[int], deletes: bool, session_id: str | None
    ) -> list[Delivery]:
        """R-51, R-52: deferred messages only, all of them or none, and no more than one answer may hold."""
        fragment = self._fragment
        fragment.check_receivable()
        wanted = sorted(set(numbers))
        if not wanted:
            return []
        if len(wanted) > 1:  # one can always be had
            check_fits(numbers, await self.deferred_sizes(numbers), fragment.runtime.limits.fetch_bytes_max)
        page = await fragment.store.by_number(fragment.key, PLACE_DEFERRED, wanted)
        session = self._session_for(session_id)
        found = self._receivable(page, len(wanted), session_id)
        fragment.touch(fragment.runtime.clock.wall_ms())
        for message in found:
            message.state = PLACE_DEFERRED
        if deletes:
            await self._remove(_CONSUMED, found)
            deliveries = [Delivery(message, b"", 0) for message in found]
        else:
            deliveries = self._lock(found, session)
        fragment.flow.handed_out(len(found), sum(message.size() for message in found))
        fragment.tell(RECEIVE, found)
        if deletes:
            fragment.tell(COMPLETE, found)
        return deliveries

    async def deferred_sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        """In bytes; of those that are there. Raises StoreError."""
        fragment = self._fragment
        return await fragment.store.sizes(fragment.key, PLACE_DEFERRED, sorted(set(numbers)))

    def _session_for(self, session_id: str | None) -> MessageSession | None:
        """R-54: on a session entity the session's lock is needed."""
        fragment = self._fragment
        fragment.check_receivable()
        if not fragment.settings.requires_session:
            return None
        if session_id is None:
            raise SessionLockLost("Messages of a session are received with the session's id and its lock.")
        return fragment.sessions.held(session_id)

    def _receivable(self, page: Page, wanted: int, session_id: str | None) -> list[Message]:
        """Raises MessageNotFound when one is missing, locked, expired or of another session."""
        fragment = self._fragment
        now_ms = fragment.runtime.clock.wall_ms()
        found = [m for m in page.messages if m.sequence_number not in fragment.locks.deferred]
        if not fragment.settings.is_dead_letter:
            expired = [
                message
                for message in found
                if message.expires_at_ms <= now_ms and stamp_of(message.changes) is None
            ]
            if expired:
                self._expire(expired)
                raise MessageNotFound
        if fragment.settings.requires_session:
            found = [message for message in found if message.session_id == session_id]
        if len(found) < wanted or len(found) > fragment.locks.free():
            raise MessageNotFound
        return found

    def _expire(self, messages: list[Message]) -> None:
        """M-45: an expired deferred message leaves when somebody asks for it, unless a claim holds it."""
        write = self._fragment.write()
        write.expire(MessageState.DEFERRED, messages)
        write.join()

    def _lock(self, messages: list[Message], session: MessageSession | None) -> list[Delivery]:
        fragment = self._fragment
        fragment.check_lease()
        clock = fragment.runtime.clock
        if session is not None:
            return fragment.locks.lock_run(
                messages, PLACE_DEFERRED, session, NO_DEADLINE, session.locked_until_ms
            )
        duration_ms = fragment.settings.lock_duration_ms
        deadline = clock.monotonic() + duration_ms / 1000
        until_ms = clock.wall_ms() + duration_ms
        deliveries = fragment.locks.lock_run(messages, PLACE_DEFERRED, None, deadline, until_ms)
        fragment.settling.watch(deadline)
        return deliveries

    # -- deleting

    async def delete_messages(
        self,
        count: int,
        enqueued_before_ms: int,
        session_id: str | None,
        holds_session: Callable[[str], bool] | None,
    ) -> int:
        """R-80…R-84: active messages that nobody holds, oldest first."""
        fragment = self._fragment
        fragment.check_receivable()
        count_max = fragment.runtime.limits.batch_delete_messages_max
        if not 1 <= count <= count_max:
            raise ArgumentOutOfRange(
                f"The number of messages to delete must be between 1 and {count_max}, not {count}."
            )
        deleted = 0
        after = 0
        while deleted < count:
            page = await self._active_page(after, count - deleted, session_id)
            fragment.check_receivable()
            candidates = [m for m in page.messages if m.enqueued_at_ms < enqueued_before_ms]
            free = self._unheld(candidates, session_id, holds_session)
            if free:
                fragment.withdraw(free)
                self._join_removal(_DELETED, free)
                deleted += len(free)
            if not page.more or len(candidates) < len(page.messages):
                break
            after = max([m.sequence_number for m in page.messages] + page.damaged)
        if deleted:
            await fragment.durable()
        return deleted

    async def delete_by_number(self, numbers: list[int]) -> list[int]:
        """Those of these messages that nobody holds, in whatever state: active, deferred or scheduled. Returns the
        numbers of what is gone."""
        fragment = self._fragment
        fragment.check_receivable()
        wanted = sorted(set(numbers))
        if len(wanted) > fragment.runtime.limits.batch_delete_messages_max:
            raise ArgumentOutOfRange(
                f"At most {fragment.runtime.limits.batch_delete_messages_max} messages are deleted at a time."
            )
        deleted: list[int] = []
        for place, step in _DELETIONS:
            if len(deleted) == len(wanted):
                break
            page = await fragment.store.by_number(fragment.key, place, wanted)
            fragment.check_receivable()
            free = self._free_at(place, page.messages)
            if free:
                if place == PLACE_ACTIVE:
                    fragment.withdraw(free)
                self._join_removal(step, free)
                deleted += [message.sequence_number for message in free]
        if deleted:
            await fragment.durable()
        return deleted

    def _free_at(self, place: int, messages: list[Message]) -> list[Message]:
        """Of those read at a place the ones that may go: not locked, not claimed, not on their way."""
        fragment = self._fragment
        if place == PLACE_ACTIVE:
            return self._unheld(messages, None, None)
        if place == PLACE_DEFERRED:
            held = fragment.locks.deferred
            return [
                message
                for message in messages
                if message.sequence_number not in held
                and stamp_of(message.changes) is None
                and not fragment.horizon.hides(message.sequence_number)
            ]
        withheld = fragment.intake.withheld
        return [
            message
            for message in messages
            if message.sequence_number not in withheld and not fragment.horizon.hides(message.sequence_number)
        ]

    async def _active_page(self, after: int, count: int, session_id: str | None) -> Page:
        fragment = self._fragment
        if session_id is not None and fragment.settings.requires_session:
            return await fragment.store.session_messages(
                fragment.key, session_id, after, count, _DELETE_PAGE_BYTES_MAX
            )
        return await fragment.store.messages(fragment.key, PLACE_ACTIVE, after, count, _DELETE_PAGE_BYTES_MAX)

    def _unheld(
        self,
        messages: list[Message],
        session_id: str | None,
        holds_session: Callable[[str], bool] | None,
    ) -> list[Message]:
        """Not locked, durable, and not of a session that somebody else holds (X-13)."""
        fragment = self._fragment
        locked = fragment.locks.numbers()
        free = [
            message
            for message in messages
            if message.sequence_number not in locked and not fragment.horizon.hides(message.sequence_number)
        ]
        is_holder = session_id is not None and holds_session is not None and holds_session(session_id)
        if fragment.settings.requires_session and not is_holder:
            free = [message for message in free if not fragment.sessions.is_held(message.session_id)]
        return free

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        """S-33: one missing number fails the whole request."""
        if numbers:
            found = await self.cancellable(numbers)
            await self._remove(CANCELLED, found)

    async def cancellable(self, numbers: list[int]) -> list[Message]:
        """The scheduled messages with these numbers. Raises MessageNotFound when one is missing, ServerBusy."""
        fragment = self._fragment
        wanted = sorted(set(numbers))
        page = await read(
            fragment.settings.path, fragment.store.by_number(fragment.key, PLACE_SCHEDULED, wanted)
        )
        withheld = fragment.intake.withheld
        found = [
            m
            for m in page.messages
            if m.sequence_number not in withheld and not fragment.horizon.hides(m.sequence_number)
        ]
        missing = sorted(set(wanted) - {message.sequence_number for message in found})
        if missing:
            names = ", ".join(str(number) for number in missing)
            raise MessageNotFound(f"Messages not found. Missing sequence numbers: {names}")
        return found

    async def _remove(self, step: Step, messages: list[Message]) -> None:
        self._join_removal(step, messages)
        await self._fragment.durable()

    def _join_removal(self, step: Step, messages: list[Message]) -> None:
        write = self._fragment.write()
        write.remove(step, messages)
        write.join()
