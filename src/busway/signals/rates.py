"""What has flowed in the last hour: messages in, out and dead-lettered, for plots, in memory that is bounded.

Theory of operation. Every ten seconds the counts of all flows are looked at, and what each has grown by is noted.
The namespace as a whole has a slot for each of these looks. An entity that anything flows through has one for each
minute; the busiest have one for each look besides. Who is busy is decided once a minute, by what flowed in the
last minutes. More entities than `KEPT_MAX` are not kept: others come in when one has been silent for a while.

So the memory does not depend on how many entities there are, and a look costs what reading the counters costs:
entities are passed in slices, and nothing is done while a message flows. There is no file: a server that starts
anew begins with an empty hour.
"""

from __future__ import annotations

import asyncio
from array import array
from heapq import nlargest
from typing import Final

from busway.model.entity_path import path_key
from busway.model.flow import FlowCounts, FlowTable

STEP_S: Final = 10
SLOTS: Final = 360
COARSE_STEP_S: Final = 60
COARSE_SLOTS: Final = 60
#: Looks of one coarse slot.
_LOOKS: Final = COARSE_STEP_S // STEP_S
#: Entities with a slot for each look, and all that are kept: together at most 8 MiB.
FINE_MAX: Final = 300
KEPT_MAX: Final = 4_000
#: What was busy counts half as much a minute later.
_FADING: Final = 0.5
#: How long one may be silent while others want its place.
_CROWDED_MINUTES: Final = 5
#: Flows looked at before others have their turn.
_SLICE: Final = 500

#: Messages in, out, dead-lettered.
Growth = tuple[int, int, int]
_NOTHING: Final[Growth] = (0, 0, 0)


class Ring:
    """The last slots of three counts, oldest overwritten."""

    __slots__ = ("_at", "_slots", "_values")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._values = array("f", bytes(4 * 3 * slots))
        self._at = 0

    def put(self, grown: Growth) -> None:
        at = 3 * self._at
        self._values[at], self._values[at + 1], self._values[at + 2] = grown
        self._at = (self._at + 1) % self._slots

    def add_to_last(self, grown: Growth) -> None:
        at = 3 * ((self._at - 1) % self._slots)
        for place, count in enumerate(grown):
            self._values[at + place] += count

    def series(self, place: int) -> list[int]:
        """Oldest first."""
        values = self._values[place::3]
        return [round(value) for value in [*values[self._at :], *values[: self._at]]]


class _Kept:
    """One entity's hour."""

    __slots__ = ("coarse", "fine", "quiet", "score", "seen")

    def __init__(self, seen: Growth) -> None:
        #: The counts at the last look.
        self.seen = seen
        self.coarse = Ring(COARSE_SLOTS)
        self.fine: Ring | None = None
        self.score = 0.0
        #: Minutes in which nothing flowed.
        self.quiet = 0


class RateHistory:
    """Of one server. `start` and `stop` on the loop; `look` is what the timer does."""

    def __init__(self, flows: FlowTable) -> None:
        self._flows = flows
        self._whole = Ring(SLOTS)
        self._whole_seen = _NOTHING
        self._kept: dict[str, _Kept] = {}
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            self._looking.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._ring)

    def _ring(self) -> None:
        """The next time is set first: it comes whatever happens now."""
        self._arm()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self.look())

    # -- what there was

    def of_namespace(self) -> dict[str, object]:
        return _told(self._whole, STEP_S)

    def of_entity(self, path: str) -> dict[str, object]:
        """All zero for one that nothing flowed through."""
        kept = self._kept.get(path_key(path))
        if kept is None:
            return _told(Ring(COARSE_SLOTS), COARSE_STEP_S)
        if kept.fine is not None:
            return _told(kept.fine, STEP_S)
        return _told(kept.coarse, COARSE_STEP_S)

    # -- looking

    async def look(self) -> None:
        is_minute = self._looks % _LOOKS == 0
        self._looks += 1
        self._begin_slots(is_minute)
        flows = self._flows.all()
        into = out = dead = 0
        for first in range(0, len(flows), _SLICE):
            for flow in flows[first : first + _SLICE]:
                now = (flow.messages_in, flow.messages_out, flow.dead_lettered)
                into, out, dead = into + now[0], out + now[1], dead + now[2]
                if sum(now) != flow.noted:
                    self._note(flow, now)
            await asyncio.sleep(0)
        self._whole.put(_difference((into, out, dead), self._whole_seen))
        self._whole_seen = (into, out, dead)
        if is_minute:
            self._choose_busiest()

    def _begin_slots(self, is_minute: bool) -> None:
        """Of all that is kept. Who is deleted is forgotten, and who was silent for an hour; for a few minutes where
        others want the place."""
        patience = _CROWDED_MINUTES if len(self._kept) >= KEPT_MAX else COARSE_SLOTS
        for key, kept in list(self._kept.items()):
            if self._flows.at(key) is None or kept.quiet > patience:
                del self._kept[key]
                continue
            if kept.fine is not None:
                kept.fine.put(_NOTHING)
            if is_minute:
                kept.coarse.put(_NOTHING)
                kept.quiet += 1
                kept.score *= _FADING

    def _note(self, flow: FlowCounts, now: Growth) -> None:
        key = path_key(flow.path)
        is_new = flow.noted == 0
        kept = self._kept.get(key)
        if kept is None and len(self._kept) < KEPT_MAX and self._flows.at(key) is flow:
            # What it had counted before it was kept is no news.
            kept = self._kept[key] = _Kept(_NOTHING if is_new else now)
            kept.coarse.put(_NOTHING)
        flow.noted = sum(now)
        if kept is None:
            return
        grown = _difference(now, _NOTHING if is_new else kept.seen)
        kept.seen = now
        if kept.fine is not None:
            kept.fine.add_to_last(grown)
        kept.coarse.add_to_last(grown)
        kept.score += grown[0] + grown[1]
        kept.quiet = 0

    def _choose_busiest(self) -> None:
        busiest = set(nlargest(FINE_MAX, self._kept, key=lambda key: self._kept[key].score))
        for key, kept in self._kept.items():
            if key not in busiest:
                kept.fine = None
            elif kept.fine is None and kept.score:
                kept.fine = _refined(kept.coarse)


def _difference(now: Growth, seen: Growth) -> Growth:
    """Counts shrink with an entity that is gone, or is made anew under its name: nothing is told of that look."""
    return (max(0, now[0] - seen[0]), max(0, now[1] - seen[1]), max(0, now[2] - seen[2]))


def _refined(coarse: Ring) -> Ring:
    """What is known of the hour so far, each minute spread over its looks."""
    fine = Ring(SLOTS)
    for minute in zip(*(coarse.series(place) for place in range(3)), strict=True):
        for look in range(_LOOKS):
            fine.put((_part(minute[0], look), _part(minute[1], look), _part(minute[2], look)))
    return fine


def _part(count: int, look: int) -> int:
    return count * (look + 1) // _LOOKS - count * look // _LOOKS


def _told(ring: Ring, step_s: int) -> dict[str, object]:
    return {
        "stepSeconds": step_s,
        "in": ring.series(0),
        "out": ring.series(1),
        "deadLettered": ring.series(2),
    }
