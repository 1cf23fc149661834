"""Columns as encoded AMQP: values, lists, maps, sections and whole messages, all rows at once.

Theory of operation. Every step makes a binary array with one element for each row: the encoded part of that row's
message. What stands before a value, its form and its size, has two widths; it is written into one buffer for all
rows. Parts are put one behind the other by Arrow, row by row, in one pass. What has no place in a row's message is an
empty element.
"""

from __future__ import annotations

from collections.abc import Callable
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
