"""What a transaction will take out of one fragment: messages that it settles, scheduled ones that it cancels.

The locks stay where their time can end them, out of everybody else's reach (`LockTable.reserved`); scheduled rows
stay where they are and are held back from activation (`Intake.withheld`). So until the commit nothing has changed,
and a rollback only gives back what was claimed (TX-9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.fragment.locks import Lock
from busway.broker.fragment.message_states import INPUT_OF_VERB
from busway.broker.fragment.outcomes import Outcomes, checked_changes
from busway.broker.fragment.read_requests import CANCELLED
from busway.message.message import Message
from busway.model.errors import BrokerError, MessageLockLost, MessageNotFound, SessionLockLost
from busway.model.settlement import Settlement, Verb
from busway.store.contract import CommitBatch, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


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
        now = fragment.runtime.clock.monotonic()
        refused: list[tuple[int, BrokerError]] = []
        for index, token in enumerate(tokens):
            lock = fragment.locks.get(token, now)
            if lock is None:
                refused.append((index, fragment.settling.lock_lost(session_id)))
                continue
            if settlement.verb is not Verb.COMPLETE:
                try:
                    checked_changes(fragment, lock, settlement)
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
        was_full = fragment.locks_free() <= 0
        write = fragment.write_in(batch)
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
            fragment.serve_all()

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
