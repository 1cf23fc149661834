"""Encoded messages of rows, ready to be sent in batches or staged in parts.

Theory of operation. Every message stands in a data section of its own: so any messages that follow each other are,
as they lie in memory, the content of a batch (S-20), and a batch is cut out with one copy. A part of a stage is
cut in the same way; there each message stands behind its length. Pieces of rows are small enough for what a sender
has under way, and so that no array outgrows Arrow's offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Longs

#: About the bytes of bodies, and at most the rows, that are encoded together.
PIECE_BYTES: Final = 2 * 1024 * 1024
PIECE_ROWS: Final = 4_000
_COLUMNS_BYTES: Final = 64 * 1024 * 1024
#: Room that a batch keeps free.
ENVELOPE_BYTES: Final = 64
_SECTION_BEFORE: Final = 5


@dataclass(frozen=True)
class EncodedRows:
    """Messages, each in a data section of its own, or behind its length."""

    #: The place of each row in its task.
    rows: Longs
    data: memoryview
    #: Where each section begins; the end of the last one behind.
    bounds: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Longs, messages: Column) -> EncodedRows:
        return cls(rows, *encoding.bounds_of(arrow.joined(*encoding.data_section(messages))))

    @classmethod
    def framed(cls, rows: Longs, messages: Column) -> EncodedRows:
        """Each behind its length in four bytes, the least significant first."""
        sizes = encoding.lengths(messages).astype("<u4")
        return cls(rows, *encoding.bounds_of(arrow.joined(encoding.fixed(messages, sizes, b""), messages)))

    def batch(self, first: int, end: int) -> bytes:
        """The content of a batch, or of a part."""
        return bytes(self.data[int(self.bounds[first]) : int(self.bounds[end])])

    def message(self, at: int) -> bytes:
        """One message without its section."""
        begin = int(self.bounds[at])
        size = 2 if self.data[begin + 3] == encoding.BYTES_FORM else _SECTION_BEFORE
        return bytes(self.data[begin + 3 + size : int(self.bounds[at + 1])])

    def cut(self, bytes_max: int, rows_max: int = PIECE_ROWS) -> Iterator[tuple[int, int]]:
        """First and end of batches, each as full as fits. A message that is larger stands alone."""
        first, count = 0, len(self)
        while first < count:
            limit = int(self.bounds[first]) + bytes_max
            end = int(np.searchsorted(self.bounds, limit, "right")) - 1
            end = min(max(end, first + 1), first + rows_max, count)
            yield first, end
            first = end


def pieces(record_batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts by the size of the bodies and by rows; by fewer rows where other columns are large."""
    ends = np.cumsum(encoding.lengths(record_batch.column("body")))
    first, count = 0, record_batch.num_rows
    rows_max = max(1, min(PIECE_ROWS, _COLUMNS_BYTES * count // max(record_batch.nbytes, 1)))
    while first < count:
        begin = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, begin + PIECE_BYTES, "right"))
        end = min(max(end, first + 1), first + rows_max, count)
        yield record_batch.slice(first, end - first)
        first = end
