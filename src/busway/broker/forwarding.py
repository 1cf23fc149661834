"""Automatic forwarding: what arrives in one fragment moves on to another entity (F-1…F-14, D-20, D-21).

Theory of operation. Each forwarding fragment, main or dead-letter, has one `Forwarder`. It is woken when something
may have arrived and then walks the fragment's rows in order, a run at a time: a run is appended to the
destination like any other send, with everything that means there (F-11), and deleted here. When both lie in one
store that is one commit; else see `transfers`. Runs follow one another, so order is kept (F-7).

A destination that refuses for good (full, disabled, gone) is tried again for a few seconds, then the message goes to
this entity's own dead-letter queue (F-12); in a dead-letter queue it waits instead (D-20). A store that is not
available is waited for, however long.

While rows are on their way, which takes more than one step only when the destination looks for duplicates or lies
in another store, `moving` keeps them from expiring here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.bare_message import changed_bare
from busway.broker.commit_runs import WrittenRun
from busway.broker.dead_letter import DeadLetterRun, hops_used_up, transfer_failed
from busway.broker.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.broker.message_subject import MessageSubject
from busway.broker.property_changes import DEAD_LETTER_REASON, read_changes
from busway.broker.transfers import Transfers
from busway.message import ACTIVE, Message
from busway.message_head import read_head
from busway.store.contract import PLACE_ACTIVE, CommitBatch, StoreError, TransferMark

if TYPE_CHECKING:
    from busway.broker.fragment import Fragment
    from busway.broker.queue import Queue
    from busway.broker.timers import Timer
    from busway.broker.topic import Topic

_log = logging.getLogger(__name__)

_RUN_MESSAGES_MAX: Final = 500
_RUN_BYTES_MAX: Final = 1024 * 1024
#: F-12: how long a refusing destination is tried again, and how often.
_PATIENCE_S: Final = 5.0
_RETRY_S: Final = 1.0
#: D-20: a dead-letter queue tries for ever, less and less often.
_RETRY_S_MAX: Final = 30.0
_HOPS_REASON: Final = "MaxTransferHopCountExceeded"
#: Refusals that may pass by themselves.
_PASSING: Final = (QuotaExceeded, EntityDisabled, EntityNotFound)


class Route:
    """Where a fragment's messages go. `target` raises EntityNotFound when it is gone, ServerBusy without its
    store. `left` is the entity whose dead-letter queue this is; empty for a main fragment (M-21)."""

    __slots__ = ("hops_max", "left", "target", "target_path", "transfers")

    def __init__(
        self,
        target_path: str,
        target: Callable[[], Queue | Topic],
        transfers: Transfers,
        hops_max: int,
        left: str = "",
    ) -> None:
        self.target_path = target_path
        self.target = target
        self.transfers = transfers
        self.hops_max = hops_max
        self.left = left


class Transfer:
    """One run on its way. Told by the destination's intake when it joins a batch, and when all is certain."""

    __slots__ = ("_marked", "_rows", "_source", "_target_store", "ended", "removed")

    def __init__(self, source: Fragment, rows: dict[int, Message]) -> None:
        self._source = source
        #: By the identity of the message that was sent: the row it came from.
        self._rows = rows
        self._target_store = ""
        #: Numbers deleted here in the same commit as they were written there.
        self.removed: set[int] = set()
        self._marked: dict[int, str] = {}
        self.ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def source_number(self, message: Message) -> int:
        """Of the row that the message came from."""
        return self._rows[id(message)].sequence_number

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        rows = [self._rows[id(message)] for message in messages]
        source = self._source
        if store_name == source.store.name:
            source.remove_rows(batch, rows)
            self.removed.update(row.sequence_number for row in rows)
            return
        for row in rows:
            number = row.sequence_number
            batch.transfer_marks.append(TransferMark(source.store.name, source.key, number))
            self._marked[number] = store_name

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        if not self.ended.done():
            self.ended.set_result(refused)

    def finish(self, rows: list[Message], transfers: Transfers) -> None:
        """The destination has them (or had them before): they are deleted here. Raises ServerBusy."""
        left = [row for row in rows if row.sequence_number not in self.removed]
        if not left:
            return
        source = self._source
        marked = {row.sequence_number: self._marked.get(row.sequence_number, "") for row in left}
        marked = {number: name for number, name in marked.items() if name}
        place = (source.store.name, source.key)
        try:
            batch = source.batch()
        except ServerBusy:
            transfers.remember(place, marked)
            raise
        source.remove_rows(batch, left)

        def removed(error: StoreError | None) -> None:
            if error is None:
                transfers.forget(place, marked)
            else:
                transfers.remember(place, marked)

        batch.callbacks.append(WrittenRun(source).committed)
        if marked:
            batch.callbacks.append(removed)


class Forwarder:
    """See the head of this file."""

    __slots__ = (
        "_fragment",
        "_is_walking",
        "_pause_s",
        "_refused_since",
        "_route",
        "_should_walk",
        "_stays_up_to",
        "_timer",
        "moving",
    )

    def __init__(self, fragment: Fragment, route: Route) -> None:
        self._fragment = fragment
        self._route = route
        #: Numbers of rows that are on their way.
        self.moving: set[int] = set()
        self._is_walking = False
        self._should_walk = False
        #: Up to this number everything stays here (D-21).
        self._stays_up_to = 0
        self._refused_since: float | None = None
        self._pause_s = _RETRY_S
        self._timer: Timer | None = None

    def wake(self) -> None:
        """Something may have arrived."""
        self._should_walk = True
        if not self._is_walking and self._fragment.is_usable():
            self._is_walking = True
            self._fragment.runtime.spawn(self._walk())

    def stop(self) -> None:
        self._fragment.runtime.timers.cancel(self._timer)
        self._timer = None

    async def _walk(self) -> None:
        try:
            while self._should_walk and self._fragment.is_usable():
                self._should_walk = False
                await self._pass()
        except (StoreError, BrokerError) as error:
            _log.warning("Forwarding from %s pauses: %s", self._fragment.settings.path, error)
            self._again_in(_RETRY_S)
        finally:
            self._is_walking = False

    async def _pass(self) -> None:
        """Once over the rows, in order, until there are no more or something is in the way."""
        fragment, transfers = self._fragment, self._route.transfers
        if transfers.is_under_way(fragment):
            # Our store failed and came back while a run of the forwarder before us waits for its destination.
            self._again_in(_RETRY_S)
            return
        if not transfers.is_settled(fragment):
            await transfers.settle(fragment)
        after = self._stays_up_to
        #: True while nothing was met that may move later.
        is_start = True
        while fragment.is_usable():
            page = await fragment.store.messages(
                fragment.key, PLACE_ACTIVE, after, _RUN_MESSAGES_MAX, _RUN_BYTES_MAX
            )
            if not transfers.is_settled(fragment):
                # The destination's store was opened while we read: some of these may lie there already. From here to
                # the send nothing is waited for, so no other store can come in between.
                await transfers.settle(fragment)
                continue
            if not page.messages and not page.damaged:
                return
            rows, is_start = self._movable(page.messages, is_start)
            if rows and not await self._move(rows):
                return
            after = max([row.sequence_number for row in page.messages] + page.damaged)
            if not page.more:
                return

    def _movable(self, messages: list[Message], is_start: bool) -> tuple[list[Message], bool]:
        """Rows that nobody holds, whose commit is known and whose time is not over."""
        fragment = self._fragment
        now_ms = fragment.runtime.clock.wall_ms()
        locked = fragment.locks.numbers()
        is_dead_letter = fragment.settings.is_dead_letter
        movable: list[Message] = []
        for message in messages:
            number = message.sequence_number
            if is_dead_letter and _stays(message):
                if is_start:
                    self._stays_up_to = number
                continue
            is_start = False
            if number in locked or fragment.horizon.hides(number):
                continue
            if is_dead_letter or message.expires_at_ms > now_ms:
                movable.append(message)
        return movable, is_start

    async def _move(self, rows: list[Message]) -> bool:
        """False when the walk must pause."""
        rows = self._within_hops(rows)
        if not rows:
            return True
        numbers = {row.sequence_number for row in rows}
        self.moving |= numbers
        try:
            return await self._send(rows)
        finally:
            self.moving -= numbers

    def _within_hops(self, rows: list[Message]) -> list[Message]:
        """F-6: those that have gone too far are dead-lettered where they stopped."""
        hops_max = self._route.hops_max
        far = [row for row in rows if read_head(row.head).hops >= hops_max]
        if not far:
            return rows
        self._dead_letter([(row, hops_used_up(hops_max)) for row in far])
        gone = {row.sequence_number for row in far}
        return [row for row in rows if row.sequence_number not in gone]

    async def _send(self, rows: list[Message]) -> bool:
        try:
            target = self._route.target()
        except (EntityNotFound, ServerBusy) as error:
            return self._refused([(row, error) for row in rows])
        detects = target.settings.detects_duplicates
        messages = [self._forwarded(row, detects) for row in rows]
        transfer = Transfer(
            self._fragment, {id(message): row for message, row in zip(messages, rows, strict=True)}
        )
        transfers = self._route.transfers
        with transfers.moving(self._fragment):
            target.inlet.append(messages, transfer.done, origin=transfer)
            refused = dict(await transfer.ended)
            transfer.finish([row for index, row in enumerate(rows) if index not in refused], transfers)
        if not refused:
            self._refused_since = None
            self._pause_s = _RETRY_S
            return True
        return self._refused([(rows[index], error) for index, error in refused.items()])

    def _forwarded(self, row: Message, detects_duplicates: bool) -> Message:
        """F-10: a new message with the old content, that knows where it began."""
        head = read_head(row.head)
        if head.hops == 0:
            head.first_number = row.sequence_number
        head.hops += 1
        if self._route.left:
            head.dead_letter_source = self._route.left
        message = Message(
            head.encoded(),
            row.bare if row.changes is None else changed_bare(row.bare, row.changes),
            ttl_ms=row.ttl_ms,
            session_id=row.session_id,
            partition_key=row.partition_key,
            scheduled_at_ms=row.scheduled_at_ms,
        )
        if detects_duplicates:
            message_id = MessageSubject(message).system("MessageId")
            message.message_id = message_id if isinstance(message_id, str) else None
        return message

    # -- refusals

    def _refused(self, refused: list[tuple[Message, BrokerError]]) -> bool:
        """True when the walk may go on."""
        if any(isinstance(error, ServerBusy | StoreOutcomeUnknown) for _, error in refused):
            self._again_in(_RETRY_S)
            return False
        if self._fragment.settings.is_dead_letter:
            self._again_in(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _RETRY_S_MAX)
            return False
        now = self._fragment.runtime.clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        is_patient = now - self._refused_since < _PATIENCE_S
        lost = [(row, error) for row, error in refused if not (is_patient and isinstance(error, _PASSING))]
        path = self._route.target_path
        self._dead_letter([(row, transfer_failed(path, error)) for row, error in lost])
        if len(lost) < len(refused):
            self._again_in(_RETRY_S)
            return False
        return True

    def _dead_letter(self, rows: list[tuple[Message, dict[str, object]]]) -> None:
        if not rows:
            return
        fragment = self._fragment
        if fragment.settings.is_dead_letter:  # it is where it belongs
            return
        dead_letters = DeadLetterRun(fragment, fragment.batch())
        for row, properties in rows:
            dead_letters.add(
                ACTIVE, row.sequence_number, row.size(), row.delivery_count, row.changes, properties
            )
        dead_letters.join()

    def _again_in(self, seconds: float) -> None:
        runtime = self._fragment.runtime
        runtime.timers.cancel(self._timer)
        self._timer = runtime.timers.at(runtime.clock.monotonic() + seconds, self.wake)


def _stays(message: Message) -> bool:
    """D-21: what went too far is not sent on again; that ends loops."""
    if message.changes is None:
        return False
    return read_changes(message.changes).get(DEAD_LETTER_REASON) == _HOPS_REASON
