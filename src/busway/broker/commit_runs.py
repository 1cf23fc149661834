"""What waits for a commit: one object and one callback for each run, however many messages it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.broker.settlement import RunDone
from busway.message import Message
from busway.store.contract import CommitUnknown, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment import Fragment


def broker_error(error: StoreError) -> BrokerError:
    """What a client is told when a commit failed: an unknown outcome is never called a refusal."""
    if isinstance(error, CommitUnknown):
        return StoreOutcomeUnknown()
    return ServerBusy("The store refused to write just now: nothing was stored. Please try again.")


class SentRun:
    """Messages of one send, from admission until they are durable."""

    __slots__ = (
        "active",
        "active_bytes",
        "bytes",
        "count",
        "done",
        "fragment",
        "is_atomic",
        "last_number",
        "messages",
        "refused",
    )

    def __init__(
        self,
        fragment: Fragment,
        messages: list[Message],
        message_bytes: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
        is_atomic: bool,
    ) -> None:
        self.fragment = fragment
        #: Those that were admitted.
        self.messages = messages
        self.bytes = message_bytes
        #: How many the sender handed over.
        self.count = count
        self.refused = refused
        self.done = done
        self.is_atomic = is_atomic
        # Filled when the run joins a batch: what becomes receivable at its commit.
        self.active: list[Message] = messages
        self.active_bytes = message_bytes
        self.last_number = 0

    def fail(self, error: BrokerError) -> None:
        """Nothing of it is stored (or nobody knows)."""
        if self.is_atomic:
            self.done([(0, error)])
            return
        refused = dict(self.refused)
        self.done([(index, refused.get(index, error)) for index in range(self.count)])

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            self.fail(broker_error(error))
            fragment.commit_failed(error)
            return
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        if self.active:
            fragment.sent(self.active, self.active_bytes)
        self.done(self.refused)


class SettledRun:
    """Settlements of one call, until they are durable."""

    __slots__ = ("count", "done", "fragment", "refused")

    def __init__(
        self, fragment: Fragment, count: int, refused: list[tuple[int, BrokerError]], done: RunDone
    ) -> None:
        self.fragment = fragment
        self.count = count
        self.refused = refused
        self.done = done

    def committed(self, error: StoreError | None) -> None:
        if error is None:
            self.done(self.refused)
            return
        refused = dict(self.refused)
        failure = broker_error(error)
        self.done([(index, refused.get(index, failure)) for index in range(self.count)])
        self.fragment.commit_failed(error)


class ArrivedRun:
    """Rows that enter a fragment by a move, or are put back: receivable once that is durable."""

    __slots__ = ("entries", "fragment", "last_number")

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        #: (number, session id)
        self.entries: list[tuple[int, str | None]] = []
        #: The highest number newly given out for the run; 0 when none was.
        self.last_number = 0

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            fragment.commit_failed(error)
            return
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        fragment.arrived(self.entries)


class WrittenRun:
    """A write nobody waits for; only its failure matters."""

    __slots__ = ("fragment",)

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self.fragment.commit_failed(error)
