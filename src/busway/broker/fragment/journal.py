"""What happens to messages, for whoever keeps a record of it. The broker knows nobody who does: without a journal
(`BrokerRuntime.journal` is None) the only cost is that look, once for each run.

Operations are told when they are durable, or when their outcome is certain for those that are memory only, once for
each run. Whatever changes rows notes the operation beside them (`write`) and tells it before anybody sees the rows:
a message's operations are told in their order. What a failed commit takes back was never told.

A journal keeps nothing of what it is given beyond the call: runs and their messages belong to the broker.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from busway.broker.fragment.locks import Lock as Lock
from busway.message.event_record import Event
from busway.message.message import Message

SEND: Final = 0
DUPLICATE: Final = 1
SCHEDULE: Final = 2
CANCEL: Final = 3
ACTIVATE: Final = 4
RECEIVE: Final = 5
COMPLETE: Final = 6
ABANDON: Final = 7
DEFER: Final = 8
DEAD_LETTER: Final = 9
EXPIRE: Final = 10
LOCK_LOST: Final = 11
FORWARD: Final = 12
SESSION_ACCEPT: Final = 13
SESSION_END: Final = 14
PUBLISH: Final = 15
DELETE: Final = 16

#: Where a row says nothing.
UNKNOWN: Final = -1


class OperationRow:
    """One message as an operation found it, where neither the message nor its lock tell everything."""

    __slots__ = (
        "delivery_count",
        "enqueued_at_ms",
        "number",
        "partition_key",
        "reason",
        "session_id",
        "size",
    )

    def __init__(
        self,
        number: int = UNKNOWN,
        size: int = UNKNOWN,
        delivery_count: int = UNKNOWN,
        enqueued_at_ms: int = UNKNOWN,
        session_id: str | None = None,
        partition_key: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.number = number
        self.size = size
        self.delivery_count = delivery_count
        self.enqueued_at_ms = enqueued_at_ms
        self.session_id = session_id
        self.partition_key = partition_key
        #: Why it was dead-lettered.
        self.reason = reason


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal:
    """Told on the event loop. None of these may raise or wait."""

    def messages(self, operation: int, path: str, index: int, messages: list[Message]) -> None:
        """The same happened to all of them, in the fragment with this path and index."""
        raise NotImplementedError

    def locks(self, operation: int, path: str, index: int, locks: list[Lock]) -> None:
        """The same happened to the messages that these were the locks of."""
        raise NotImplementedError

    def rows(self, operation: int, path: str, index: int, rows: list[OperationRow]) -> None:
        raise NotImplementedError

    def events(self, path: str, index: int, first_number: int, at_ms: int, events: list[Event]) -> None:
        """They were published into a hub's partition, numbered from `first_number` on, at that time."""
        raise NotImplementedError


class Note:
    """What a journal will be told when a write is durable: the same happened to all of one of the lists."""

    __slots__ = ("_messages", "locks", "operation", "rows")

    def __init__(
        self,
        operation: int,
        messages: list[Message] | None,
        locks: list[Lock] | None,
        rows: list[OperationRow] | None,
    ) -> None:
        self.operation = operation
        self._messages = messages
        self.locks = locks
        self.rows = rows

    def tell(self, journal: Journal, path: str, index: int) -> None:
        if self._messages is not None:
            journal.messages(self.operation, path, index, self._messages)
        if self.locks is not None:
            journal.locks(self.operation, path, index, self.locks)
        if self.rows is not None:
            journal.rows(self.operation, path, index, self.rows)
