"""Automatic forwarding: what arrives in one fragment moves on to another entity (F-1…F-14, D-20, D-21).

Theory of operation. Each forwarding fragment, main or dead-letter, has one `Forwarder`. It is woken when something
may have arrived and then walks the fragment's rows in order, a run at a time: a run is appended to the destination
like any other send, with everything that means there (F-11), and deleted here. When both lie in one store that is
one commit; else see `transfers`. Runs follow one another, so order is kept (F-7).

A destination that refuses for good (full, disabled, gone) is tried again for a few seconds, then the message goes
to this entity's own dead-letter queue (F-12); in a dead-letter queue it waits instead (D-20). A store that is not
available is waited for, however long. Meanwhile rows for other fragments of the destination pass by: order is kept
for each of them, and it is all that a receiver there can see (`DestinationsOnHold`).

While rows are on their way, which takes more than one step only when the destination looks for duplicates or lies
in another store, `moving` keeps them from expiring here. What becomes of them when the forwarder is gone before
the destination has answered, or when nobody knows the answer, is told in `transfers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.entity.fragment_choice import fragment_of_forwarded
from busway.broker.forward.transfers import FORWARDED, Departure, Destination, DestinationsOnHold, Transfers
from busway.broker.fragment.message_states import (
    MessageInput,
    MessageState,
    hops_used_up,
    step_of,
    transfer_failed,
)
from busway.broker.fragment.outlet import Onward
from busway.broker.fragment.property_changes import DEAD_LETTER_REASON, read_changes
from busway.message.bare import changed_bare
from busway.message.message import PLACE_ACTIVE, Message, read_head
from busway.message.message_subject import MessageSubject
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.store.contract import CommitBatch, StoreError, TransferMark

if TYPE_CHECKING:
    from busway.broker.entity.entity import Queue, Topic
    from busway.broker.fragment.fragment import Fragment
    from busway.timers import Timer

_log = logging.getLogger(__name__)

_RUN_MESSAGES_MAX: Final = 500
_RUN_BYTES_MAX: Final = 1024 * 1024
#: F-12: how long a refusing destination is tried again, and how often.
_PATIENCE_S: Final = 5.0
_RETRY_S: Final = 1.0
#: D-20: a dead-letter queue tries for ever, less and less often.
_RETRY_S_MAX: Final = 30.0
_DEAD_LETTERED: Final = step_of(MessageState.ACTIVE, MessageInput.DEAD_LETTERED)
_HOPS_REASON: Final = "MaxTransferHopCountExceeded"
#: Refusals that may pass by themselves.
_PASSING: Final = (QuotaExceeded, EntityDisabled, EntityNotFound)


class ForwardRoute:
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


class ForwardedRun:
    """One run on its way. Told by the destination's intake when it joins a batch, and when all is certain."""

    __slots__ = ("_rows", "_source", "_transfers", "departure", "ended", "removed")

    def __init__(
        self, source: Fragment, bound: list[tuple[Message, Message, Destination]], transfers: Transfers
    ) -> None:
        self._source = source
        self._transfers = transfers
        #: By the identity of the message that was sent: the row it came from.
        self._rows = {id(message): row for row, message, _ in bound}
        self.departure = Departure(source.id, {row.sequence_number: where for row, _, where in bound})
        #: Numbers deleted here in the same commit as they were written there.
        self.removed: set[int] = set()
        self.ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        rows = [self._rows[id(message)] for message in messages]
        source = self._source
        if store_name == source.store.name:
            write = source.write(batch)
            write.remove(FORWARDED, rows)
            write.join()
            self.removed.update(row.sequence_number for row in rows)
            return
        opening = self._transfers.openings(store_name)
        for row in rows:
            number = row.sequence_number
            batch.transfer_marks.append(TransferMark(source.store.name, source.key, number))
            self.departure.written[number] = (store_name, opening)

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        if not self.ended.done():
            self.ended.set_result(refused)

    def finish(self, rows: list[Message]) -> None:
        """The destination has them (or had them before): they are deleted here. Raises ServerBusy."""
        left = [row for row in rows if row.sequence_number not in self.removed]
        if not left:
            return
        source, transfers, fragment_id = self._source, self._transfers, self.departure.fragment_id
        written = self.departure.written
        marked = {number: written[number][0] for number in _numbers(left) if number in written}
        try:
            write = source.write()
        except ServerBusy:
            transfers.remember(fragment_id, marked)
            raise
        write.remove(FORWARDED, left)

        def removed(error: StoreError | None) -> None:
            if error is None:
                transfers.forget(fragment_id, marked)
            else:
                transfers.remember(fragment_id, marked)

        write.join()
        if marked:
            write.batch.callbacks.append(removed)


class Forwarder(Onward):
    """See the head of this file."""

    __slots__ = (
        "_due",
        "_fragment",
        "_held",
        "_is_stopped",
        "_is_walking",
        "_pause_s",
        "_route",
        "_should_try_again",
        "_should_walk",
        "_timer",
    )

    def __init__(self, fragment: Fragment, route: ForwardRoute) -> None:
        super().__init__()
        self._fragment = fragment
        self._route = route
        self._is_walking = False
        self._should_walk = False
        self._should_try_again = False
        self._is_stopped = False
        self._held = DestinationsOnHold()
        self._pause_s = _RETRY_S
        self._timer: Timer | None = None
        self._due = 0.0

    def wake(self) -> None:
        """Something may have arrived."""
        self._should_walk = True
        if not self._is_walking and self._fragment.is_usable():
            self._is_walking = True
            self._fragment.runtime.spawn(self._walk())

    def arrived(self, numbers: list[int]) -> None:
        """Rows have come with numbers they had before: dead letters, in any order."""
        self._held.arrived(min(numbers))
        self.wake()

    def stop(self) -> None:
        self._is_stopped = True
        self._fragment.runtime.timers.cancel(self._timer)
        self._timer = None

    async def _walk(self) -> None:
        try:
            while self._should_walk and self._fragment.is_usable():
                self._should_walk = False
                await self._pass()
        except (StoreError, BrokerError) as error:
            if self._is_stopped:
                return
            _log.warning("Forwarding from %s pauses: %s", self._fragment.settings.path, error)
            self._again_in(_RETRY_S)
        finally:
            self._is_walking = False

    async def _pass(self) -> None:
        """Once over the rows, in order, until there are no more or something is in the way."""
        fragment = self._fragment
        if self._should_try_again:
            self._should_try_again = False
            self._held.try_again()
        transfers = self._route.transfers
        for destination in transfers.destinations(fragment):
            # Rows are held back that may have gone there, sent by us or by the forwarder before us: those behind them
            # must not overtake them.
            self._hold(destination, _RETRY_S)
        after = self._held.start
        is_unbroken = True
        while fragment.is_usable() and transfers.may_depart(fragment) and not self._is_stuck():
            page = await fragment.store.messages(
                fragment.key, PLACE_ACTIVE, after, _RUN_MESSAGES_MAX, _RUN_BYTES_MAX
            )
            # From here to the send nothing is waited for: no store can be opened in between and tell of more rows
            # that lie there already. The entity may have been updated during the read: then its rows are another's.
            if not fragment.is_usable() or not (page.messages or page.damaged):
                return
            if not transfers.may_depart(fragment):
                return
            rows, staying = self._movable(page.messages)
            if rows:
                await self._move(rows)
            after = max([row.sequence_number for row in page.messages] + page.damaged)
            is_unbroken = is_unbroken and len(rows) + staying == len(page.messages)
            if is_unbroken and (staying or self._held.are_any()):
                self._held.waits_up_to(after)
            if not page.more:
                return
            after = self._held.next_after(after)

    def _is_stuck(self) -> bool:
        """Nothing can move before the next try."""
        return self._held.holds((self._route.target_path, None))

    def _movable(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Rows that nobody holds, whose commit is known and whose time is not over; and how many stay for ever
        (D-21)."""
        fragment = self._fragment
        now_ms = fragment.runtime.clock.wall_ms()
        locked = fragment.locks.numbers()
        is_dead_letter = fragment.settings.is_dead_letter
        movable: list[Message] = []
        staying = 0
        for message in messages:
            number = message.sequence_number
            if is_dead_letter and _stays(message):
                staying += 1
            elif number in locked or fragment.horizon.hides(number):
                continue
            elif is_dead_letter or message.expires_at_ms > now_ms:
                movable.append(message)
        return movable, staying

    async def _move(self, rows: list[Message]) -> None:
        rows = self._within_hops(rows)
        if not rows:
            return
        numbers = {row.sequence_number for row in rows}
        self.moving |= numbers
        try:
            await self._send(rows)
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

    async def _send(self, rows: list[Message]) -> None:
        """In order; what is for a destination that is held stays where it is."""
        path = self._route.target_path
        if self._held.holds((path, None)):
            return
        try:
            target = self._route.target()
        except (EntityNotFound, ServerBusy) as error:
            self._refused((path, None), [(row, error) for row in rows])
            return
        bound = self._bound(rows, target)
        if not bound:
            return
        transfers = self._route.transfers
        transfer = ForwardedRun(self._fragment, bound, transfers)
        with transfers.departing(transfer.departure):
            target.inlet.append(
                [message for _, message, _ in bound],
                transfer.done,
                origin=transfer,
                source_numbers=[row.sequence_number for row, _, _ in bound],
            )
            refused = dict(await transfer.ended)
            unknown = [at for at, error in refused.items() if isinstance(error, StoreOutcomeUnknown)]
            transfers.outcome_unknown(transfer.departure, _numbers([bound[at][0] for at in unknown]))
            arrived = [(row, where) for place, (row, _, where) in enumerate(bound) if place not in refused]
            transfer.finish([row for row, _ in arrived])
        for where in {where for _, where in arrived}:
            self._held.takes(where)
        if not refused:
            self._pause_s = _RETRY_S
        by_destination: dict[Destination, list[tuple[Message, BrokerError]]] = {}
        for place, why in refused.items():
            row, _, where = bound[place]
            by_destination.setdefault(where, []).append((row, why))
        for where, failures in by_destination.items():
            self._refused(where, failures)

    def _bound(
        self, rows: list[Message], target: Queue | Topic
    ) -> list[tuple[Message, Message, Destination]]:
        """(row, the message it becomes, where it goes) of those whose destination is not held."""
        settings, path = target.settings, self._route.target_path
        detects, count = settings.detects_duplicates, settings.fragment_count
        bound: list[tuple[Message, Message, Destination]] = []
        for row in rows:
            message = self._forwarded(row, detects)
            where: Destination = (path, None)
            if settings.is_partitioned:
                where = (path, fragment_of_forwarded(message, row.sequence_number, detects, count))
            if not self._held.holds(where):
                bound.append((row, message, where))
        return bound

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

    def _refused(self, destination: Destination, refused: list[tuple[Message, BrokerError]]) -> None:
        """What may still move waits with its destination for the next try."""
        if any(isinstance(error, ServerBusy | StoreOutcomeUnknown) for _, error in refused):
            self._hold(destination, _RETRY_S)
            return
        if self._fragment.settings.is_dead_letter:
            self._hold(destination, self._pause_s)
            return
        now = self._fragment.runtime.clock.monotonic()
        is_patient = now - self._held.refuses_since(destination, now) < _PATIENCE_S
        lost = [(row, error) for row, error in refused if not (is_patient and isinstance(error, _PASSING))]
        path = destination[0]
        self._dead_letter([(row, transfer_failed(path, error)) for row, error in lost])
        if len(lost) < len(refused):
            self._hold(destination, _RETRY_S)

    def _hold(self, destination: Destination, seconds: float) -> None:
        self._held.hold(destination)
        self._again_in(seconds)

    def _dead_letter(self, rows: list[tuple[Message, dict[str, object]]]) -> None:
        if not rows:
            return
        fragment = self._fragment
        if fragment.settings.is_dead_letter:  # it is where it belongs
            return
        write = fragment.write()
        for row, properties in rows:
            write.dead_letter(_DEAD_LETTERED, row, properties)
        write.join()

    def _again_in(self, seconds: float) -> None:
        """At the latest: a destination that is held later does not put the next try off."""
        if self._is_stopped:
            return
        runtime = self._fragment.runtime
        due = runtime.clock.monotonic() + seconds
        if self._timer is None or due < self._due:
            runtime.timers.cancel(self._timer)
            self._timer, self._due = runtime.timers.at(due, self._try_again), due

    def _try_again(self) -> None:
        self._timer = None
        self._should_try_again = True  # a walk that is under way goes on as it began: it has passed rows by
        if self._fragment.settings.is_dead_letter:
            self._pause_s = min(2 * self._pause_s, _RETRY_S_MAX)
        self.wake()


def _numbers(rows: list[Message]) -> list[int]:
    return [row.sequence_number for row in rows]


def _stays(message: Message) -> bool:
    """D-21: what went too far is not sent on again; that ends loops."""
    if message.changes is None:
        return False
    return read_changes(message.changes).get(DEAD_LETTER_REASON) == _HOPS_REASON
