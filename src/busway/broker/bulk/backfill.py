"""History for a subscription: copies of messages that were published before its rules began, each once.

Theory of operation. Whoever sends history gives every copy an id that says which message and which rule it is of. The
ids are kept with the fragment's history of ids, in the commit that stores the copies; a copy whose id is known is not
stored again. So history can be sent over and over, in any pieces, by senders that were killed half-way, and arrives
once. A subscription detects no duplicates of its own, so nothing else uses that history, and nothing forgets it while
the subscription exists.

Requests for one fragment wait for one another: between the look into the history and the commit no other may join.
Copies enter the subscription as those of a publish do: at the end, with numbers and a time of this moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.intake import fault_of, namespace_fault, quota_fault
from busway.broker.fragment.message_states import SESSION_ID_IS_NULL, rule_failed
from busway.broker.fragment.runtime import FragmentId
from busway.broker.fragment.sent_run import SentRun
from busway.message.message import Message
from busway.model.descriptions import SubscriptionDescription
from busway.model.errors import (
    BadArgument,
    BrokerError,
    InvalidOperation,
    MessageNotFound,
    ServerBusy,
)
from busway.store.contract import FragmentIndex, StoreError

#: Of one copy.
ID_CHARACTERS_MAX: Final = 512
_ID_PREFIX: Final = "backfill/"


@dataclass(slots=True)
class HistoricCopy:
    """`reason` and `description`: a rule failed; the copy is for the dead-letter queue (T-60)."""

    id: str
    message: Message
    reason: str | None = None
    description: str = ""


@dataclass(frozen=True)
class Stored:
    """How many copies are new, and how many were there before."""

    new: int
    known: int


class Backfill:
    def __init__(self) -> None:
        #: One is there while somebody has or awaits it.
        self._turns: dict[FragmentId, _Turn] = {}

    async def store(self, queue: Queue, fragment_index: int, copies: Sequence[HistoricCopy]) -> Stored:
        """All that are new, durably, or none. Raises why not."""
        fragment = _fragment(queue, FragmentIndex(fragment_index))
        _check(fragment, copies)
        turn = self._turns.setdefault(fragment.id, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                return await _store(fragment, copies)
        finally:
            turn.wanted -= 1
            if turn.wanted == 0:
                del self._turns[fragment.id]


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


def _fragment(queue: Queue, index: FragmentIndex) -> Fragment:
    if not isinstance(queue.description, SubscriptionDescription):
        raise InvalidOperation(f"'{queue.path}' is no subscription: send to it instead.")
    if not queue.settings.is_partitioned and index:
        raise BadArgument(f"fragment: '{queue.path}' has one fragment, 0.")
    try:
        return queue.inlet.member(index)
    except MessageNotFound:
        raise BadArgument(f"fragment: '{queue.path}' has no fragment {index}.") from None


def _check(fragment: Fragment, copies: Sequence[HistoricCopy]) -> None:
    bytes_max = fragment.settings.message_bytes_max
    for copy in copies:
        if not copy.id or len(copy.id) > ID_CHARACTERS_MAX:
            raise BadArgument(f"The id of a copy must have 1 to {ID_CHARACTERS_MAX} characters.")
        size = copy.message.size()
        if size > bytes_max:
            fault = fault_of(copy.message, size, fragment.settings, fragment.runtime.limits)
            if fault is not None:
                raise fault


async def _store(fragment: Fragment, copies: Sequence[HistoricCopy]) -> Stored:
    ids = {_ID_PREFIX + copy.id: copy for copy in copies}
    try:
        known = await fragment.store.known_ids(fragment.key, ids, 0)
    except StoreError as error:
        raise ServerBusy(f"'{fragment.settings.path}' cannot be read just now. Please try again.") from error
    fresh = {id_: copy for id_, copy in ids.items() if id_ not in known} if known else ids
    if fresh:
        await _join(fragment, fresh)
    return Stored(len(fresh), len(copies) - len(fresh))


async def _join(fragment: Fragment, fresh: dict[str, HistoricCopy]) -> None:
    """One step from the checks to the open batch; then its commit."""
    live, dead = _parted(fragment, fresh)
    size_bytes = sum(message.size() for message in live)
    fault = _fault(fragment, len(fresh), size_bytes)
    if fault is not None:
        raise fault
    batch = fragment.batch()
    ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()
    if live:
        run = SentRun(fragment, live, size_bytes, len(live), [], lambda refused: _set(ended, refused), True)
        fragment.intake.join(run)
        if ended.done():  # it did not join
            raise ended.result()[0][1]
    write = fragment.write(batch)
    if dead:
        write.put_dead_letters(dead)
    write.remember_ids(fresh)
    write.join()
    if not live:
        await fragment.durable()
        return
    refused = await ended
    if refused:
        raise refused[0][1]


def _parted(
    fragment: Fragment, fresh: dict[str, HistoricCopy]
) -> tuple[list[Message], list[tuple[Message, dict[str, object]]]]:
    """As a publish parts them: what needs a session and has none, and where rules failed, are dead letters."""
    live: list[Message] = []
    dead: list[tuple[Message, dict[str, object]]] = []
    settings = fragment.settings
    now_ms = fragment.runtime.clock.wall_ms()
    for copy in fresh.values():
        message = copy.message
        if message.scheduled_at_ms > now_ms:  # it is published already: that time holds nothing up any more
            message.scheduled_at_ms = now_ms
        if copy.reason is not None:
            if settings.dead_letters_rule_failures:
                dead.append((message, rule_failed(copy.reason, copy.description)))
        elif settings.requires_session and message.session_id is None:
            dead.append((message, SESSION_ID_IS_NULL))
        else:
            live.append(message)
    return live, dead


def _fault(fragment: Fragment, count: int, size_bytes: int) -> BrokerError | None:
    intake = fragment.intake
    used = intake.used_bytes()
    fault = intake.store_fault()
    if fault is None and used + size_bytes > fragment.settings.size_bytes_max:
        return quota_fault(fragment.settings, used)
    return fault or namespace_fault(fragment.runtime.namespace_size, size_bytes) or intake.number_fault(count)


def _set(
    ended: asyncio.Future[list[tuple[int, BrokerError]]], refused: list[tuple[int, BrokerError]]
) -> None:
    if not ended.done():
        ended.set_result(refused)
