"""Messages whose sections stand in another order than the standard's, put in order.

rhea writes the footer before the body. Such a message says what it means, so it is taken; but what is stored and
delivered is a message as it should be, because other clients read it. Only the order is forgiven: a section that
comes twice, bodies of two kinds, and whatever is no section are refused as ever. Few messages come this way: the
others are scanned where they lie.
"""

from __future__ import annotations

from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.sections import (
    BODY_SECTIONS_MAX,
    DATA,
    FOOTER,
    HEADER,
    SEQUENCE,
    OutOfOrder,
    Sections,
    batch_contents,
    scan,
    section_at,
)


def in_order(payload: bytes) -> bytes:
    """The same sections in the order of the standard; those of a body keep theirs. Raises DecodeError."""
    places: list[list[bytes]] = [[] for _ in range(HEADER, FOOTER + 1)]
    start = 0
    size = len(payload)
    body_kind = 0
    while start < size:
        code, at = section_at(payload, start, size)
        end = skip_value(payload, at, size)
        place = places[code - HEADER]
        if place and code != DATA and code != SEQUENCE:
            raise DecodeError(f"The section {code:#04x} comes twice")
        if len(place) >= BODY_SECTIONS_MAX:
            raise DecodeError("The message has too many sections")
        if DATA <= code < FOOTER:
            if body_kind != 0 and code != body_kind:
                raise DecodeError("The body mixes sections of different kinds")
            body_kind = code
        place.append(payload[start:end])
        start = end
    return b"".join([section for place in places for section in place])


def scan_in_order(payload: bytes) -> tuple[bytes, Sections]:
    """The sections of a message and where they lie, in the payload itself or in one that was put in order."""
    try:
        return payload, scan(payload)
    except OutOfOrder:
        ordered = in_order(payload)
        return ordered, scan(ordered)


def split_batch(payload: bytes) -> list[bytes]:
    """The encoded messages in a batch (BATCH_FORMAT): the content of each data section. Everything else of the
    envelope is ignored. A batch without messages is malformed."""
    ordered, found = scan_in_order(payload)
    if found.body_kind != DATA:
        raise DecodeError("A batch holds no data sections")
    return batch_contents(ordered, found)
