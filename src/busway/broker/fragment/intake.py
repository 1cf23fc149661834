"""What a fragment takes in: which messages, under which numbers and times (M-35, M-40, M-41, S-1…S-9, L-8).

First stand the checks that tell which messages an entity takes (S-6…S-9, L-8). Their order is the order of the
answers.

Numbers are gapless from 1 and given out only when a message joins a batch, so a refused message leaves no gap.

The enqueued time that clients see never goes back, even if the wall clock does. Nothing is decided by it: what is
for later and when a message expires follow the wall clock, which may have been ahead once. Each run is decided
about by one look at that clock: a message is either for now or for later, whatever the clock does in between.

Numbers have an end: from `RESERVE_FROM` on each send first asks `numbering` (M-37).

What a transaction sends is checked when it comes and joins with the commit (TX-8). Only numbers of messages that
it schedules are given out before, because the client is told them at once: a rollback leaves a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.fragment.numbering import RESERVE_FROM, Numbering
from busway.broker.fragment.sent_run import PreparedRows, SentRun, expiry_ms, nobody_waits
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import Message
from busway.model.errors import (
    BadArgument,
    BrokerError,
    EntityDisabled,
    InvalidOperation,
    MessageTooLarge,
    QuotaExceeded,
    ServerBusy,
)
from busway.model.limits import Limits
from busway.model.settlement import RunDone
from busway.store.contract import CommitBatch

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Origin
    from busway.broker.fragment.runtime import NamespaceSize


def has_keys(message: Message) -> bool:
    """True for a message that needs a closer look than its size."""
    return (
        message.session_id is not None or message.partition_key is not None or message.message_id is not None
    )


def fault_of(message: Message, size: int, settings: FragmentSettings, limits: Limits) -> BrokerError | None:
    """Why the entity refuses this message; None when it does not."""
    if size > settings.message_bytes_max:
        return MessageTooLarge(
            f"The message of {size} bytes is larger than the {settings.message_bytes_max} bytes"
            f" that '{settings.path}' allows."
        )
    session_id, partition_key = message.session_id, message.partition_key
    if settings.requires_session and session_id is None:
        return InvalidOperation(
            "The SessionId was not set on a message, and it cannot be sent to the entity."
            " Entities that have session support enabled can only receive messages that have the SessionId"
            " set to a valid value."
        )
    for name, key in (
        ("MessageId", message.message_id),
        ("SessionId", session_id),
        ("PartitionKey", partition_key),
    ):
        if key is not None and len(key) > limits.key_characters_max:
            return BadArgument(
                f"{name} is {len(key)} characters long; at most {limits.key_characters_max} are allowed."
            )
    # An empty SessionId is a session, and no key that another one could differ from: its messages lie together.
    if session_id and partition_key is not None and session_id != partition_key:
        return InvalidOperation(
            "PartitionKey and SessionId of a message must be the same when both are set."
            f" PartitionKey: '{partition_key}', SessionId: '{session_id}'."
        )
    return None


def batch_fault(size: int, settings: FragmentSettings) -> MessageTooLarge:
    """S-22: the limit applies to the whole batch."""
    return MessageTooLarge(
        f"The batch of {size} bytes is larger than the {settings.message_bytes_max} bytes"
        f" that '{settings.path}' allows."
    )


def quota_fault(settings: FragmentSettings, used_bytes: int) -> QuotaExceeded:
    return QuotaExceeded(
        "The maximum entity size has been reached or exceeded for the entity."
        f" Entity: '{settings.path}', size: {used_bytes} bytes, maximum: {settings.size_bytes_max} bytes."
    )


def namespace_fault(size: NamespaceSize, wanted_bytes: int) -> QuotaExceeded | None:
    """L-4: why the namespace is too full for so many bytes more; when it is not they are taken."""
    if wanted_bytes > size.free_bytes:
        size.recount()
        if wanted_bytes > size.free_bytes:
            return QuotaExceeded(
                f"The maximum size of the namespace, {size.bytes_max} bytes over all entities, has been reached or"
                " exceeded."
            )
    size.free_bytes -= wanted_bytes
    return None


class Preparation:
    """What has to be done before a run joins: a topic makes its copies, which may take several turns of the loop."""

    __slots__ = ("is_ready", "run")

    def __init__(self, run: SentRun | None) -> None:
        #: Set when a run is what it is for.
        self.run = run
        self.is_ready = False


#: Told in the very step in which the run may join, or why it cannot.
Prepared = Callable[[Preparation, BrokerError | None], None]


class Intake:
    """The sending side of one fragment."""

    __slots__ = ("_enqueued_high_ms", "_fragment", "_numbering", "_reserve_from", "pending_bytes", "withheld")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        # Every send and activation also counts as an access, so this is no earlier than the last enqueued time. Of
        # copies the topic knows (`keep_up`).
        self._enqueued_high_ms = fragment.counters.accessed_at_ms
        self._numbering = Numbering(fragment)
        self._reserve_from = fragment.number_base + RESERVE_FROM
        #: Bytes of sends that wait for a look into the history of ids, or for the end of their transaction.
        self.pending_bytes = 0
        #: Numbers of scheduled messages that open transactions will cancel: they stay where they are.
        self.withheld: set[int] = set()

    def append(
        self, messages: list[Message], done: RunDone, is_atomic: bool, origin: Origin | None = None
    ) -> None:
        """Checks, then joins; with duplicate detection the history of ids is looked at in between."""
        refusal = self.refusal()
        if refusal is None and self._fragment.counters.last_counter >= self._reserve_from:
            if self._numbering.holds(messages, done, is_atomic, origin):
                return
            refusal = self.number_fault(len(messages))
        if refusal is not None:
            done([(0, refusal)] if is_atomic else [(index, refusal) for index in range(len(messages))])
            return
        run = self._admit(messages, done, is_atomic)
        run.origin = origin
        if is_atomic and run.refused:
            done([(0, run.refused[0][1])])
            return
        if not run.messages:
            done(run.refused)
            return
        refusal = namespace_fault(self._fragment.runtime.namespace_size, run.bytes)
        if refusal is not None:
            run.fail(refusal)
        else:
            self._take_in(run)

    def append_admitted(self, messages: list[Message], done: RunDone, origin: Origin) -> None:
        """What was checked when it was staged, and whose bytes have counted since: no limit refuses it any more."""
        refusal = self.refusal() or self.number_fault(len(messages))
        if refusal is not None:
            done([(index, refusal) for index in range(len(messages))])
            return
        size_bytes = sum([message.size() for message in messages])
        run = SentRun(self._fragment, messages, size_bytes, len(messages), [], done, False, origin)
        run.is_admitted = True
        self._take_in(run)

    def _take_in(self, run: SentRun) -> None:
        if self._fragment.settings.detects_duplicates:
            self.pending_bytes += run.bytes
            self._fragment.duplicates.submit(run)
        else:
            self.join(run)

    def staging_fault(self, size_bytes: int) -> BrokerError | None:
        """Why so many bytes cannot be staged for it now."""
        refusal = self.refusal()
        used = self.used_bytes()
        if refusal is None and used + size_bytes > self._fragment.settings.size_bytes_max:
            return quota_fault(self._fragment.settings, used)
        return refusal

    def refusal(self) -> BrokerError | None:
        """Why nothing can be sent now."""
        return self.store_fault() if self._fragment.settings.allows_send else EntityDisabled()

    def store_fault(self) -> BrokerError | None:
        """The same, whatever the status of the entity."""
        fragment = self._fragment
        if not fragment.is_usable():
            return ServerBusy.without(f"'{fragment.settings.path}'")
        if fragment.store.accepts_payload():
            return None
        if fragment.store.is_congested():
            return ServerBusy("The store is writing at its limit. Please try again later.")
        return QuotaExceeded("The server is short of disk space and takes no new messages just now.")

    def takes(self, size_bytes: int) -> bool:
        """Whether a send of this size finds room, numbers, and a store that writes; a keyless one goes elsewhere if
        not (P-10)."""
        fragment = self._fragment
        if not fragment.store.accepts_payload() or self.number_fault(1) is not None:
            return False
        return self.used_bytes() + size_bytes <= fragment.settings.size_bytes_max

    def used_bytes(self) -> int:
        """What counts against the entity's size (S-9)."""
        return self.stored_bytes() + self.pending_bytes + self.reserved_bytes()

    def stored_bytes(self) -> int:
        """Dead letters count too (D-3)."""
        dead_letter = self._fragment.dead_letter
        return self._fragment.counters.bytes + (0 if dead_letter is None else dead_letter.counters.bytes)

    def reserved_bytes(self) -> int:
        """Of what is staged for it."""
        fragment = self._fragment
        reserved = fragment.runtime.reserved_bytes
        return reserved.get(fragment.id, 0) if reserved else 0

    def number_fault(self, count: int) -> BrokerError | None:
        """Why there are no numbers for so many more messages (M-37). Whoever joins a run without `append` asks
        before: a run that finds none fails."""
        if self._fragment.counters.last_counter < self._reserve_from:
            return None
        return self._numbering.refusal(count)

    def takes_slices(self) -> bool:
        """Messages may join now, and nothing has to be looked up, held or published before: `join_slice` will do."""
        fragment = self._fragment
        if fragment.settings.detects_duplicates or fragment.counters.last_counter >= self._reserve_from:
            return False
        return self.refusal() is None

    def join_slice(self, messages: list[Message]) -> SentRun:
        """A part of a send that is dealt out over several fragments: joined, but for what the run refuses. Whoever
        deals waits for the commit and reports."""
        run = self._admit(messages, nobody_waits, False)
        fault = self._slice_fault(run)
        if fault is not None:
            run.refuse([(message, fault) for message in run.messages])
        return run

    def _slice_fault(self, run: SentRun) -> BrokerError | None:
        fragment = self._fragment
        if not run.messages:
            return None
        try:
            batch = fragment.batch()
        except ServerBusy as error:
            return error
        fault = namespace_fault(fragment.runtime.namespace_size, run.bytes)
        if fault is None:
            self._enter(run, batch, fragment.runtime.clock.wall_ms())
        return fault

    def _admit(self, messages: list[Message], done: RunDone, is_atomic: bool) -> SentRun:
        fragment = self._fragment
        settings = fragment.settings
        size_max = settings.message_bytes_max
        needs_look = settings.requires_session
        refused: list[tuple[int, BrokerError]] = []
        used = self.used_bytes()
        free = settings.size_bytes_max - used
        admitted: list[Message] = []
        total = 0
        for message in messages:
            size = len(message.head) + len(message.bare)
            fault: BrokerError | None = None
            if size > size_max or needs_look or has_keys(message):
                fault = fault_of(message, size, settings, fragment.runtime.limits)
            if fault is None and total + size > free:
                fault = quota_fault(settings, used + total)
            if fault is None:
                total += size
                admitted.append(message)
            else:
                refused.append((len(admitted) + len(refused), fault))
        if is_atomic and total > size_max:
            refused.append((0, batch_fault(total, settings)))
        return SentRun(fragment, admitted, total, len(messages), refused, done, is_atomic)

    def join(self, run: SentRun) -> None:
        """The hot path: numbers, times, rows, counters, one callback."""
        fragment = self._fragment
        try:
            batch = fragment.batch()
            if fragment.counters.last_counter >= self._reserve_from:
                self._numbering.take(len(run.messages))
        except (ServerBusy, QuotaExceeded) as error:
            run.fail(error)
            return
        self._enter(run, batch, fragment.runtime.clock.wall_ms())
        run.join()

    def join_copies(self, batch: CommitBatch, run: SentRun, wall_ms: int) -> None:
        """What a topic has found due at that time; its batch is ours. `copies_fault` was None."""
        if self._fragment.counters.last_counter >= self._reserve_from:
            self._numbering.take(len(run.messages))
        self._enter(run, batch, wall_ms)
        run.join()

    def join_prepared(self, batch: CommitBatch, run: SentRun, prepared: PreparedRows) -> None:
        """The same for copies that have their rows already."""
        if self._fragment.counters.last_counter >= self._reserve_from:
            self._numbering.take(len(run.messages))
        self.keep_up(prepared.enqueued_ms)
        run.enter_prepared(batch, prepared)
        run.join()

    def copies_fault(self, count: int) -> BrokerError | None:
        """Why so many copies cannot join now."""
        fragment = self._fragment
        if not fragment.is_usable():
            return ServerBusy.without(f"'{fragment.settings.path}'")
        return self.number_fault(count)

    def _enter(self, run: SentRun, batch: CommitBatch, wall_ms: int) -> None:
        run.enter(batch, wall_ms, self._next_enqueued_ms(wall_ms))

    # -- transactions

    def admit(self, messages: list[Message]) -> int:
        """What a transaction sends, checked as if it were stored now. Their bytes, which count from now on until
        `release`. Raises why not."""
        fault = self.refusal() or self.number_fault(len(messages))
        if fault is not None:
            raise fault
        run = self._admit(messages, nobody_waits, True)
        if run.refused:
            raise run.refused[0][1]
        fault = namespace_fault(self._fragment.runtime.namespace_size, run.bytes)
        if fault is not None:
            raise fault
        self.pending_bytes += run.bytes
        return run.bytes

    def release(self, size_bytes: int) -> None:
        """The transaction has joined, or was rolled back."""
        self.pending_bytes -= size_bytes

    def is_busy(self) -> bool:
        """Nothing may join now."""
        return False

    def must_wait(self, tell: Callable[[], None]) -> bool:
        """`is_busy`; `tell` is then called when something may. False: at once, in this very step."""
        del tell
        return False

    def prepare(self, run: SentRun) -> Preparation | None:
        """What has to be done before `join_now`; None when that is nothing. `must_wait` was False."""
        del run
        return None

    def begin(self, preparation: Preparation, prepared: Prepared) -> None:
        """Goes on with what is not ready yet, in turns of the loop."""
        raise NotImplementedError

    def join_now(self, run: SentRun, preparation: Preparation | None) -> None:
        """Joins the batch that is open, whatever else waits."""
        del preparation
        self.join(run)

    def reserve_numbers(self, messages: list[Message]) -> None:
        """For messages that a transaction schedules. Nobody sees them before they are durable."""
        fragment = self._fragment
        for message in messages:
            fragment.counters.last_counter += 1
            message.sequence_number = fragment.counters.last_counter
            fragment.horizon.arriving.add(message.sequence_number)

    def join_reserved(self, write: FragmentWrite, messages: list[Message]) -> None:
        """They are stored as scheduled even when their time has come meanwhile: it is then noticed at once."""
        write.put_reserved(messages, self._next_enqueued_ms(self._fragment.runtime.clock.wall_ms()))
        write.join()

    # -- time

    def may_leave(self, number: int) -> bool:
        """Of a scheduled row: its own commit is reported, and no open transaction cancels it."""
        return number not in self.withheld and not self._fragment.horizon.hides(number)

    def may_activate(self, message: Message, wall_ms: int) -> bool:
        return message.scheduled_at_ms <= wall_ms and self.may_leave(message.sequence_number)

    async def activate(self, messages: list[Message]) -> int:
        """Scheduled rows whose time has come get a new number, a new enqueued time, and their time to live
        starts (S-34). Rows whose own commit is not reported yet, and those not due, are left alone. Raises why
        nothing of it can happen now."""
        fragment = self._fragment
        default_ttl_ms = fragment.settings.default_ttl_ms
        wall_ms = fragment.runtime.clock.wall_ms()
        write = fragment.write()
        enqueued_ms = self._next_enqueued_ms(wall_ms)
        count = 0
        for message in messages:
            if not self.may_activate(message, wall_ms):
                continue
            ttl_ms = message.ttl_ms if 0 <= message.ttl_ms < default_ttl_ms else default_ttl_ms
            expires_ms = expiry_ms(wall_ms, ttl_ms)
            write.activate(message, enqueued_ms, expires_ms)
            self._note_expiry(write, expires_ms)
            count += 1
        if count:
            write.count_arrival(enqueued_ms)
            write.join()
        return count

    def _note_expiry(self, write: FragmentWrite, expires_ms: int) -> None:
        """In order: the head's sweep must know. Out of order: the sweeper of the store must."""
        fragment = self._fragment
        if expires_ms >= fragment.counters.expiry_high_ms:
            fragment.counters.expiry_high_ms = expires_ms
            fragment.head_expiry.joined(expires_ms)
            return
        write.expires_out_of_order(expires_ms)

    def keep_up(self, enqueued_ms: int) -> None:
        """A copy is not enqueued before the message that it is of: the topic remembers its times over restarts, a
        subscription does not, for copies are no use of it (E-111)."""
        self._enqueued_high_ms = max(self._enqueued_high_ms, enqueued_ms)

    def enqueued_after(self, enqueued_ms: int) -> int:
        """What a copy of a message that was enqueued then would be shown with. Changes nothing."""
        return max(self._enqueued_high_ms, enqueued_ms)

    def _next_enqueued_ms(self, wall_ms: int) -> int:
        """M-16: what clients are shown."""
        if wall_ms > self._enqueued_high_ms:
            self._enqueued_high_ms = wall_ms
        return self._enqueued_high_ms
