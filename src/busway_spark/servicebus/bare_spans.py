"""Where the parts of many bare messages lie, found for all of them at once.

Theory of operation. A bare message is a few AMQP sections: properties (a list whose fields are mostly short strings),
application properties (a map), a body of one data section. All messages of a run are walked together, with arrays of
positions: the first field of every message, then the second one, and so on. The upper half of the byte before an AMQP
value tells how long it is, so a field that nobody wants is skipped whatever it is. A message that is built in another
way (another form of body, a footer, an id that is no text) is *odd*: it is left to whoever decodes single messages.

No position is used before it is known to lie inside of its message: what came over the wire is never trusted.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: The fields of the properties section that are texts, by the column that shows them.
FIELDS: Final = {
    "messageId": 0, "to": 2, "subject": 3, "replyTo": 4, "correlationId": 5, "contentType": 6, "sessionId": 10,
    "replyToSessionId": 12,
}  # fmt: skip
_FIELDS_MAX: Final = 13
_PROPERTIES: Final = 0x73
_APPLICATION: Final = 0x74
_DATA: Final = 0x75
_NULL: Final = 0x40
#: Bytes of a value behind its constructor by the constructor's upper half; -1: a length of one byte, -4: of four.
_WIDTHS: Final = np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4], np.int64)
_TEXTS: Final = np.zeros(256, np.bool_)
_TEXTS[[0xA1, 0xA3, 0xB1, 0xB3]] = True


class Spans:
    """Positions in `data`. `ends` of what is not there equal its `starts`, and `is_there` says so."""

    __slots__ = ("ends", "is_there", "starts")

    def __init__(self, starts: Longs, ends: Longs, is_there: Flags) -> None:
        self.starts = starts
        self.ends = ends
        self.is_there = is_there


class BareSpans:
    """The parts of messages that lie one behind another in `data`: the first from `starts[0]` to `ends[0]`, …"""

    def __init__(self, data: bytes, starts: Longs, ends: Longs, wanted: frozenset[str]) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        self._last = max(len(data) - 1, 0)
        self._starts, self._ends = starts, ends
        self.odd: Flags = np.zeros(len(starts), np.bool_)
        self.fields: dict[str, Spans] = {}
        at = self._walk_properties(starts, wanted)
        self.application, at = self._section(at, _APPLICATION, 0xC1, 0xD1)
        self.body = self._walk_body(at)

    # -- sections

    def _walk_properties(self, at: Longs, wanted: frozenset[str]) -> Longs:
        """Finds the texts that are wanted; where the section ends."""
        has, form = self._begins(at, _PROPERTIES), self._byte(at + 3)
        is_short, is_empty = has & (form == 0xC0), has & (form == 0x45)
        self.odd |= has & ~is_short & ~is_empty
        end = np.where(is_short, at + 5 + self._byte(at + 4), np.where(is_empty, at + 4, at))
        is_short = self._inside(is_short, end)
        left = np.where(is_short, self._byte(at + 5), 0)
        self.odd |= left > _FIELDS_MAX
        names = {field: name for name, field in FIELDS.items() if name in wanted}
        place = at + 6
        for field in range(_FIELDS_MAX):
            active = (field < left) & ~self.odd
            if field in names:
                self.fields[names[field]] = self._text(active, place)
            if not active.any():
                continue
            place = np.where(active, self._after(place), place)
        self.odd |= is_short & (place != end)
        return end

    def _section(self, at: Longs, code: int, short: int, long: int) -> tuple[Spans, Longs]:
        """A map where there is one, and what comes behind it."""
        has, form = self._begins(at, code), self._byte(at + 3)
        is_short, is_long = has & (form == short), has & (form == long)
        self.odd |= has & ~is_short & ~is_long
        end = np.where(is_short, at + 5 + self._byte(at + 4), at)
        end = np.where(is_long, at + 8 + self._four(at + 4), end)
        there = self._inside(is_short | is_long, end)
        end = np.where(there, end, at)
        return Spans(np.where(there, at + 3, at), end, there), end

    def _walk_body(self, at: Longs) -> Spans:
        """One data section and nothing behind it."""
        has, form = self._begins(at, _DATA), self._byte(at + 3)
        is_short, is_long = has & (form == 0xA0), has & (form == 0xB0)
        start = np.where(is_short, at + 5, at + 8)
        end = np.where(is_short, start + self._byte(at + 4), start + self._four(at + 4))
        self.odd |= ~((is_short | is_long) & (end == self._ends))
        there = ~self.odd
        return Spans(np.where(there, start, self._starts), np.where(there, end, self._starts), there)

    # -- values

    def _text(self, active: Flags, at: Longs) -> Spans:
        code = self._byte(at)
        is_text = active & _TEXTS[code]
        self.odd |= active & ~is_text & (code != _NULL)
        is_short = code < 0xB0
        start = at + np.where(is_short, 2, 5)
        end = start + np.where(is_short, self._byte(at + 1), self._four(at + 1))
        there = self._inside(is_text, end)
        return Spans(np.where(there, start, self._starts), np.where(there, end, self._starts), there)

    def _after(self, at: Longs) -> Longs:
        """Where the value at each position ends; it may lie outside of the message."""
        width = _WIDTHS[self._byte(at) >> 4]
        behind = np.where(width == -1, 1 + self._byte(at + 1), width)
        return at + 1 + np.where(width == -4, 4 + self._four(at + 1), behind)

    def _begins(self, at: Longs, code: int) -> Flags:
        found: Flags = (
            ~self.odd
            & (at + 3 < self._ends)
            & (self._byte(at) == 0)
            & (self._byte(at + 1) == 0x53)
            & (self._byte(at + 2) == code)
        )
        return found

    def _inside(self, there: Flags, end: Longs) -> Flags:
        """Those whose end lies in their message; the others are odd."""
        outside = there & (end > self._ends)
        self.odd |= outside
        return there & ~outside

    def _byte(self, at: Longs) -> Longs:
        found: Longs = self._bytes[np.minimum(at, self._last)].astype(np.int64)
        return found

    def _four(self, at: Longs) -> Longs:
        value = self._byte(at)
        for step in (1, 2, 3):
            value = value << 8 | self._byte(at + step)
        return value
