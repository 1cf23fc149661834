"""Every entity in one row, looked at once a second for all who watch, told as what has changed.

Theory of operation. While anybody watches, the overview looks at the bus: first at digests of all counters, which
cost next to nothing and say whether anything has changed at all; only then at each entity, some of them at a time,
so that a look at ten thousand delays nobody. A row that differs from the one before is written as JSON, once for all
who watch, under the next version. Whoever watches remembers the version he has seen and is told the rows that are
newer: one who is slow misses nothing and makes nobody keep anything for him.

A look waits so long after the one before that looking takes at most a fiftieth of the time, whatever is there.

What is in a row is said by COLUMNS; a page is told it without an end that is as usual. Rates are those since the look
before; a hub's active messages are its events.
Numbers that cannot be known, because the store is away, are null (E-104).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.event_loop import BackgroundWork
from busway.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.entity_path import path_key
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription

LOOK_EVERY_S: Final = 1.0
#: Of the time, at most this part is spent looking.
LOOK_SHARE: Final = 0.02
#: Rows looked at before others have their turn, and rows in one piece of what is told.
_SLICE: Final = 100
PIECE_ROWS: Final = 500
#: Deleted entities that are remembered; who has seen less is told everything again.
GONE_MAX: Final = 10_000

#: What is in a row.
COLUMNS: Final = (
    *("path", "kind", "status", "active", "deadLettered", "scheduled", "deferred", "transfer"),
    *("transferDeadLettered", "sizeInBytes", "inPerSecond", "outPerSecond", "fragments", "availability"),
    "requiresSession",
)
#: Cells that a row always has, and what most rows have in those that follow.
_NAMED: Final = 2
_USUAL: Final = ("Active", 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, "Available", False)
_KINDS: Final[dict[type[Description], str]] = {
    QueueDescription: "queue",
    TopicDescription: "topic",
    SubscriptionDescription: "subscription",
}
_COUNTERS: Final = attrgetter("last_counter", "active", "deferred", "scheduled", "bytes")
_FLOWS: Final = attrgetter("messages_in", "messages_out")
#: Of `RuntimeCounts`, as columns have them.
_NUMBERS: Final = attrgetter(
    "active", "dead_letter", "scheduled", "deferred", "transfer", "transfer_dead_letter", "size_bytes"
)
_IN: Final = COLUMNS.index("inPerSecond")
_OUT: Final = COLUMNS.index("outPerSecond")

Cells = list[object]


class Piece(NamedTuple):
    """A part of what is told."""

    #: All there is, not what has changed: what is not told is not there.
    is_whole: bool
    is_last: bool
    version: int
    rows: list[str]
    gone: list[str]

    def text(self) -> str:
        """Rows are JSON already."""
        flags = f'"whole":{_word(self.is_whole)},"last":{_word(self.is_last)},"version":{self.version}'
        return f'{{"type":"rows",{flags},"rows":[{",".join(self.rows)}],"gone":{json.dumps(self.gone)}}}'


class _Entry:
    __slots__ = ("cells", "flows", "key", "looked_at_s", "text", "version")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cells: Cells = []
        self.text = ""
        self.version = 0
        #: Messages in and out at the last look.
        self.flows = (0, 0)
        self.looked_at_s = 0.0


class Overview:
    """Of one bus."""

    def __init__(self, namespace: Namespace, hubs: EventHubs | None, clock: Clock) -> None:
        self._namespace = namespace
        self._hubs = hubs
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        #: Counts the looks that have found something.
        self.version = 0
        self._gone: deque[tuple[int, str, str]] = deque()
        #: The last version of which what has gone since is known.
        self._gone_known_from = 0
        self._state: object = None
        #: Something flowed at the last look: rates must come back to zero.
        self._is_flowing = False
        self._looked_at_s = 0.0
        self._looking: asyncio.Task[bool] | None = None
        self._work = BackgroundWork()
        self._watchers: set[Callable[[], None]] = set()
        self._watching: asyncio.Task[None] | None = None
        #: Version seen → what is told to everybody who has.
        self._told: dict[int, list[str]] = {}

    # -- who watches

    def watch(self, looked: Callable[[], None]) -> Callable[[], None]:
        """Calls back after each look. Returns the un-watch."""
        self._watchers.add(looked)
        if self._watching is None or self._watching.done():
            self._watching = self._work.start(self._watch())

        def unwatch() -> None:
            self._watchers.discard(looked)

        return unwatch

    async def close(self) -> None:
        self._watchers.clear()
        await self._work.close()

    async def _watch(self) -> None:
        """For as long as anybody does."""
        while self._watchers:
            began_s = self._clock.monotonic()
            await self.look()
            for looked in list(self._watchers):
                looked()
            took_s = self._clock.monotonic() - began_s
            await asyncio.sleep(max(LOOK_EVERY_S - took_s, took_s / LOOK_SHARE))

    # -- what is told

    async def fresh(self) -> None:
        """A look that is at most a second old."""
        if not self.version or self._clock.monotonic() - self._looked_at_s > LOOK_EVERY_S:
            await self.look()

    def texts(self, seen: int) -> list[str]:
        """What is new since that version, made once for all who have seen it. 0: everything."""
        if seen == self.version:
            return []
        if seen not in self._told:
            self._told[seen] = [piece.text() for piece in self.pieces(seen)]
        return self._told[seen]

    def rows(self) -> list[Cells]:
        """All of them, in full."""
        return [entry.cells for entry in self._entries.values()]

    def pieces(self, seen: int, below: str | None = None) -> Iterator[Piece]:
        """`below`: only this entity, and the subscriptions of a topic."""
        is_whole = seen < self._gone_known_from or seen == 0
        newer = [
            entry.text
            for entry in self._entries.values()
            if (is_whole or entry.version > seen) and _is_at(entry.key, below)
        ]
        gone = [] if is_whole else [path for at, path, key in self._gone if at > seen and _is_at(key, below)]
        firsts = range(0, max(len(newer), 1), PIECE_ROWS)
        for first in firsts:
            is_last = first == firsts[-1]
            rows = newer[first : first + PIECE_ROWS]
            yield Piece(is_whole and first == 0, is_last, self.version, rows, gone if is_last else [])

    # -- looking

    async def look(self) -> bool:
        """Whether anything has changed. Whoever asks while a look is under way gets the same one."""
        if self._looking is None or self._looking.done():
            self._looking = self._work.start(self._look())
        await asyncio.wait([self._looking])
        return not self._looking.cancelled() and self._looking.result()

    async def _look(self) -> bool:
        state = self._state_of_all()
        self._looked_at_s = self._clock.monotonic()
        if state == self._state and not self._is_flowing:
            return False
        self._state = state
        next_version = self.version + 1
        has_changed = self._is_flowing = False
        present: set[str] = set()
        for at, (key, read) in enumerate(self._listed()):
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            cells = read()
            if cells is None:  # deleted meanwhile
                continue
            present.add(key)
            has_changed |= self._note(key, cells, next_version)
        for key in [key for key in self._entries if key not in present]:
            entry = self._entries.pop(key)
            self._gone.append((next_version, str(entry.cells[0]), key))
            has_changed = True
        while len(self._gone) > GONE_MAX:
            self._gone_known_from = self._gone.popleft()[0]
        if has_changed or not self.version:
            self.version = next_version
            self._told.clear()
        return has_changed

    def _state_of_all(self) -> object:
        """Differs when anything has changed: an entity, a counter, a store, a flow."""
        contents = self._namespace.contents
        stores = tuple(
            (keeper.state, hash(tuple(map(_COUNTERS, list(keeper.counters.values())))))
            for keeper in contents.keepers.values()
        )
        flows = hash(tuple(map(_FLOWS, self._namespace.flows.all())))
        return (contents.catalogue.version, stores, flows)

    def _listed(self) -> list[tuple[str, Callable[[], Cells | None]]]:
        """Keys, and how each is looked at."""
        found: list[tuple[str, Callable[[], Cells | None]]] = [
            (key, partial(self._entity_cells, key)) for key in self._namespace.listed_keys()
        ]
        if self._hubs is not None:
            found += [(path_key(hub.path), partial(self._hub_cells, hub)) for hub in self._hubs.hubs()]
        return found

    def _entity_cells(self, key: str) -> Cells | None:
        entities = self._namespace.contents.entities
        row = entities.rows.get(key)
        if row is None:
            return None
        description, counts = row.description, entities.counts.of(row)
        numbers: Cells = [None] * 7
        if counts.availability != "Unknown":
            numbers = list(_NUMBERS(counts))
        head = [description.path, _KINDS[type(description)], description.status]
        requires_session = getattr(description, "requires_session", False)
        return [*head, *numbers, 0, 0, len(row.shares), counts.availability, requires_session]

    def _hub_cells(self, hub: EventHubDescription) -> Cells | None:
        hubs = self._hubs
        if hubs is None or not hubs.exists(hub.path):
            return None
        logs = [log.info() for log in hubs.hub(hub.path).logs()]
        numbers: Cells = [None] * 7
        if logs:
            numbers = [sum(log.events for log in logs), 0, 0, 0, 0, 0, sum(log.bytes for log in logs)]
        missing = hub.partition_count - len(logs)
        availability = "Available" if not missing else "Limited" if logs else "Unknown"
        return [hub.path, "hub", hub.status, *numbers, 0, 0, hub.partition_count, availability, False]

    def _note(self, key: str, cells: Cells, version: int) -> bool:
        """Whether the row is new or has changed."""
        entry = self._entries.get(key)
        is_new = entry is None
        if entry is None:
            entry = self._entries[key] = _Entry(key)
        self._note_rates(entry, cells, is_new)
        if cells == entry.cells:
            return False
        entry.cells, entry.version = cells, version
        entry.text = json.dumps(_shortened(cells), ensure_ascii=False, separators=(",", ":"))
        return True

    def _note_rates(self, entry: _Entry, cells: Cells, is_new: bool) -> None:
        flow = self._namespace.flows.at(entry.key)
        now = (0, 0) if flow is None else (flow.messages_in, flow.messages_out)
        now_s = self._looked_at_s
        if not is_new and now != entry.flows:
            elapsed_s = max(now_s - entry.looked_at_s, 0.001)
            cells[_IN] = round(max(0, now[0] - entry.flows[0]) / elapsed_s, 1)
            cells[_OUT] = round(max(0, now[1] - entry.flows[1]) / elapsed_s, 1)
            self._is_flowing = True
        entry.flows, entry.looked_at_s = now, now_s


def _shortened(cells: Cells) -> Cells:
    """Without an end that is as usual: of an idle queue its name and its kind are left."""
    end = len(cells)
    while end > _NAMED and cells[end - 1] == _USUAL[end - 1 - _NAMED]:
        end -= 1
    return cells[:end]


def _is_at(key: str, below: str | None) -> bool:
    return below is None or key == below or key.startswith(f"{below}/subscriptions/")


def _word(flag: bool) -> str:
    return "true" if flag else "false"
