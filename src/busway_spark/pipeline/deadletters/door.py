"""Busway's door for dead letters that go back to work (`busway.gateway.http.bulk.letters_route`).

A dead letter leaves the dead-letter queue in the commit that stores it where it goes, so it is its own token: a
request may be made again, by this task or another, and moves only what is still there. What is gone when a request is
made again was moved by the one before, whose answer was lost; what is gone at the first request somebody else took.

Letters are packed by the driver as the request wants them, and only what is asked for again is unpacked here: a task
does nothing for each letter that goes well.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from busway.client.errors import EntityMissing, Refused, Unreachable
from busway_spark.pipeline.deadletters.plan import GONE, LOCKED, PLANNED, REFUSED
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpDoor
from busway_spark.wire.patience import OPERATION_S, Patience

#: Of one request.
LETTERS_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
_LETTER: Final = Struct(">QI")

#: A number, and what is changed as an encoded map, or nothing.
Letter = tuple[int, bytes]


def packed(letters: Iterable[Letter]) -> bytes:
    """The body of a request."""
    pack = _LETTER.pack
    return b"".join([pack(number, len(changes)) + changes for number, changes in letters])


def first_number(body: bytes) -> int:
    """Of the first letter in a body."""
    number: int = _LETTER.unpack_from(body)[0]
    return number


def unpacked(body: bytes) -> Iterator[Letter]:
    at = 0
    while at < len(body):
        number, length = _LETTER.unpack_from(body, at)
        at += _LETTER.size + length
        yield number, body[at - length : at]


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
            return "gone" in self._ask(b"")
        except (EntityMissing, Refused):
            return False

    def move(self, letters: bytes, *, is_first: bool) -> list[Told]:
        """What became of those packed letters that were not moved; all others were. `is_first`: nobody has tried them
        before. Raises ClientError."""
        patience = Patience(self._bus.target.authority, self._limit_s)
        left = letters
        are_tried, tried = not is_first, set[int]()
        told: list[Told] = []
        while True:
            try:
                answer = self._ask(left)
            except Unreachable as error:
                if not patience.pause():
                    raise patience.over(error) from error
                are_tried = True
                continue
            told += _told(answer)
            if not are_tried:
                told.append(Told(GONE, [number for number in answer["gone"] if number not in tried]))
            tried.update(answer["unknown"])
            again = {*answer["later"], *answer["unknown"]}
            if not again:
                break
            left = _only(left, again)
            if not patience.pause():
                told.append(Told(PLANNED, sorted(again), "the server was busy"))
                break
        return [each for each in told if each.numbers]

    def _ask(self, letters: bytes) -> dict[str, Any]:
        # Not by the door itself: what was asked twice must be known here.
        found = json.loads(
            self._door.post(self._target, letters, is_repeatable=False, also_for=self._destination)
        )
        return found if isinstance(found, dict) else {}


def _only(letters: bytes, wanted: Container[int]) -> bytes:
    return packed(letter for letter in unpacked(letters) if letter[0] in wanted)


def _told(answer: Mapping[str, Any]) -> list[Told]:
    refused = [Told(REFUSED, [int(number)], str(why)) for number, why in answer["refused"]]
    return [Told(LOCKED, list(answer["locked"])), *refused]
