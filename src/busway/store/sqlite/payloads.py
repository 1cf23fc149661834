"""Bodies that several rows share, as the writing connection keeps them.

Theory of operation. Copies of one publish hold the identical bytes object. Where it pays (`rows.shared_bodies`)
such a body is stored once, and its rows hold the payload's number instead. How many rows refer to it stands in a
table of its own. A row that moves takes its reference along. Before rows go, the payloads they refer to are looked
up, and once per batch the counts are brought down and payloads without any reference removed, all in the batch's
transaction.

A flipped bit may cost its own message, never a neighbour's: a payload that is kept for ever does less harm than one
that goes too early. So a payload's number carries a check, and a reference without the right one releases nothing.
And references are counted by a weight that no single bit can bring to zero: a payload goes at exactly zero.

Most fragments never share, and their deletes must not pay: `sharing` names those that ever had such a row.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final
from zlib import crc32

import apsw

from busway.message.message import Message
from busway.store.contract import COUNTER_BITS, FragmentKey, Move
from busway.store.sqlite.queries import by_place, query
from busway.store.sqlite.rows import count_bodies, find_shared, runs, shared_bodies

#: What one reference weighs: a prime, so that the difference that one bit makes is never a number of references.
REFERENCE_WEIGHT: Final = 1_000_003
_CHECK_BITS: Final = 20
_CHECK_MASK: Final = (1 << _CHECK_BITS) - 1
#: Looked at in one turn of the loop.
_PUTS_PER_TURN: Final = 10_000


class Payloads:
    """Shared bodies of one store, for its writer."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        #: Fragments that may have rows with a shared payload; readers look at it, too.
        self.sharing: set[int] = {row[0] for row in cursor.execute(_READ_SHARING)}
        self._last = max(row[0] for row in cursor.execute(_READ_LAST_PAYLOAD)) >> _CHECK_BITS
        #: Payload → rows that the current batch took from it.
        self._released: dict[int, int] = {}

    def begin(self) -> None:
        """A new batch; whatever the last one left undone was rolled back."""
        self._released.clear()

    def keep(
        self, puts: list[tuple[FragmentKey, int, Message]]
    ) -> Generator[None, None, dict[int, int] | None]:
        """Stores the bodies that several puts share: identity of the bytes → payload. Others may go on wherever it
        yields, which it does for very many puts only."""
        if len(puts) <= _PUTS_PER_TURN:
            bodies = shared_bodies(puts)
        else:
            bodies = yield from _shared_bodies(puts)
        if bodies is None:
            return None
        payload_of: dict[int, int] = {}
        rows: list[tuple[int, bytes, int, int]] = []
        for identity, (bare, count) in bodies.items():
            self._last += 1
            payload = payload_number(self._last)
            payload_of[identity] = payload
            rows.append((payload, bare, payload, count * REFERENCE_WEIGHT))
        self._cursor.executemany(_PAYLOAD_PUT, rows)
        for start in range(0, len(puts), _PUTS_PER_TURN):
            if start > 0:
                yield
            some = puts[start : start + _PUTS_PER_TURN]
            self._note_sharing({fragment for fragment, _, message in some if id(message.bare) in payload_of})
        return payload_of

    def note_moves(self, moves: list[Move]) -> None:
        """Rows take their references along, perhaps into fragments that had none."""
        if self.sharing:
            self._note_sharing({move.to_fragment for move in moves if move.from_fragment in self.sharing})

    def _note_sharing(self, fragments: set[FragmentKey]) -> None:
        new = fragments - self.sharing
        if new:
            self._cursor.executemany(_SHARING_FRAGMENT_PUT, [(fragment,) for fragment in new])
            self.sharing |= new

    def release(self, place: int, keys: list[int]) -> None:
        """The rows are about to be deleted."""
        if self.sharing:
            concerned = [key for key in keys if key >> COUNTER_BITS in self.sharing]
            if concerned:
                self._count(self._cursor.executemany(_PAYLOADS_OF_RUN[place], runs(concerned)))

    def release_slice(self, place: int, low: int, high: int, limit: int) -> None:
        """The first rows of a dropped fragment are about to be swept."""
        self._count(self._cursor.execute(_PAYLOADS_OF_SLICE[place], (low, high, limit)))

    def _count(self, references: apsw.Cursor) -> None:
        released = self._released
        for (payload,) in references:
            if payload == payload_number(payload >> _CHECK_BITS):
                released[payload] = released.get(payload, 0) + 1

    def end(self) -> None:
        """Brings the weights down; payloads to which nothing refers any more go."""
        if self._released:
            weights = [(count * REFERENCE_WEIGHT, payload) for payload, count in self._released.items()]
            self._cursor.executemany(_PAYLOAD_RELEASE, weights)
            self._cursor.executemany(_PAYLOAD_DROP, [(payload, payload) for payload in self._released])
            self._released.clear()


def _shared_bodies(
    puts: list[tuple[FragmentKey, int, Message]],
) -> Generator[None, None, dict[int, tuple[bytes, int]] | None]:
    """`shared_bodies`, so many at a time."""
    counts: dict[int, int] = {}
    for start in range(0, len(puts), _PUTS_PER_TURN):
        count_bodies(puts[start : start + _PUTS_PER_TURN], counts)
        yield
    if max(counts.values(), default=0) < 2:
        return None
    found: dict[int, tuple[bytes, int]] = {}
    for start in range(0, len(puts), _PUTS_PER_TURN):
        find_shared(puts[start : start + _PUTS_PER_TURN], counts, found)
        yield
    return found if found else None


def payload_number(count: int) -> int:
    """The number of the store's nth payload, with its check."""
    return count << _CHECK_BITS | crc32(count.to_bytes(8, "big", signed=True)) & _CHECK_MASK


_READ_SHARING: Final = query("read_sharing")
_READ_LAST_PAYLOAD: Final = query("read_last_payload")
_PAYLOAD_PUT: Final = query("payload_put")
_PAYLOADS_OF_RUN: Final = by_place("payloads_of_run")
_PAYLOADS_OF_SLICE: Final = by_place("payloads_of_slice")
_PAYLOAD_RELEASE: Final = query("payload_release")
_PAYLOAD_DROP: Final = query("payload_drop")
_SHARING_FRAGMENT_PUT: Final = query("sharing_fragment_put")
