"""One part of a stage: the rows of one request, checked and laid into chunks, some in each turn of the loop, so
that they can join the batches of their stores in one step."""

from __future__ import annotations

from typing import Final

from busway.amqp.decode import DecodeError
from busway.message.event_chunk import BODY_ELSEWHERE, ChunkBuilder
from busway.model.errors import BadArgument, BrokerError
from busway.staging.refusals import RowRefused, TooManyRows
from busway.staging.targets import LOOSE, Target

ROWS_MAX: Final = 10_000
#: A chunk with so many bytes of payloads takes no more. Theirs and not its own: so a part of as many bytes is one
#: chunk, not one and a crumb.
CHUNK_BYTES_MAX: Final = 1024 * 1024
#: Of the number before each row: how long it is.
_LENGTH_BYTES: Final = 4
#: Taken apart in one turn of the loop.
_PIECE_ROWS: Final = 400
_PIECE_BYTES: Final = 256 * 1024


class Share:
    """What a part has for one fragment."""

    __slots__ = ("_payload_bytes", "builders", "bytes", "first", "rows")

    def __init__(self, first: int) -> None:
        self.builders: list[ChunkBuilder] = []
        #: The number of its first row in the log.
        self.first = first
        self.rows = 0
        self.bytes = 0
        #: In the last builder.
        self._payload_bytes = 0

    def add(self, at_ms: int, record: bytes, size: int, payload_bytes: int) -> None:
        if not self.builders or self._payload_bytes >= CHUNK_BYTES_MAX:
            self.builders.append(ChunkBuilder())
            self._payload_bytes = 0
        self._payload_bytes += payload_bytes
        self.builders[-1].add(self.first + self.rows, at_ms, record, BODY_ELSEWHERE)
        self.rows += 1
        self.bytes += size


class Part:
    """`body`: the rows, each behind its length. `loose`: the fragment of rows without a key, LOOSE when an earlier
    try has staged them. `skipped`: fragments whose rows with a key it has. `firsts`: how many rows each fragment's
    log has already."""

    def __init__(
        self, target: Target, body: bytes, loose: int, skipped: set[int], firsts: list[int], at_ms: int
    ) -> None:
        self._target = target
        self._body = body
        #: So much of it is read.
        self._at = 0
        self.loose = loose
        self._skipped = skipped
        self._firsts = firsts
        self._at_ms = at_ms
        #: By fragment.
        self.shares: dict[int, Share] = {}
        self.has_loose_rows = False
        #: Rows in the body, and the bytes of those that are to be staged.
        self.rows = 0
        self.bytes = 0

    def read_some(self) -> bool:
        """As much as one turn of the loop has time for. False at the end. Raises RowRefused, TooManyRows,
        BadArgument."""
        body, at = self._body, self._at
        end = min(at + _PIECE_BYTES, len(body))
        rows_max = self.rows + _PIECE_ROWS
        while at < end and self.rows < rows_max:
            if self.rows >= ROWS_MAX:
                raise TooManyRows(f"A part has at most {ROWS_MAX} rows.")
            start = at + _LENGTH_BYTES
            if start > len(body):
                raise BadArgument("The body ends within a length.")
            at = start + int.from_bytes(body[at:start], "little")
            if at > len(body):
                raise BadArgument("The body ends within a message.")
            self._read_row(body[start:at])
        self._at = at
        return at < len(body)

    def _read_row(self, payload: bytes) -> None:
        try:
            index, record, size = self._target.row(payload)
        except DecodeError as error:
            raise RowRefused(self.rows, f"It is no message: {error}.") from error
        except BrokerError as refusal:  # another name: compiled, one has one type
            raise RowRefused(self.rows, refusal.sentence) from refusal
        self.rows += 1
        if index == LOOSE:
            index = self.loose
            self.has_loose_rows = self.has_loose_rows or index != LOOSE
        elif index in self._skipped:
            return
        if index == LOOSE:
            return
        share = self.shares.get(index)
        if share is None:
            share = self.shares[index] = Share(self._firsts[index])
        share.add(self._at_ms, record, size, len(payload))
        self.bytes += size
