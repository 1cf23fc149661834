"""A claim: which messages a micro-batch of a stream consists of, as it stands in Spark's offset log.

    {"version": 2, "entity": "orders", "claim": 7, "stamp": "5f0c…", "held": [[1041, 250], [1300, 12]]}

`held` lists runs of sequence numbers, [first, count]; when they are many it is a text instead. `claim` counts from 1;
0 is before the first. Everything that a restart needs is in here, so nothing is searched for.

The text of many numbers is short (`packed`): ascending numbers are told by their gaps. A gap has eight bytes, of
which the upper ones are mostly zero: so all lowest bytes come first, then all second ones, and so on, and the whole
is deflated. Twenty thousand numbers with gaps of some ten thousands come to two bytes each. The text is base 85,
which JSON need not escape.

Which session a message belongs to is not in it, only that there are sessions ("sessions": true): their ids are often
names of customers, and there may be as many of them as messages. The bus knows; whoever needs it asks there
(`knows_sessions`). Offsets of version 1, which bear no number, had the session as the third item of a run.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

import numpy as np

#: Numbers of one claim: what a server gives at most, and one session more.
COUNT_MAX: Final = 101_000
_WIDTH: Final = 8
#: Numbers, ascending, by session; None is the key where there are no sessions, or nobody has said which.
Held = dict[str | None, list[int]]
_VERSION: Final = 2
#: Spark writes an offset to its log, and into each progress of the query.
OFFSET_BYTES_MAX: Final = 64 * 1024
#: As long as they are few, people can read them.
_RUNS_SHOWN_MAX: Final = 500


def packed(numbers: list[int]) -> str:
    """They ascend."""
    gaps = np.diff(np.array(numbers, np.int64), prepend=0).astype("<u8")
    planes = gaps.view(np.uint8).reshape(-1, _WIDTH).T
    return base64.b85encode(zlib.compress(planes.tobytes(), 9)).decode()


def unpacked(text: str) -> list[int]:
    """Raises ValueError for what `packed` has not made."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b85decode(text), COUNT_MAX * _WIDTH + 1)
    except zlib.error as error:
        raise ValueError("the numbers cannot be unpacked") from error
    if not unpacking.eof or not data or len(data) % _WIDTH or len(data) > COUNT_MAX * _WIDTH:
        raise ValueError("the numbers are cut off, or too many")
    planes = np.frombuffer(data, np.uint8).reshape(_WIDTH, -1)
    gaps = np.ascontiguousarray(planes.T).view("<u8").reshape(-1).astype(np.int64)
    if bool((gaps[1:] < 1).any()) or int(gaps[0]) < 0:
        raise ValueError("the numbers do not ascend")
    numbers = np.cumsum(gaps)
    if bool((np.diff(numbers) < 1).any()):
        raise ValueError("the numbers do not ascend")
    found: list[int] = numbers.tolist()
    return found


class WrongOffset(ValueError):
    """The checkpoint does not fit the query."""


@dataclass(frozen=True)
class Claim:
    entity: str
    number: int = 0
    #: What the messages that it holds bear; unique, so that nobody else's deferred messages are taken for its own.
    stamp: str = ""
    held: Held = field(default_factory=dict)
    has_sessions: bool = False

    @property
    def knows_sessions(self) -> bool:
        """Whether `held` tells them apart."""
        return not self.has_sessions or None not in self.held

    def next_of(self, taken: Iterable[tuple[str | None, int]]) -> Claim:
        held: Held = {}
        for session_id, number in taken:
            held.setdefault(session_id, []).append(number)
        return self.next_holding(uuid4().hex, held)

    def next_holding(self, stamp: str, held: Held) -> Claim:
        ordered = {session_id: sorted(numbers) for session_id, numbers in held.items()}
        return Claim(self.entity, self.number + 1, stamp, ordered, None not in held and bool(held))

    def numbers(self) -> list[int]:
        """All of them, ascending."""
        return sorted(number for numbers in self.held.values() for number in numbers)

    def only(self, wanted: Callable[[int], bool]) -> Claim:
        """The same claim without the other messages."""
        found = {session_id: list(filter(wanted, numbers)) for session_id, numbers in self.held.items()}
        return replace(self, held={session_id: numbers for session_id, numbers in found.items() if numbers})

    def fitting(self) -> Claim:
        """As much of it as an offset has room for; sessions whole."""
        claim = self
        while (size := len(json.dumps(claim.offset()))) > OFFSET_BYTES_MAX:
            wanted = len(claim.numbers()) * OFFSET_BYTES_MAX // size - 1
            claim = replace(self, held=_first_of(self.held, wanted))
        return claim

    def offset(self) -> dict[str, object]:
        numbers = self.numbers()
        runs = runs_of(numbers)
        told: dict[str, object] = {
            "version": _VERSION,
            "entity": self.entity,
            "claim": self.number,
            "stamp": self.stamp,
            "held": [list(run) for run in runs] if len(runs) <= _RUNS_SHOWN_MAX else packed(numbers),
        }
        return {**told, "sessions": True} if self.has_sessions else told

    @classmethod
    def of_offset(cls, offset: Mapping[str, object], entity: str) -> Claim:
        """Raises WrongOffset."""
        number, stamp, version = offset.get("claim"), offset.get("stamp"), offset.get("version", 1)
        if not isinstance(number, int) or not isinstance(stamp, str) or not isinstance(version, int):
            raise WrongOffset("The checkpoint holds no offset of a 'servicebus' stream.")
        if version > _VERSION:
            raise WrongOffset(
                "The checkpoint was written by a later version of Busway: go on with that version, or use another"
                " checkpointLocation."
            )
        if offset.get("entity") != entity:
            raise WrongOffset(
                f"The checkpoint belongs to '{str(offset.get('entity'))[:260]}', the query reads '{entity}'. "
                "Use another checkpointLocation."
            )
        held = _held(offset.get("held"))
        has_sessions = offset.get("sessions") is True or (bool(held) and None not in held)
        return cls(entity, number, stamp, held, has_sessions)


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][0] + found[-1][1] == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


def _first_of(held: Held, count: int) -> Held:
    """So many of them, about: at least one message, or one session."""
    if None in held:
        return {None: held[None][: max(count, 1)]}
    found: Held = {}
    for session_id, numbers in held.items():
        count -= len(numbers)
        if count < 0 and found:
            break
        found[session_id] = numbers
    return found


def _held(given: object) -> Held:
    if isinstance(given, str):
        try:
            return {None: unpacked(given)}
        except ValueError as error:
            raise WrongOffset("The checkpoint holds numbers of messages that cannot be read.") from error
    if not isinstance(given, list):
        raise WrongOffset("The checkpoint holds no offset of a 'servicebus' stream.")
    held: Held = {}
    left = COUNT_MAX
    for run in given:
        match run:
            case [int(first), int(count), str(session_id)]:
                numbers = held.setdefault(session_id, [])
            case [int(first), int(count)]:
                numbers = held.setdefault(None, [])
            case _:
                raise WrongOffset("The checkpoint holds a run of messages that cannot be read.")
        left -= count
        if first < 0 or count < 1 or left < 0:
            raise WrongOffset("The checkpoint holds a run of messages that cannot be read.")
        numbers.extend(range(first, first + count))
    return held
