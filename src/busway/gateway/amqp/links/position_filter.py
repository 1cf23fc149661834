"""Where a reader wants to begin, as its source's filter says it (H-20, H-22).

The filter `apache.org:selector-filter:string` is a described string; clients describe it by its name or its number.
It holds one comparison, in a language of which nothing else is ever written:

  amqp.annotation.x-opt-offset > '42'              also >=; '-1' is the start, '@latest' the end
  amqp.annotation.x-opt-sequence-number >= '42'
  amqp.annotation.x-opt-enqueued-time > '1700000000000'    milliseconds
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from busway.amqp.performatives import Source
from busway.amqp.types import Char, Described, Symbol, ULong
from busway.broker.errors import BadArgument, NotImplementedByServer
from busway.streams.positions import (
    START,
    Position,
    position_of_number,
    position_of_offset,
    position_of_time,
)

SELECTOR_FILTER: Final = Symbol("apache.org:selector-filter:string")
_SELECTOR_CODE: Final = 0x0000_468C_0000_0004
_CHARACTERS_MAX: Final = 256
_SELECTOR: Final = re.compile(
    r"\s*amqp\.annotation\.(x-opt-offset|x-opt-sequence-number|x-opt-enqueued-time(?:-utc)?)\s*(>=?)\s*'([^']*)'\s*",
    re.ASCII,
)
_READERS: Final[dict[str, Callable[[str, bool], Position]]] = {
    "x-opt-offset": position_of_offset,
    "x-opt-sequence-number": position_of_number,
    "x-opt-enqueued-time": position_of_time,
    "x-opt-enqueued-time-utc": position_of_time,
}


def position_of(source: Source | None) -> Position:
    """Raises BadArgument for a position that cannot be read, NotImplementedByServer for a filter that is not one."""
    filters = None if source is None else source.filter
    if not filters:
        return Position(START)
    selector: str | None = None
    for name, value in filters.items():
        if value is None:
            continue
        if not _is_selector(name, value):
            raise NotImplementedByServer(
                f"The filter '{str(name)[:80]}' is not supported: readers of an event hub can have one that says"
                f" where to begin, '{SELECTOR_FILTER}'."
            )
        selector = _text(value)
    return Position(START) if selector is None else position_in(selector)


def position_in(selector: str) -> Position:
    """The position that a selector names."""
    found = _SELECTOR.fullmatch(selector) if len(selector) <= _CHARACTERS_MAX else None
    if found is None:
        raise BadArgument(
            "The selector filter cannot be read. It compares one of x-opt-offset, x-opt-sequence-number and"
            " x-opt-enqueued-time: amqp.annotation.x-opt-offset > '42'."
        )
    name, comparison, value = found.groups()
    return _READERS[name](value, comparison == ">=")


def _is_selector(name: object, value: object) -> bool:
    """By the filter's key, or by what describes it: some clients use keys of their own."""
    if isinstance(value, Described):
        descriptor = value.descriptor
        return descriptor == SELECTOR_FILTER or (
            isinstance(descriptor, ULong) and descriptor == _SELECTOR_CODE
        )
    return name == SELECTOR_FILTER


def _text(value: object) -> str:
    if isinstance(value, Described):
        value = value.value
    if not isinstance(value, str) or isinstance(value, Symbol | Char):
        raise BadArgument("The selector filter must be a string.")
    return value
