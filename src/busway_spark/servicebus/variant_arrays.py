"""Application properties of many messages as VARIANT values, or as the values of JSON objects, all at once.

They agree with `variant`, which does the same for one value; rare kinds go through it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs, MessageCut, Values
from busway_spark.amqp_arrays.value_arrays import (
    Pieces,
    decoded,
    forms,
    is_text,
    is_whole,
    json_texts,
    texts,
    whole_numbers,
)
from busway_spark.servicebus.variant import json_value_text, variant_of

_TIMESTAMP: Final = 0x83
_ULONG: Final = 0x80
_WORDS: Final = ((0x40, b"\x00"), (0x41, b"\x04"), (0x42, b"\x08"))
_SHORT_TEXT_MAX: Final = 0x3F
_LONG_TEXT: Final = 16 << 2
#: Width in bytes and first byte of whole numbers.
_WHOLE: Final = ((1, 3 << 2), (2, 4 << 2), (4, 5 << 2), (8, 6 << 2))


def variants(cut: MessageCut, values: Values) -> Column:
    """The value parts."""
    form = forms(cut, values)
    pieces = Pieces(len(values))
    has = is_text(cut, values)
    if has.any():
        pieces.add(has, _texts(encoding.as_binary(texts(cut, values.where(has)))))
    has = is_whole(cut, values) & (form != _TIMESTAMP) & (form != _ULONG)
    if has.any():
        _add_whole(pieces, has, whole_numbers(cut, values.where(has)))
    for code, word in _WORDS:
        has = form == code
        if has.any():
            pieces.add(has, arrow.repeated(word, encoding.BINARY, int(has.sum())))
    has = pieces.missing()
    if has.any():
        found = [variant_of(each) for each in decoded(cut, values.where(has))]
        pieces.add(has, pa.array(found, encoding.BINARY))
    return pieces.array(encoding.BINARY)


def json_values(cut: MessageCut, values: Values) -> Column:
    return json_texts(cut, values, json_value_text, times_are_numbers=False)


def _texts(contents: Column) -> Column:
    sizes = encoding.lengths(contents)
    is_short: Flags = sizes <= _SHORT_TEXT_MAX
    widths = np.where(is_short, 1, 5)
    ends = np.cumsum(widths)
    starts = ends - widths
    data = np.empty(int(ends[-1]), np.uint8)
    data[starts] = np.where(is_short, sizes << 2 | 1, _LONG_TEXT)
    for place in range(4):
        data[starts[~is_short] + 1 + place] = (sizes[~is_short] >> (8 * place)) & 0xFF
    return arrow.joined(encoding.pieces_of(ends, data), contents)


def _add_whole(pieces: Pieces, has: Flags, numbers: Longs) -> None:
    """Each in the least width that holds it."""
    rows = np.flatnonzero(has)
    left: Flags = np.ones(len(numbers), np.bool_)
    for width, first_byte in _WHOLE:
        limit = 1 << (8 * width - 1)
        fits = left if width == 8 else left & (numbers >= -limit) & (numbers < limit)
        if fits.any():
            raw = numbers[fits].astype(f"<i{width}").view(np.uint8).reshape(-1, width)
            both = np.empty((len(raw), width + 1), np.uint8)
            both[:, 0], both[:, 1:] = first_byte, raw
            ends = np.arange(1, len(raw) + 1) * (width + 1)
            pieces.add(rows[fits], encoding.pieces_of(ends, both.reshape(-1)))
        left &= ~fits
