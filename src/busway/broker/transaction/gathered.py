"""What a transaction gathers in one fragment until its commit: in which one, what it sends, what it takes out.

The place. Which fragment an operation takes place in (TX-12…TX-17, TX-19): a plain entity has one. Of a
partitioned one, a transaction keeps to the fragment of its messages' key: every message must have a key, and all
the same one. Keys are compared, not fragments, so that a transaction does not depend on how keys happen to be
spread.

Sends are checked when they come and stored with the commit (TX-8).

Claims are what it will take out: messages that it settles, scheduled ones that it cancels. The locks stay where
their time can end them, out of everybody else's reach (`LockTable.reserved`); scheduled rows stay where they are
and are held back from activation (`Intake.withheld`). So until the commit nothing has changed, and a rollback only
gives back what was claimed (TX-9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.entity.fragment_choice import fragment_of_key, index_of_number, index_of_token, key_of
from busway.broker.fragment.intake import Preparation
from busway.broker.fragment.locks import Lock
from busway.broker.fragment.message_states import INPUT_OF_VERB
from busway.broker.fragment.read_requests import CANCELLED
from busway.broker.fragment.sent_run import SentRun
from busway.broker.fragment.settling import Outcomes, checked_changes
from busway.message.message import Message
from busway.model.errors import (
    BrokerError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    SessionLockLost,
)
from busway.model.settlement import RunDone, Settlement, Verb
from busway.store.contract import CommitBatch, FragmentIndex, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Outlet

OTHER_FRAGMENT: Final = "Local transactions cannot span multiple entities or partitions."


def place_of_messages(
    outlet: Outlet, messages: list[Message], known_key: str | None
) -> tuple[Fragment, str | None]:
    """The fragment that takes them, and their common key; `known_key` is that of what was sent before. Raises
    InvalidOperation, and ServerBusy while the fragment's store is away."""
    settings = outlet.settings
    if not settings.is_partitioned:
        return outlet.member(FragmentIndex(0)), None
    key = known_key
    for message in messages:
        found = key_of(message, settings.detects_duplicates)
        if found is None:
            raise InvalidOperation(
                f"'{settings.path}' is partitioned: a message sent to it in a transaction needs a PartitionKey"
                " or a SessionId, or a MessageId where duplicates are detected."
            )
        if key is not None and found != key:
            raise InvalidOperation(
                f"'{settings.path}' is partitioned: all messages sent to it in one transaction must have the same"
                " SessionId or PartitionKey."
            )
        key = found
    assert key is not None, "there is a message"
    return outlet.member(fragment_of_key(key, settings.fragment_count)), key


def place_of_tokens(outlet: Outlet, tokens: list[bytes]) -> Fragment:
    """Raises InvalidOperation when they belong to several fragments."""
    if not outlet.settings.is_partitioned:
        return outlet.member(FragmentIndex(0))
    try:
        return _only(outlet, {index_of_token(token) for token in tokens})
    except MessageNotFound:
        raise MessageLockLost from None


def place_of_numbers(outlet: Outlet, numbers: list[int]) -> Fragment:
    if not outlet.settings.is_partitioned:
        return outlet.member(FragmentIndex(0))
    return _only(outlet, {index_of_number(number) for number in numbers})


def via_index(via: Outlet, via_key: str | None, known_index: FragmentIndex | None) -> FragmentIndex:
    """TX-18: the fragment of the via entity by the ViaPartitionKey; without one, where the transaction takes place
    already."""
    if not via.settings.is_partitioned:
        return FragmentIndex(0)
    if via_key is not None:
        return fragment_of_key(via_key, via.settings.fragment_count)
    if known_index is None:
        raise InvalidOperation(
            f"'{via.settings.path}' is partitioned: a message sent via it in a transaction needs a ViaPartitionKey."
        )
    return known_index


def _only(outlet: Outlet, indexes: set[FragmentIndex]) -> Fragment:
    if len(indexes) > 1:
        raise InvalidOperation(OTHER_FRAGMENT)
    return outlet.member(indexes.pop())


class TransactionSends:
    """Of one transaction into one fragment. Messages with a number are those that it has scheduled (S-37)."""

    __slots__ = ("_counted_bytes", "bytes", "fragment", "messages")

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.messages: list[Message] = []
        self.bytes = 0
        #: What the fragment's intake counts for us until they join.
        self._counted_bytes = 0

    def admit(self, messages: list[Message], *, are_scheduled: bool) -> int:
        """Their bytes. Raises why they are refused."""
        intake = self.fragment.intake
        size_bytes = intake.admit(messages)
        if are_scheduled:
            intake.reserve_numbers(messages)
        self.messages += messages
        self.bytes += size_bytes
        self._counted_bytes += size_bytes
        return size_bytes

    def drop(self, messages: list[Message]) -> int:
        """What was scheduled here and is cancelled here never was. Their bytes."""
        gone = {id(message) for message in messages}
        size_bytes = sum(message.size() for message in messages)
        self.messages = [message for message in self.messages if id(message) not in gone]
        self.fragment.horizon.arriving.difference_update(message.sequence_number for message in messages)
        self.fragment.intake.release(size_bytes)
        self.bytes -= size_bytes
        self._counted_bytes -= size_bytes
        return size_bytes

    def scheduled(self) -> dict[int, Message]:
        """By number."""
        return {message.sequence_number: message for message in self.messages if message.sequence_number}

    # -- the commit

    def obstacle(self) -> BrokerError | None:
        """Why they cannot be stored now."""
        intake = self.fragment.intake
        return intake.refusal() or intake.number_fault(len(self.messages))

    def must_wait(self, tell: Callable[[], None]) -> bool:
        return self.fragment.intake.must_wait(tell)

    def run(self, done: RunDone) -> SentRun:
        return SentRun(self.fragment, list(self.messages), self.bytes, len(self.messages), [], done, True)

    def hand_over(self) -> None:
        """To the line for the history of ids, which counts their bytes from here on."""
        self._counted_bytes = 0

    def take_back(self) -> None:
        """From that line."""
        self._counted_bytes = self.bytes
        self.fragment.intake.pending_bytes += self.bytes

    def take_scheduled(self, run: SentRun) -> list[Message]:
        """What was scheduled leaves the run: it is for `join_scheduled`."""
        scheduled = [message for message in run.messages if message.sequence_number]
        if scheduled:
            run.messages = run.active = [m for m in run.messages if not m.sequence_number]
            run.bytes = run.active_bytes = sum(message.size() for message in run.messages)
        return scheduled

    def join(self, run: SentRun, preparation: Preparation | None) -> None:
        """`obstacle` was None, and nothing has suspended since. If it is refused all the same `run.done` is told,
        and nothing has joined."""
        intake = self.fragment.intake
        intake.release(self._counted_bytes)
        self._counted_bytes = 0
        intake.join_now(run, preparation)

    def join_scheduled(self, scheduled: list[Message], batch: CommitBatch) -> None:
        if scheduled:
            self.fragment.intake.join_reserved(self.fragment.write(batch), scheduled)

    def show_scheduled(self) -> None:
        """What was scheduled is durable: it can be seen, and its time may come."""
        numbers = list(self.scheduled())
        if numbers:
            horizon = self.fragment.horizon
            horizon.arriving.difference_update(numbers)
            horizon.committed_high = max(horizon.committed_high, *numbers)

    def release(self) -> None:
        """They are not stored (TX-9)."""
        self.fragment.intake.release(self._counted_bytes)
        self.fragment.horizon.arriving.difference_update(self.scheduled())
        self._counted_bytes = 0


class TransactionClaims:
    """Of one transaction on one fragment."""

    __slots__ = ("_cancelled", "_settled", "fragment")

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self._settled: list[tuple[bytes, Lock, Settlement]] = []
        self._cancelled: list[Message] = []

    def __len__(self) -> int:
        return len(self._settled) + len(self._cancelled)

    # -- claiming

    def settle(
        self, tokens: list[bytes], settlement: Settlement, session_id: str | None
    ) -> list[tuple[int, BrokerError]]:
        """Claims the locks; those that cannot be had are told by index."""
        fragment = self.fragment
        fault = fragment.settling.fault(settlement)
        if fault is not None:
            return [(index, fault) for index in range(len(tokens))]
        settings, header_bytes_max = fragment.settings, fragment.runtime.limits.header_bytes_max
        now = fragment.runtime.clock.monotonic()
        refused: list[tuple[int, BrokerError]] = []
        for index, token in enumerate(tokens):
            lock = fragment.locks.get(token, now)
            if lock is None:
                refused.append((index, fragment.settling.lock_lost(session_id)))
                continue
            if settlement.verb is not Verb.COMPLETE:
                try:
                    checked_changes(settings, header_bytes_max, lock, settlement)
                except BrokerError as error:
                    refused.append((index, error))
                    continue
            fragment.locks.reserve(token, now)
            self._settled.append((token, lock, settlement))
        return refused

    def cancel(self, messages: list[Message]) -> None:
        """Raises MessageNotFound when another transaction was faster."""
        numbers = {message.sequence_number for message in messages}
        withheld = self.fragment.intake.withheld
        if not withheld.isdisjoint(numbers):
            raise MessageNotFound
        withheld |= numbers
        self._cancelled += messages

    # -- the end

    def fault(self) -> BrokerError | None:
        """Why they can no longer be carried out (TX-10)."""
        fragment = self.fragment
        now = fragment.runtime.clock.monotonic()
        for token, lock, _ in self._settled:
            if not fragment.locks.is_reserved(token, lock, now):
                return MessageLockLost() if lock.session is None else SessionLockLost()
        return None

    def join(self, batch: CommitBatch) -> None:
        """Carries them out. `fault` was None, and nothing has suspended since."""
        fragment = self.fragment
        was_full = fragment.locks.free() <= 0
        write = fragment.write(batch)
        outcomes = Outcomes(write)
        completed: list[Lock] = []
        for token, lock, settlement in self._settled:
            fragment.locks.pop_reserved(token)
            if settlement.verb is Verb.COMPLETE:
                completed.append(lock)
                continue
            changed = outcomes.check(lock, settlement)
            outcomes.settle(lock, INPUT_OF_VERB[settlement.verb], settlement, changed)
        write.complete_locked(completed)
        if self._cancelled:
            write.remove(CANCELLED, self._cancelled)
            fragment.intake.withheld.difference_update([m.sequence_number for m in self._cancelled])
        write.join()
        outcomes.serve()
        if was_full:
            fragment.lanes.serve_all()

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            fragment.commit_failed(error)
            return
        for _, _, settlement in self._settled:
            fragment.flow.settled(settlement.verb, 1)

    def release(self) -> None:
        """TX-9: everything is as it was before it was claimed."""
        fragment = self.fragment
        for token, lock, _ in self._settled:
            fragment.locks.unreserve(token, lock)
        fragment.intake.withheld.difference_update(m.sequence_number for m in self._cancelled)
        self._settled.clear()
        self._cancelled.clear()
