"""Values that were found in many messages, as Arrow arrays: texts as they are, numbers, and anything as JSON; and
columns and maps that are gathered out of such arrays, each for some of the rows.

A value of a rare form is decoded by the AMQP engine, alone. Bytes that are no UTF-8 raise `pa.ArrowInvalid`: whoever
asked decodes the messages one by one then, and learns which one it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from busway.amqp.decode import decode_value
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import Column, Entries, Flags, Longs, MessageCut, Values

STRING: Final = pa.string()
_BINARY: Final = pa.binary()
#: Whole numbers by their form: how many bytes; -1 for every other form.
_WHOLE_BYTES: Final[Longs] = np.full(256, -1, np.int64)
_IS_SIGNED: Final[Flags] = np.zeros(256, np.bool_)
for _form, _width in (
    (0x43, 0), (0x44, 0), (0x50, 1), (0x52, 1), (0x53, 1), (0x60, 2), (0x70, 4), (0x80, 8),
    (0x51, 1), (0x54, 1), (0x55, 1), (0x61, 2), (0x71, 4), (0x81, 8), (0x83, 8),
):  # fmt: skip
    _WHOLE_BYTES[_form] = _width
_IS_SIGNED[[0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83]] = True
_ULONG: Final = 0x80
_TIMESTAMP: Final = 0x83
#: Where the content of a text begins, by its form; 0 for every other form.
_TEXT_AT: Final[Longs] = np.zeros(256, np.int64)
_TEXT_AT[[0xA1, 0xA3]], _TEXT_AT[[0xB1, 0xB3]] = 2, 5
_SHORT_BINARY: Final = 0xA0
_WORDS: Final = ((0x40, "null"), (0x41, "true"), (0x42, "false"))
_ESCAPED: Final = r'[\x00-\x1f"\\]'
_quoted: Callable[[str], str] = json.encoder.encode_basestring


def slices(buffer: pa.Buffer, at: Longs, end: Longs) -> Column:
    """The bytes between, as a binary array. Bounds ascend, as places in messages that follow each other do."""
    count = len(at)
    if not count:
        return pa.array([], _BINARY)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0], bounds[1::2], bounds[2::2] = at[0], at, end
    return arrow.each_second(arrow.of_buffers(_BINARY, bounds, buffer))


def contents(cut: MessageCut, values: Values) -> Column:
    """Of values that are binary, such as data sections."""
    at = values.at + np.where(forms(cut, values) == _SHORT_BINARY, 2, 5)
    return slices(cut.buffer, at, values.end)


def forms(cut: MessageCut, values: Values) -> NDArray[np.uint8]:
    return cut.byte(values.at)


def is_text(cut: MessageCut, values: Values) -> Flags:
    return _TEXT_AT.take(forms(cut, values)) > 0


def is_whole(cut: MessageCut, values: Values) -> Flags:
    return _WHOLE_BYTES.take(forms(cut, values)) >= 0


def rows_with_others(cut: MessageCut, entries: Sequence[Entries], usual: Sequence[int]) -> Longs:
    """Of messages, not odd, with a value of any other form than these."""
    found: list[Longs] = [np.empty(0, np.int64)]
    for each in entries:
        values = cut.usual(each.values)
        found.append(values.rows[~np.isin(forms(cut, values), usual)])
    return np.unique(np.concatenate(found))


def texts(cut: MessageCut, values: Values) -> Column:
    """Of values that are strings or symbols."""
    return _text_bytes(cut, values).cast(STRING)


def shown_texts(cut: MessageCut, values: Values) -> Column:
    """The same; what is not UTF-8 shows the sign for that, and keeps nobody from the rest."""
    found = _text_bytes(cut, values)
    try:
        return found.cast(STRING)
    except pa.ArrowInvalid:
        return pa.array([bytes(each or b"").decode(errors="replace") for each in found.to_pylist()], STRING)


def _text_bytes(cut: MessageCut, values: Values) -> Column:
    return slices(cut.buffer, values.at + _TEXT_AT.take(forms(cut, values)), values.end)


def whole_numbers(cut: MessageCut, values: Values) -> Longs:
    """Of values that are whole; those of eight bytes without a sign come with one."""
    form = forms(cut, values)
    width = _WHOLE_BYTES.take(form)
    total = np.zeros(len(values), np.uint64)
    for place in range(int(width.max(initial=0))):
        has = place < width
        byte = cut.byte(values.at + 1 + place).astype(np.uint64)
        total = np.where(has, (total << np.uint64(8)) | byte, total)
    found = total.view(np.int64)
    negative = _IS_SIGNED.take(form) & (width < 8) & (width > 0)
    if negative.any():
        limit = np.int64(1) << (8 * np.where(negative, width, 1) - 1)
        found = np.where(negative & (found >= limit), found - 2 * limit, found)
    return found


def json_texts(
    cut: MessageCut, values: Values, json_text: Callable[[object], str], *, times_are_numbers: bool = True
) -> Column:
    """Any values as JSON; `json_text` for those of a rare form."""
    form = forms(cut, values)
    pieces = Pieces(len(values))
    has = _TEXT_AT.take(form) > 0
    if has.any():
        pieces.add(has, quoted(texts(cut, values.where(has))))
    has = (_WHOLE_BYTES.take(form) >= 0) & (form != _ULONG)
    has &= times_are_numbers | (form != _TIMESTAMP)
    if has.any():
        pieces.add(has, pa.array(whole_numbers(cut, values.where(has))).cast(STRING))
    for code, word in _WORDS:
        has = form == code
        if has.any():
            pieces.add(has, arrow.repeated(word, STRING, int(has.sum())))
    has = pieces.missing()
    if has.any():
        pieces.add(has, pa.array([json_text(each) for each in decoded(cut, values.where(has))], STRING))
    return pieces.array(STRING)


def decoded(cut: MessageCut, values: Values) -> list[object]:
    """By the engine, one by one. Raises DecodeError."""
    bounds = zip(values.at.tolist(), values.end.tolist(), strict=True)
    return [decode_value(cut.data, at, end)[0] for at, end in bounds]


def quoted(found: Column) -> Column:
    """Texts as JSON writes them."""
    plain = arrow.joined_texts('"', found, '"')
    is_escaped = arrow.matches(found, _ESCAPED)
    if not arrow.has_any(is_escaped):
        return plain
    escaped = [_quoted(str(text)) for text in found.filter(is_escaped).to_pylist()]
    return arrow.replaced(plain, is_escaped, pa.array(escaped, STRING))


class Pieces:
    """An array put together of pieces for some of its places each."""

    def __init__(self, count: int) -> None:
        self._order = np.full(count, -1, np.int64)
        self._arrays: list[Column] = []
        self._length = 0

    def add(self, wanted: Flags | Longs, found: Column) -> None:
        self._order[wanted] = np.arange(self._length, self._length + len(found))
        self._length += len(found)
        self._arrays.append(found)

    def missing(self) -> Flags:
        return self._order < 0

    def array(self, kind: pa.DataType) -> Column:
        if not self._arrays:
            return pa.array([], kind)
        if len(self._arrays) == 1:
            return self._arrays[0]
        return arrow.taken(pa.concat_arrays(self._arrays), self._order)


class RowColumn:
    """A value for some of the rows, null for all others. A later piece wins."""

    def __init__(self, count: int, kind: pa.DataType) -> None:
        self._count = count
        self._kind = kind
        self._rows: list[Longs] = []
        self._arrays: list[Column] = []

    def add(self, rows: Longs, values: Column) -> None:
        if len(rows):
            self._rows.append(rows)
            self._arrays.append(values)

    def array(self) -> Column:
        if not self._arrays:
            return arrow.nulls(self._kind, self._count)
        if len(self._arrays) == 1 and len(self._rows[0]) == self._count:
            return self._arrays[0]
        order = np.full(self._count, -1, np.int64)
        rows = np.concatenate(self._rows)
        order[rows] = np.arange(len(rows))
        return arrow.taken(pa.concat_arrays(self._arrays), order)


class RowMaps:
    """A map for each row. Entries keep the order in which their row got them."""

    def __init__(self, count: int) -> None:
        self._counts: Longs = np.zeros(count, np.int64)
        self._rows: list[Longs] = []
        self._places: list[Longs] = []
        self._names: list[Column] = []
        self._values: list[Column] = []

    def add(self, rows: Longs, names: Column, values: Column) -> None:
        """At most one entry for each row."""
        if len(rows):
            self._append(rows, self._counts[rows], names, values)
            self._counts[rows] += 1

    def add_runs(self, rows: Longs, counts: Longs, names: Column, values: Column) -> None:
        """So many entries for each of these rows, the entries of a row one behind the other."""
        if len(names):
            within = np.arange(len(names)) - np.repeat(np.cumsum(counts) - counts, counts)
            self._append(
                np.repeat(rows, counts), np.repeat(self._counts[rows], counts) + within, names, values
            )
            self._counts[rows] += counts

    def _append(self, rows: Longs, places: Longs, names: Column, values: Column) -> None:
        self._rows.append(rows)
        self._places.append(places)
        self._names.append(names)
        self._values.append(values)

    def parts(self, value_kind: pa.DataType) -> tuple[NDArray[np.int32], Column, Column]:
        """Where the entries of each row begin, the end of the last one behind; and all names and values."""
        offsets: NDArray[np.int32] = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        if not self._names:
            return offsets, pa.array([], pa.string()), pa.array([], value_kind)
        rows = np.concatenate(self._rows)
        order = np.empty(len(rows), np.int64)
        order[offsets[rows] + np.concatenate(self._places)] = np.arange(len(rows))
        names, values = pa.concat_arrays(self._names), pa.concat_arrays(self._values)
        return offsets, arrow.taken(names, order), arrow.taken(values, order)

    def array(self, value_kind: pa.DataType) -> Column:
        return arrow.maps(*self.parts(value_kind))
