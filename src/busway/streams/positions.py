"""Where a reader begins (H-20, H-22), and the texts that say so."""

from __future__ import annotations

from typing import Final

from busway.model.entity_path import shown
from busway.model.errors import BadArgument

START: Final = 0
LATEST: Final = 1
NUMBER: Final = 2
TIME: Final = 3

_START_TEXT: Final = "-1"
_LATEST_TEXT: Final = "@latest"
_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19


class Position:
    """`value` is a number, or a time in milliseconds; the reader begins with it when `is_inclusive`, else behind."""

    __slots__ = ("is_inclusive", "is_offset", "kind", "value")

    def __init__(
        self, kind: int, value: int = -1, is_inclusive: bool = False, is_offset: bool = False
    ) -> None:
        self.kind = kind
        self.value = value
        self.is_inclusive = is_inclusive
        #: It was said as an offset, so that is what its faults speak of. Offsets are numbers here.
        self.is_offset = is_offset

    def first_number(self) -> int:
        """Of a number: the first that it admits."""
        return self.value if self.is_inclusive else self.value + 1

    def first_ms(self) -> int:
        """Of a time: the first that it admits."""
        return self.value if self.is_inclusive else self.value + 1

    def behind_the_end(self, last_number: int) -> BadArgument:
        """H-22, in the words that clients know."""
        what = "offset" if self.is_offset else "sequence number"
        return BadArgument(
            f"The supplied {what} '{self.value}' is invalid. The last {what} in the system is '{last_number}'"
        )

    def __repr__(self) -> str:
        return f"Position({self.kind}, {self.value}, {self.is_inclusive}, {self.is_offset})"


def position_of_offset(text: str, inclusive: bool) -> Position:
    """`-1` is the start, `@latest` the end. Raises BadArgument."""
    if text == _START_TEXT:
        return Position(START)
    if text == _LATEST_TEXT:
        return Position(LATEST)
    return Position(NUMBER, _whole("offset", text), inclusive, True)


def position_of_number(text: str, inclusive: bool) -> Position:
    """Before the first number there is the start. Raises BadArgument."""
    if text == _START_TEXT:
        return Position(START)
    return Position(NUMBER, _whole("sequence number", text), inclusive)


def position_of_time(text_ms: str, inclusive: bool) -> Position:
    """Milliseconds since 1970; before that is the start. Raises BadArgument."""
    if text_ms.startswith("-"):
        _whole("enqueued time", text_ms[1:])
        return Position(START)
    return Position(TIME, _whole("enqueued time", text_ms), inclusive)


def _whole(what: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        value = int(text)
        if value <= _NUMBER_MAX:
            return value
    raise BadArgument(f"The supplied {what} {shown(text)} is invalid. It must be a whole number.")
