"""Where the parts of many encoded messages lie, found for all of them at once.

Theory of operation. The messages lie in one buffer, each from its start to its end. A walk looks at the same place of
every message in one step, with one operation on arrays for all of them: first section by section, then through the
fields of a list or the entries of a map. So a step costs by the number of places, hardly by the number of messages.

Every size that a message declares is compared with the bytes that are there before anything is read by it. What is
built in a way that the walk does not know (a described value, several body sections, a section out of order, a size
that does not fit) is not judged here: the message is marked as odd, and whoever uses the cut decodes it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
Column: TypeAlias = "pa.Array[Any]"

HEADER: Final = 0x70
ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION: Final = 0x74
DATA: Final = 0x75
#: More entries than this make a message odd: a step for one message alone costs as much as one for all.
ENTRIES_MAX: Final = 64
#: Arrow's offsets of binary arrays.
BYTES_MAX: Final = (1 << 31) - 1

_FIXED_FORMS: Final[tuple[tuple[int, tuple[int, ...]], ...]] = (
    (1, (0x40, 0x41, 0x42, 0x43, 0x44, 0x45)),
    (2, (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56)),
    (3, (0x60, 0x61)),
    (5, (0x70, 0x71, 0x72, 0x73, 0x74)),
    (9, (0x80, 0x81, 0x82, 0x83, 0x84)),
    (17, (0x94, 0x98)),
)
_SHORT_FORMS: Final = (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0)
_LONG_FORMS: Final = (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0)
#: By the first byte of a value: how many bytes it takes without what its size tells, and whether that size has one
#: byte or four. A base so large that it never fits: no such form.
_BASE: Final[Longs] = np.full(256, 1 << 40, np.int64)
_IS_SHORT: Final[Longs] = np.zeros(256, np.int64)
_IS_LONG: Final[Flags] = np.zeros(256, np.bool_)
for _bytes, _forms in _FIXED_FORMS:
    _BASE[list(_forms)] = _bytes
_BASE[list(_SHORT_FORMS)], _IS_SHORT[list(_SHORT_FORMS)] = 2, 1
_BASE[list(_LONG_FORMS)], _IS_LONG[list(_LONG_FORMS)] = 5, True
#: The forms that the value of each section may have, by section. Bodies of other kinds are odd.
_LISTS: Final = (0x45, 0xC0, 0xD0)
_MAPS: Final = (0xC1, 0xD1)
_FITS: Final[Flags] = np.zeros((256, 256), np.bool_)
for _section, _forms in enumerate((_LISTS, _MAPS, _MAPS, _LISTS, _MAPS, (0xA0, 0xB0), (), (), _MAPS), HEADER):
    _FITS[_section, list(_forms)] = True


@dataclass(frozen=True)
class Values:
    """Values of some of the messages, at most one of each, in the messages' order; with the byte of their form."""

    rows: Longs
    at: Longs
    end: Longs

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, wanted: Flags) -> Values:
        return Values(self.rows[wanted], self.at[wanted], self.end[wanted])


@dataclass(frozen=True)
class Entries:
    """The entries that stand at the same place of their maps."""

    names: Values
    values: Values

    def where(self, wanted: Flags) -> Entries:
        return Entries(self.names.where(wanted), self.values.where(wanted))


class MessageCut:
    """`rows`: which messages to cut; all of them when it is not given."""

    def __init__(self, data: bytes, starts: Longs, ends: Longs, rows: Longs | None = None) -> None:
        self.data = data
        self.buffer: pa.Buffer = pa.py_buffer(data)
        self.bytes: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.starts = starts
        self.ends = ends
        self.is_odd: Flags = np.zeros(len(starts), np.bool_)
        self._has_odd = False
        self._sections: dict[int, list[Values]] = {}
        if len(data) > BYTES_MAX:
            raise ValueError("the messages are larger than two gigabytes together")
        self._find_sections(np.arange(len(starts)) if rows is None else rows)

    def section(self, code: int) -> Values:
        """The values of a section, of the messages that have it. None of them is odd."""
        found = self._sections.get(code, [])
        if not found:
            nothing = np.empty(0, np.int64)
            return Values(nothing, nothing, nothing)
        return self.usual(found[0] if len(found) == 1 else _merged(found))

    def fields(self, section: Values) -> list[Values]:
        """The fields of a list, one behind the other; those that are null are left out."""
        found: list[Values] = []
        for step in self._elements(section):
            values = Values(*step)
            is_given = self.byte(values.at) != 0x40
            found.append(values if is_given.all() else values.where(is_given))
        return [self.usual(each) for each in found]

    def entries(self, section: Values) -> list[Entries]:
        """The entries of a map, one behind the other."""
        steps = [Values(*each) for each in self._elements(section)]
        found: list[Entries] = []
        for names, values in zip(steps[::2], steps[1::2], strict=False):
            if len(names) != len(values):
                names = names.where(np.isin(names.rows, values.rows, assume_unique=True))
            found.append(Entries(names, values))
        return [self.usual_entries(each) for each in found]

    def usual_entries(self, entries: Entries) -> Entries:
        """Without those of odd messages."""
        is_odd = self.is_odd[entries.values.rows] if self._has_odd else None
        return entries if is_odd is None or not is_odd.any() else entries.where(~is_odd)

    def usual(self, values: Values) -> Values:
        """Without those of odd messages."""
        is_odd = self.is_odd[values.rows] if self._has_odd else None
        return values if is_odd is None or not is_odd.any() else values.where(~is_odd)

    def message(self, row: int) -> bytes:
        return self.data[int(self.starts[row]) : int(self.ends[row])]

    def byte(self, at: Longs) -> NDArray[np.uint8]:
        if not len(self.bytes):  # messages without a byte: there is nothing to clip to
            return np.zeros(len(at), np.uint8)
        return self.bytes.take(at, mode="clip")

    def long(self, at: Longs) -> Longs:
        """Four bytes as one number."""
        total: Longs = self.byte(at).astype(np.int64)
        for place in range(1, 4):
            total = (total << 8) | self.byte(at + place)
        return total

    def mark_unusual(self, values: Values, is_usual: Flags) -> None:
        """The messages of those values that are not what they usually are."""
        if not is_usual.all():
            self.mark_odd(values.rows[~is_usual])

    def mark_odd(self, rows: Longs) -> None:
        if len(rows):
            self.is_odd[rows] = True
            self._has_odd = True

    # -- the walk

    def _find_sections(self, rows: Longs) -> None:
        at = self.starts[rows]
        last = np.zeros(len(rows), np.int64)
        while len(rows):
            end = self.ends[rows]
            code = self.byte(at + 2).astype(np.int64)
            after = self._behind(at + 3, end)
            fits = (self.byte(at) == 0) & (self.byte(at + 1) == 0x53) & (code > last) & (after >= 0)
            fits &= _FITS[code, self.byte(at + 3)]
            if not fits.all():
                self.mark_odd(rows[~fits])
                rows, at, code, after, end = rows[fits], at[fits], code[fits], after[fits], end[fits]
            values = Values(rows, at + 3, after)
            for each in np.flatnonzero(np.bincount(code)).tolist():
                has = code == each
                found = values if has.all() else values.where(has)
                self._sections.setdefault(each, []).append(found)
            goes_on = after < end
            rows, at, last = rows[goes_on], after[goes_on], code[goes_on]

    def _elements(self, section: Values) -> Iterator[tuple[Longs, Longs, Longs]]:
        """Of a list or map: rows, starts and ends of the first elements, of the second ones, and so on."""
        rows, counts, at, end = self._compound(section)
        while len(rows):
            after = self._behind(at, end)
            fits = after >= 0
            if not fits.all():
                self.mark_odd(rows[~fits])
                rows, counts, at, end, after = rows[fits], counts[fits], at[fits], end[fits], after[fits]
            yield rows, at, after
            goes_on = counts > 1
            self.mark_odd(rows[~goes_on & (after != end)])
            if goes_on.all():
                at, counts = after, counts - 1
            else:
                rows, counts = rows[goes_on], counts[goes_on] - 1
                at, end = after[goes_on], end[goes_on]

    def _compound(self, section: Values) -> tuple[Longs, Longs, Longs, Longs]:
        """(rows, counts, first elements, ends) of those that have elements."""
        at, form = section.at, self.byte(section.at)
        is_short = (form == 0xC0) | (form == 0xC1)
        counts = np.where(is_short, self.byte(at + 2), 0).astype(np.int64)
        is_long = (form == 0xD0) | (form == 0xD1)
        if is_long.any():
            counts[is_long] = self.long(at[is_long] + 5)
        first = at + np.where(is_short, 3, np.where(is_long, 9, 1))
        is_odd = (counts > 2 * ENTRIES_MAX) | (first > section.end)
        is_odd |= (counts == 0) & (first != section.end)
        is_odd |= ((form == 0xC1) | (form == 0xD1)) & (counts & 1 == 1)
        self.mark_odd(section.rows[is_odd])
        wanted = (counts > 0) & ~is_odd
        return section.rows[wanted], counts[wanted], first[wanted], section.end[wanted]

    def _behind(self, at: Longs, end: Longs) -> Longs:
        """Where the values end that begin here; -1 for those that do not fit, or have no form that is known."""
        form = self.byte(at)
        after = at + _BASE.take(form) + _IS_SHORT.take(form) * self.byte(at + 1)
        is_long = _IS_LONG.take(form)
        if is_long.any():
            after[is_long] += self.long(at[is_long] + 1)
        after[(after > end) | (at >= end)] = -1
        return after


def _merged(found: list[Values]) -> Values:
    """In the messages' order."""
    rows = np.concatenate([each.rows for each in found])
    order = np.argsort(rows, kind="stable")
    at = np.concatenate([each.at for each in found])[order]
    return Values(rows[order], at, np.concatenate([each.end for each in found])[order])


def joined(payloads: Sequence[bytes]) -> tuple[bytes, Longs, Longs]:
    """Messages that came one by one in one buffer, with their starts and ends."""
    ends: NDArray[Any] = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    starts = np.zeros(len(payloads), np.int64)
    starts[1:] = ends[:-1]
    return b"".join(payloads), starts, ends
