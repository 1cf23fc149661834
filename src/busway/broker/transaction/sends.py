"""What a transaction will send into one fragment: checked when it came, stored with the commit (TX-8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.fragment.intake import Preparation
from busway.broker.fragment.sent_run import SentRun
from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.model.settlement import RunDone
from busway.store.contract import CommitBatch

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


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
            self.fragment.intake.join_reserved(self.fragment.write_in(batch), scheduled)

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
