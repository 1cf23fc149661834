"""Columns as encoded AMQP: values, lists, maps, sections and whole messages, all rows at once.

Theory of operation. Every step makes a binary array with one element for each row: the encoded part of that row's
message. What stands before a value, its form and its size, has two widths; it is written into one buffer for all
rows. Parts are put one behind the other by Arrow, row by row, in one pass. What has no place in a row's message is
an empty element.

Rows that are ready to be sent in batches, or staged in parts, are `EncodedRows`. There every message stands in a
data section of its own: so any messages that follow each other are, as they lie in memory, the content of a batch
(S-20), and a batch is cut out with one copy. A part of a stage is cut in the same way; there each message stands
behind its length. Pieces of rows are small enough for what a sender has under way, and so that no array outgrows
Arrow's offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.arrow import joined
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs

BINARY: Final = pa.binary()
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
NULL: Final = b"\x40"
#: The short forms; the long ones are sixteen above.
BYTES_FORM: Final = 0xA0
TEXT_FORM: Final = 0xA1
SYMBOL_FORM: Final = 0xA3
LIST_FORM: Final = 0xC0
MAP_FORM: Final = 0xC1
_LONG: Final = 0x10
_LONG_BEFORE: Final = 5
_SHORT_BEFORE: Final = 2


class NotEncodable(ValueError):
    """Some row has a value that these columns cannot be encoded with: row by row it shows which, or works."""


def variable(column: Column, form: int) -> Column:
    """Texts, symbols or bytes with their form and size before them; null stays null."""
    content = as_binary(column)
    return joined(_before(lengths(content), form), content)


def whole(column: Column) -> Column:
    """Whole numbers as `long`, in one byte where that is enough; null stays null."""
    numbers = arrow.longs(column)
    is_small: Flags = (numbers >= -128) & (numbers <= 127)
    low = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    ends = np.cumsum(np.where(is_small, 2, 9))
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - np.where(is_small, 2, 9)
    data[starts] = np.where(is_small, 0x55, 0x81)
    data[starts[is_small] + 1] = low[is_small, 7]
    wide = starts[~is_small]
    for place in range(8):
        data[wide + 1 + place] = low[~is_small, place]
    return _null_as(column, pieces_of(ends, data))


def fixed(column: Column, values: NDArray[Any], before: bytes) -> Column:
    """Values of one width, most significant byte first, behind the same bytes; null where the column is."""
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    both = np.empty((len(values), len(before) + raw.shape[1]), np.uint8)
    both[:, : len(before)] = np.frombuffer(before, np.uint8)
    both[:, len(before) :] = raw
    ends = np.arange(1, len(values) + 1) * both.shape[1]
    return _null_as(column, pieces_of(ends, both.reshape(-1)))


def compound(body: Column, counts: Longs, form: int) -> Column:
    """Lists or maps whose elements are encoded already."""
    sizes = lengths(body)
    is_short: Flags = (sizes < 255) & (counts < 256)
    widths = np.where(is_short, 3, 9)
    ends = np.cumsum(widths)
    starts = ends - widths
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    data[starts] = np.where(is_short, form, form + _LONG)
    data[starts[is_short] + 1] = sizes[is_short] + 1
    data[starts[is_short] + 2] = counts[is_short]
    if not is_short.all():
        _put_longs(data, starts[~is_short] + 1, sizes[~is_short] + 4)
        _put_longs(data, starts[~is_short] + 5, counts[~is_short])
    return joined(pieces_of(ends, data), body)


def section(code: int, value: Column) -> Column:
    return joined(bytes((0, 0x53, code)), value)


def map_sections(code: int, column: Column, encode_items: Callable[[Column], Column]) -> Column:
    """A column of maps as a section; an empty element for a row without entries."""
    offsets, names, items = arrow.map_parts(column)
    entries = joined(variable(names, TEXT_FORM), with_null(encode_items(items)))
    counts: Longs = np.diff(offsets).astype(np.int64)
    sections = section(code, compound(runs(entries, offsets), 2 * counts, MAP_FORM))
    return only_where((counts > 0) & arrow.is_valid(column), sections)


def data_section(content: Column) -> tuple[Column, Column]:
    """A body, or a message inside of a batch: what stands before it, and itself."""
    return joined(bytes((0, 0x53, 0x75)), _before(lengths(content), BYTES_FORM)), content


def with_null(column: Column) -> Column:
    """Null as AMQP writes it."""
    return arrow.filled(column, NULL)


def only_where(wanted: Flags, column: Column) -> Column:
    """Nothing for the other rows."""
    return column if wanted.all() else arrow.chosen(wanted, column, b"")


def runs(entries: Column, offsets: NDArray[np.int32]) -> Column:
    """Entries that follow each other joined into one element for each run of them."""
    return arrow.of_buffers(BINARY, _offsets(entries)[offsets], entries.buffers()[2])


def as_binary(column: Column) -> Column:
    return column if column.type == BINARY else column.cast(BINARY)


def lengths(column: Column) -> Longs:
    """In bytes; 0 for null."""
    if column.null_count or column.type not in (BINARY, pa.string()):
        return arrow.byte_lengths(column)
    found: Longs = np.diff(_offsets(column)).astype(np.int64)
    return found


def bounds_of(column: Column) -> tuple[memoryview, NDArray[np.int32]]:
    """The bytes of all elements, and where in them each one begins; the end of the last one behind."""
    buffer = column.buffers()[2]
    return memoryview(b"" if buffer is None else buffer).cast("B"), _offsets(column)


def _offsets(column: Column) -> NDArray[np.int32]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int32)
    found: NDArray[np.int32] = np.frombuffer(memoryview(buffer), np.int32, len(column) + 1, 4 * column.offset)
    return found


def _before(sizes: Longs, form: int) -> Column:
    """Form and size of values of variable width."""
    is_short: Flags = sizes < 256
    widths = np.where(is_short, _SHORT_BEFORE, _LONG_BEFORE)
    ends = np.cumsum(widths)
    starts = ends - widths
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    data[starts] = np.where(is_short, form, form + _LONG)
    data[starts[is_short] + 1] = sizes[is_short]
    if not is_short.all():
        _put_longs(data, starts[~is_short] + 1, sizes[~is_short])
    return pieces_of(ends, data)


def _put_longs(data: NDArray[np.uint8], at: Longs, values: Longs) -> None:
    for place in range(4):
        data[at + place] = (values >> (24 - 8 * place)) & 0xFF


def pieces_of(ends: Longs, data: NDArray[np.uint8]) -> Column:
    """Elements that follow each other in the data."""
    bounds = np.zeros(len(ends) + 1, np.int32)
    bounds[1:] = ends
    return arrow.of_buffers(BINARY, bounds, arrow.buffer(data))


def _null_as(column: Column, encoded: Column) -> Column:
    if not column.null_count:
        return encoded
    return arrow.chosen(column.is_valid(), encoded, pa.scalar(None, BINARY))


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
        return cls(rows, *bounds_of(arrow.joined(*data_section(messages))))

    @classmethod
    def framed(cls, rows: Longs, messages: Column) -> EncodedRows:
        """Each behind its length in four bytes, the least significant first."""
        sizes = lengths(messages).astype("<u4")
        return cls(rows, *bounds_of(arrow.joined(fixed(messages, sizes, b""), messages)))

    def batch(self, first: int, end: int) -> bytes:
        """The content of a batch, or of a part."""
        return bytes(self.data[int(self.bounds[first]) : int(self.bounds[end])])

    def message(self, at: int) -> bytes:
        """One message without its section."""
        begin = int(self.bounds[at])
        size = 2 if self.data[begin + 3] == BYTES_FORM else _SECTION_BEFORE
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
    ends = np.cumsum(lengths(record_batch.column("body")))
    first, count = 0, record_batch.num_rows
    rows_max = max(1, min(PIECE_ROWS, _COLUMNS_BYTES * count // max(record_batch.nbytes, 1)))
    while first < count:
        begin = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, begin + PIECE_BYTES, "right"))
        end = min(max(end, first + 1), first + rows_max, count)
        yield record_batch.slice(first, end - first)
        first = end
