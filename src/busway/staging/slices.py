"""A slice: some rows of a log on their way into their entity. It is told when they join a batch, in parts where
a topic joins them in parts, and takes them out of the log in that very batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from busway.message.event_chunk import Chunk
from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.store.contract import CommitBatch

_BYTES: Final = 512 * 1024

#: Told once, when everything about it is certain.
SliceOver = Callable[["Slice"], None]


def slice_end(chunk: Chunk, at: int, rows_max: int) -> int:
    """Behind the rows from there on that fit into a slice: one at least."""
    return min(at + rows_max, chunk.index_ending(chunk.start(at) + _BYTES) + 1, chunk.count)


class Leaving(Protocol):
    """The log that rows leave."""

    def leave(self, batch: CommitBatch, upto: int, size_bytes: int) -> None:
        """Rows before this number have joined the batch elsewhere."""


class Slice:
    __slots__ = (
        "_log",
        "_messages",
        "_over",
        "_places",
        "_sizes",
        "bytes",
        "end",
        "error",
        "first",
        "is_over",
        "next",
    )

    def __init__(self, log: Leaving, first: int, sizes: list[int], over: SliceOver) -> None:
        self._log = log
        self._over = over
        self._sizes = sizes
        self._messages: list[Message] = []
        #: Of each message; made when it is asked for, as most slices join whole.
        self._places: dict[int, int] = {}
        self.first = first
        self.end = first + len(sizes)
        self.bytes = sum(sizes)
        #: Of the first row that has not left.
        self.next = first
        self.is_over = False
        #: Why it has not left, or not all of it; that is tried again.
        self.error: BrokerError | None = None

    def carries(self, messages: list[Message]) -> None:
        """What the rows became, in order."""
        self._messages = messages

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        """`broker.origin.Origin`."""
        del store_name
        if not messages:
            return
        last = messages[-1]
        if last is self._messages[-1]:
            self._leave(batch, self.end)
            return
        if not self._places:
            self._places = {id(message): place for place, message in enumerate(self._messages)}
        self._leave(batch, self.first + self._places[id(last)] + 1)

    def joined_whole(self, batch: CommitBatch) -> None:
        self._leave(batch, self.end)

    def rest_leaves(self, batch: CommitBatch) -> None:
        """What is left of it is known in its entity already: duplicates at its end."""
        self._leave(batch, self.end)

    def _leave(self, batch: CommitBatch, upto: int) -> None:
        sizes = self._sizes[self.next - self.first : upto - self.first]
        self.next = upto
        self._log.leave(batch, upto, sum(sizes))

    def appended(self, error: BrokerError | None) -> None:
        """`streams.partition_log.AppendDone`."""
        self.done([] if error is None else [(0, error)])

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        """`broker.settlement.RunDone`. No single row is refused, since all were accepted when they were staged:
        it is the entity or the store that cannot take them, or the commit has failed in which they were to
        leave."""
        if self.is_over:
            return
        self.is_over = True
        if refused:
            self.error = refused[0][1]
        self._over(self)
