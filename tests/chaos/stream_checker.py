"""Is this a history that a correct event hub can produce? Values are unique, so each event can be followed.

A run ends with a `final` reading of every partition from its first event to its last. Whatever anybody saw before
must be there with the same value, number, offset and time, but for what retention took: that lies before the number
with which the partition begins. Every finding is certain: what had no answer may be there or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.checker import Verdict
from tests.chaos.history import FAIL, OK

#: How a reader goes on after it was cut off: at the end of the log and from there on behind the last event it saw; at
#: the beginning, each time; at its last checkpoint.
FOLLOWS, REPLAYS, CHECKPOINTS = "follows", "replays", "checkpoints"


@dataclass(frozen=True)
class Publication:
    """One event, or a batch of them: all of it is stored, side by side, or nothing."""

    publisher: str
    values: tuple[str, ...]
    outcome: str
    done: float = 0.0
    #: None where the hub chooses.
    partition: str | None = None
    #: How often it was sent under the same values.
    attempts: int = 1
    #: However often it is sent, it is stored once.
    is_idempotent: bool = False


@dataclass(frozen=True)
class Seen:
    number: int
    offset: str
    at_ms: int
    value: str
    #: When it came (monotonic seconds).
    came: float = 0.0


@dataclass
class Reading:
    """What one link brought, in order."""

    reader: str
    kind: str
    partition: str
    events: list[Seen] = field(default_factory=list)
    #: Behind this number something was missing → where the partition began when that was seen.
    begins: dict[int, int] = field(default_factory=dict)


@dataclass
class StreamHistory:
    #: Of each publisher in the order of its calls.
    publications: list[Publication] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    #: By partition everything that is there in the end.
    final: dict[str, list[Seen]] = field(default_factory=dict)
    #: By partition the first number that is there in the end.
    begins: dict[str, int] = field(default_factory=dict)

    def begin(self, partition: str) -> int:
        return self.begins.get(partition, 0)


def check_streams(history: StreamHistory, *, known_before: float = float("inf")) -> Verdict:
    """`known_before`: what was acknowledged or seen later does not count (power cuts: an answer may arrive while the
    power is already going)."""
    verdict = Verdict()
    _check_final(history, verdict)
    _check_values(history, known_before, verdict)
    _check_publications(history, known_before, verdict)
    _check_order(history, known_before, verdict)
    _check_readings(history, known_before, verdict)
    _check_checkpoints(history, verdict)
    acknowledged = [each for each in history.publications if each.outcome == OK and each.done < known_before]
    verdict.counts = {
        "sent": sum(len(each.values) for each in acknowledged),
        "received": sum(len(reading.events) for reading in history.readings),
        "repeated": sum(each.attempts - 1 for each in history.publications),
    }
    return verdict


def _check_final(history: StreamHistory, verdict: Verdict) -> None:
    """Numbers without a gap from the beginning on, times that never go back."""
    for partition, events in history.final.items():
        numbers = [event.number for event in events]
        begin = history.begin(partition)
        if numbers != list(range(begin, begin + len(numbers))):
            verdict.found("gap", f"{partition}: {_first_gap(numbers, begin)}")
        for before, after in pairwise(events):
            if after.at_ms < before.at_ms:
                verdict.found("time went back", f"{partition}/{after.number}")


def _first_gap(numbers: list[int], expected: int) -> str:
    for number in numbers:
        if number != expected:
            return f"{number} where {expected} was due"
        expected += 1
    return "none"


def _check_values(history: StreamHistory, known_before: float, verdict: Verdict) -> None:
    """One value for each number, for ever; what was seen stays."""
    final = {
        (partition, event.number): _identity(event)
        for partition, events in history.final.items()
        for event in events
    }
    known = dict(final)
    for reading in history.readings:
        for event in reading.events:
            if event.came >= known_before:
                continue
            place = (reading.partition, event.number)
            if known.setdefault(place, _identity(event)) != _identity(event):
                verdict.found("changed", f"{place}: {event.value} and {known[place][2]}")
            elif place not in final and event.number >= history.begin(reading.partition):
                verdict.found("vanished", f"{place}: {event.value}")


def _identity(event: Seen) -> tuple[str, int, str]:
    return event.offset, event.at_ms, event.value


def _check_publications(history: StreamHistory, known_before: float, verdict: Verdict) -> None:
    places = _places(history)
    expected = {value for each in history.publications for value in each.values}
    for value in places.keys() - expected:
        verdict.found("unexpected", value)
    for publication in history.publications:
        _check_publication(publication, places, history, known_before, verdict)


def _places(history: StreamHistory) -> dict[str, list[tuple[str, int]]]:
    """Where each value is in the end, or was seen before it left."""
    found: dict[str, dict[tuple[str, int], None]] = defaultdict(dict)
    for partition, events in history.final.items():
        for event in events:
            found[event.value][partition, event.number] = None
    for reading in history.readings:
        for event in reading.events:
            if event.number < history.begin(reading.partition):
                found[event.value][reading.partition, event.number] = None
    return {value: sorted(places) for value, places in found.items()}


def _check_publication(
    publication: Publication,
    places: dict[str, list[tuple[str, int]]],
    history: StreamHistory,
    known_before: float,
    verdict: Verdict,
) -> None:
    stored = [places.get(value, []) for value in publication.values]
    name = publication.values[0]
    may_have_left = any(history.begins.values())
    copies_max = 1 if publication.is_idempotent else publication.attempts
    if any(len(each) > copies_max for each in stored):
        verdict.found("doubled", f"{name}: {stored}")
    if publication.outcome == FAIL and any(stored):
        verdict.found("phantom", name)
    is_promised = publication.outcome == OK and publication.done < known_before
    if is_promised and not all(stored) and not may_have_left:
        verdict.found("lost", name)
    if publication.partition is not None and any(
        partition != publication.partition for each in stored for partition, _ in each
    ):
        verdict.found("elsewhere", f"{name}: {stored}")
    if not may_have_left and _is_torn(stored):
        verdict.found("torn", f"{name}: {stored}")


def _is_torn(stored: list[list[tuple[str, int]]]) -> bool:
    """Parts of a batch are missing, or do not lie side by side."""
    if len({len(each) for each in stored}) > 1:
        return True
    for copy in zip(*stored, strict=True):
        partition, first = copy[0]
        if list(copy) != [(partition, first + place) for place in range(len(copy))]:
            return True
    return False


def _check_order(history: StreamHistory, known_before: float, verdict: Verdict) -> None:
    """What a publisher sent after an answer lies behind what the answer was for, in each partition."""
    places = _places(history)
    last: Counter[tuple[str, str]] = Counter()
    for publication in history.publications:
        stored = [place for value in publication.values for place in places.get(value, [])]
        for partition, number in stored:
            if number + 1 <= last[publication.publisher, partition]:
                verdict.found("out of order", f"{publication.values[0]}: {partition}/{number}")
        if publication.outcome == OK and publication.done < known_before:
            for partition, number in stored:
                key = (publication.publisher, partition)
                last[key] = max(last[key], number + 1)


def _check_readings(history: StreamHistory, known_before: float, verdict: Verdict) -> None:
    """No step back and nothing left out, on one link; for a follower over all of its links."""
    reached: dict[tuple[str, str], int] = {}
    for reading in history.readings:
        where = (reading.reader, reading.partition)
        expected = reached.get(where) if reading.kind == FOLLOWS else None
        for event in _known(reading.events, known_before):
            if expected is not None and event.number != expected:
                _check_step(history, reading, expected, event.number, verdict)
            expected = event.number + 1
        if expected is not None:
            reached[where] = expected


def _known(events: Iterable[Seen], known_before: float) -> Iterable[Seen]:
    return (event for event in events if event.came < known_before)


def _check_step(
    history: StreamHistory, reading: Reading, expected: int, number: int, verdict: Verdict
) -> None:
    told = f"{reading.reader} of {reading.partition}: {number} where {expected} was due"
    if number < expected:
        verdict.found("stepped back", told)
    elif reading.begins.get(expected - 1, history.begin(reading.partition)) < number:
        verdict.found("skipped", told)


def _check_checkpoints(history: StreamHistory, verdict: Verdict) -> None:
    """A reader that goes on at its checkpoint has seen each event at least once."""
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    for reading in history.readings:
        if reading.kind == CHECKPOINTS:
            seen[reading.reader, reading.partition].update(event.number for event in reading.events)
    for (reader, partition), numbers in seen.items():
        missed = {event.number for event in history.final.get(partition, [])} - numbers
        if missed:
            verdict.found("missed", f"{reader} of {partition}: {sorted(missed)[:5]}")
