"""Busway's door for dead letters that go back to work (`busway.gateway.http.letters_route`).

A dead letter leaves the dead-letter queue in the commit that stores it where it goes, so it is its own token: a
request may be made again, by this task or another, and moves only what is still there. What is gone when a request is
made again was moved by the one before, whose answer was lost; what is gone at the first request somebody else took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from busway.client.errors import EntityMissing, Refused, Unreachable
from busway_spark.bus import Bus
from busway_spark.http_door import HttpDoor
from busway_spark.patience import OPERATION_S, Patience
from busway_spark.pipeline.deadletters_plan import GONE, LOCKED, PLANNED, REFUSED, RESUBMITTED

#: Of one request.
LETTERS_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
_LETTER: Final = Struct(">QI")


@dataclass(frozen=True)
class Parcel:
    """What one request moves: numbers, and the changes of each as an encoded map, or nothing."""

    numbers: Sequence[int]
    changes: Sequence[bytes]


@dataclass(frozen=True)
class Told:
    """What became of some letters, all the same: an outcome of `deadletters_plan`."""

    outcome: str
    numbers: list[int]
    detail: str | None = None


class LettersDoor:
    """From one source to one destination."""

    def __init__(self, bus: Bus, source: str, destination: str, limit_s: float = OPERATION_S) -> None:
        self._bus = bus
        self._door = HttpDoor(bus, source, limit_s)
        self._destination = destination
        self._target = f"/$deadletters/{quote(source, safe='/$')}?into={quote(destination, safe='')}"
        self._limit_s = limit_s

    def is_there(self) -> bool:
        """False for a server that has none. Raises ClientError, also when the key does not allow it."""
        try:
            return "gone" in self._ask({})
        except (EntityMissing, Refused):
            return False

    def move(self, parcel: Parcel, *, is_first: bool) -> list[Told]:
        """`is_first`: nobody has tried before to move these. Raises ClientError."""
        patience = Patience(self._bus.target.authority, self._limit_s)
        left = dict(zip(parcel.numbers, parcel.changes, strict=True))
        tried = set() if is_first else set(left)
        gone: list[int] = []
        told: list[Told] = []
        while left:
            try:
                answer = self._ask(left)
            except Unreachable as error:
                if not patience.pause():
                    raise patience.over(error) from error
                tried.update(left)
                continue
            again = {*answer["later"], *answer["unknown"]}
            tried.update(answer["unknown"])
            gone += answer["gone"]
            told += _told(answer)
            others = {*again, *(number for each in told for number in each.numbers), *gone}
            told.append(Told(RESUBMITTED, [number for number in left if number not in others]))
            left = {number: changes for number, changes in left.items() if number in again}
            if left and not patience.pause():
                told.append(Told(PLANNED, list(left), "the server was busy"))
                break
        told.append(Told(RESUBMITTED, [number for number in gone if number in tried]))
        told.append(Told(GONE, [number for number in gone if number not in tried]))
        return [each for each in told if each.numbers]

    def _ask(self, letters: Mapping[int, bytes]) -> dict[str, Any]:
        body = b"".join(_LETTER.pack(number, len(changes)) + changes for number, changes in letters.items())
        # Not by the door itself: what was asked twice must be known here.
        found = json.loads(
            self._door.post(self._target, body, is_repeatable=False, also_for=self._destination)
        )
        return found if isinstance(found, dict) else {}


def _told(answer: Mapping[str, Any]) -> list[Told]:
    refused = [Told(REFUSED, [int(number)], str(why)) for number, why in answer["refused"]]
    return [Told(LOCKED, list(answer["locked"])), *refused]
