"""Moves between stores: where rows cannot go just now, which may have arrived, and what is done about them.

Destinations on hold (F-12, TX-3). A forwarder moves rows in order, but rows for different destinations owe each
other nothing: while one destination waits for the next try, rows for the others pass by. A destination is an
entity, or one fragment of it. What waits is not read again and again. The record keeps the number up to which
every row waits for a destination that is held: what arrives is looked for behind it. A new try begins at the
start; as soon as it has found the same destinations shut again it goes on behind that number too, so a long
backlog for one of them costs a try one page.

Theory of operation of moves between stores. A message that moves to another store is written there together with a
*mark* that names the row it came from; then the row is deleted at its source; then the mark is removed. After a
crash a mark without its end says: this row has arrived already. So whenever a store is opened its marks are read,
and rows they name are deleted at their source instead of being moved again. Inside one store no mark is needed:
the copy and the deletion are one commit.

As long as nobody can say whether a row has arrived, it is *held back* at its source: not handed out, not moved,
not expired, whoever owns the fragment by then (`Horizon.holds_back`). The forwarder that sent it may be gone,
because forwarding was removed or the source's store failed meanwhile. All other rows go their way. Such rows are

  under way   in a `Departure`: handed to the destination, which has not answered
  unknown     their commit's outcome is: until the store that they went to is opened again and its marks are read
  arrived     certainly: until their source has deleted them
  unseen      perhaps sent in a former life of the process, to a store that has not been opened since. Which ones
              only that store knows, so it is all that the source had at its start. Only once they are no longer
              bound for that very store this matters

The next life of the process must know of them too, once forwarding was removed or moved: by then no forwarder
waits for their store any more. So an update that turns messages away writes down in the entity's row, in the same
commit, which stores may hold rows up to which number (`Doubt`), unless everything is known at that moment. While
it is written nothing departs from the entity. The doubt is taken out of the row as soon as the store has told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.runtime import FragmentId
from busway.broker.store_keeper import StoreKeeper
from busway.message.message import PLACE_ACTIVE
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, StoreError, TransferMark


@dataclass(frozen=True)
class Doubt:
    """Forwarding was removed or moved while rows of a fragment, up to this number, may have lain in another store. As
    long as that store has not been read nobody may have them (`transfers`), also in lives of the process to come."""

    store_name: str
    fragment: FragmentKey
    number: int
    gone_to: str


#: Path of the entity and index of the fragment; None for the index means all of it.
Destination = tuple[str, int | None]


class DestinationsOnHold:
    """Of one forwarder."""

    __slots__ = ("_held", "_held_before", "_mark_before", "_refuses_since", "start")

    def __init__(self) -> None:
        self._held: set[Destination] = set()
        #: Up to this number every row waits for one of them.
        self.start = 0
        # The same at the end of the last try; empty when this try has got as far.
        self._held_before: set[Destination] = set()
        self._mark_before = 0
        self._refuses_since: dict[Destination, float] = {}

    def holds(self, destination: Destination) -> bool:
        return destination in self._held or (destination[0], None) in self._held

    def are_any(self) -> bool:
        return bool(self._held)

    def hold(self, destination: Destination) -> None:
        """Until the next try."""
        self._held.add(destination)

    def try_again(self) -> None:
        """The time for another try has come: nobody is held."""
        self._held_before, self._held = self._held, set()
        self._mark_before, self.start = self.start, 0

    def waits_up_to(self, number: int) -> None:
        self.start = number

    def arrived(self, number: int) -> None:
        """A row has come that bears this number, perhaps a lower one than rows that were here before."""
        if number <= self.start:
            self.start = number - 1
        if number <= self._mark_before:
            self._mark_before = number - 1

    def next_after(self, number: int) -> int:
        """Where the walk goes on that has come to this number."""
        if self._held_before and self._held_before <= self._held:
            self._held_before = set()
            if self.start <= number < self._mark_before:
                self.start = number = self._mark_before
        return number

    # -- patience

    def refuses_since(self, destination: Destination, now: float) -> float:
        """When it began to refuse; that is now, if it did not before."""
        return self._refuses_since.setdefault(destination, now)

    def takes(self, destination: Destination) -> None:
        """It has taken something."""
        if self._refuses_since:
            self._refuses_since.pop(destination, None)
            self._refuses_since.pop((destination[0], None), None)


_log = logging.getLogger(__name__)

#: No fragment has a row behind it.
_ALL_NUMBERS: Final = (1 << 63) - 1
FORWARDED: Final = step_of(MessageState.ACTIVE, MessageInput.FORWARDED)


class Sources(Protocol):
    """The entities, as far as transfers need them."""

    def fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """Loaded when need be; None when it cannot be had just now."""

    def loaded_fragment(self, store_name: str, key: FragmentKey) -> Fragment | None: ...

    def is_in_service(self, store_name: str) -> bool: ...

    def has_owner(self, store_name: str, key: FragmentKey) -> bool: ...


class Departure:
    """One run on its way."""

    __slots__ = ("destinations", "fragment_id", "written")

    def __init__(self, fragment_id: FragmentId, destinations: dict[int, Destination]) -> None:
        self.fragment_id = fragment_id
        #: By the row's number.
        self.destinations = destinations
        #: By the row's number: the other store that it was written to, and how often that had been opened by then.
        self.written: dict[int, tuple[str, int]] = {}


class Transfers:
    """Of one namespace."""

    def __init__(
        self,
        keeper_of: Callable[[str], StoreKeeper],
        sources: Sources,
        spawn: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._keeper_of = keeper_of
        self._sources = sources
        self._spawn = spawn
        #: Told when less is in doubt about a fragment than its entity's row says.
        self.on_certain: Callable[[FragmentId], None] = _nobody_listens
        #: How often each store was opened in this life.
        self._openings: dict[str, int] = {}
        self._under_way: dict[FragmentId, list[Departure]] = {}
        #: Source → number → where it went.
        self._unknown: dict[FragmentId, dict[int, tuple[str, Destination]]] = {}
        #: Source → number → the store it has arrived in.
        self._arrived: dict[FragmentId, dict[int, str]] = {}
        #: Rows of a former life: by the store that may tell, up to which number.
        self._unseen: dict[FragmentId, dict[str, int]] = {}
        #: The last number that a forwarding source had at its start, while its destination's store is unseen.
        self._started_at: dict[FragmentId, int] = {}
        #: Sources whose rows are just being deleted, and those of them that somebody asked for meanwhile.
        self._settling: set[FragmentId] = set()
        self._asked_again: set[FragmentId] = set()
        #: Fragments that nothing departs from just now: where their messages go is being changed.
        self._closed: dict[FragmentId, None] = {}
        #: What the rows of entities say: the stores that may have to tell of a fragment's rows.
        self._doubted: dict[FragmentId, set[str]] = {}

    # -- stores

    async def store_opened(self, keeper: StoreKeeper) -> None:
        """Reads the marks of a store that goes into service. Raises StoreError."""
        marks = await keeper.store.transfer_marks()
        self._openings[keeper.name] = self.openings(keeper.name) + 1
        concerned = self._resolve_unknown(keeper.name) | self._resolve_unseen(keeper.name)
        for fragment_id, numbers in self._arrived.items():
            for number in [number for number, name in numbers.items() if name == keeper.name]:
                del numbers[number]
                concerned.add(fragment_id)
        for mark in marks:
            fragment_id = (mark.source_store, mark.source_fragment)
            self._arrived.setdefault(fragment_id, {})[mark.source_number] = keeper.name
            concerned.add(fragment_id)
        self._arrived = {fragment_id: numbers for fragment_id, numbers in self._arrived.items() if numbers}
        for fragment_id in sorted(concerned):
            self._refresh(fragment_id)

    def openings(self, store_name: str) -> int:
        return self._openings.get(store_name, 0)

    def _resolve_unknown(self, store_name: str) -> set[FragmentId]:
        """The marks tell: those without one have not arrived."""
        concerned: set[FragmentId] = set()
        for fragment_id, rows in list(self._unknown.items()):
            resolved = [number for number, (name, _) in rows.items() if name == store_name]
            for number in resolved:
                del rows[number]
            if resolved:
                concerned.add(fragment_id)
            if not rows:
                del self._unknown[fragment_id]
        return concerned

    def _resolve_unseen(self, store_name: str) -> set[FragmentId]:
        concerned: set[FragmentId] = set()
        for fragment_id, unseen in list(self._unseen.items()):
            if unseen.pop(store_name, None) is not None:
                concerned.add(fragment_id)
            if not unseen:
                del self._unseen[fragment_id]
        return concerned

    # -- runs

    @contextmanager
    def departing(self, departure: Departure) -> Iterator[None]:
        """While a run waits for its destination, whatever becomes of its source meanwhile."""
        runs = self._under_way.setdefault(departure.fragment_id, [])
        runs.append(departure)
        try:
            yield
        finally:
            runs.remove(departure)
            if not runs:
                self._under_way.pop(departure.fragment_id, None)
            self._refresh(departure.fragment_id)

    def outcome_unknown(self, departure: Departure, numbers: Iterable[int]) -> None:
        """Nobody knows whether these rows have arrived, unless their store was opened again meanwhile."""
        for number in numbers:
            name, opening = departure.written.get(number, ("", 0))
            if name and self.openings(name) == opening:
                where = departure.destinations[number]
                self._unknown.setdefault(departure.fragment_id, {})[number] = (name, where)

    def remember(self, fragment_id: FragmentId, arrived: dict[int, str]) -> None:
        """The rows have arrived, but whoever sent them could not delete them."""
        if arrived:
            self._arrived.setdefault(fragment_id, {}).update(arrived)
            self._refresh(fragment_id)

    def destinations(self, source: Fragment) -> set[Destination]:
        """Where rows may have gone that nobody knows about yet: what is behind them must not overtake them (F-7)."""
        fragment_id = source.id
        found = {where for _, where in self._unknown.get(fragment_id, {}).values()}
        for departure in self._under_way.get(fragment_id, ()):
            found.update(departure.destinations.values())
        return found

    # -- a former life, and the next one

    def loaded(self, source: Fragment, store_names: Iterable[str]) -> None:
        """A source that forwards into these stores."""
        if any(self.openings(name) == 0 for name in store_names):
            self._started_at.setdefault(source.id, source.counters.last_counter)

    def close_departures(self, fragment_ids: Iterable[FragmentId]) -> None:
        """Nothing departs from these fragments until `open_departures`."""
        self._closed.update(dict.fromkeys(fragment_ids))

    def open_departures(self) -> None:
        """From wherever they are closed: changes wait for one another."""
        closed, self._closed = self._closed, {}
        for fragment_id in closed:
            source = self._sources.loaded_fragment(*fragment_id)
            if source is not None and source.forwarder is not None:
                source.forwarder.wake()

    def may_depart(self, source: Fragment) -> bool:
        return not self._closed or source.id not in self._closed

    def doubts(
        self, fragment_id: FragmentId, last_number: int | None, store_names: Iterable[str]
    ) -> list[Doubt]:
        """What cannot be said now about the rows of a fragment whose messages went to these stores, and no longer
        do. `last_number`: of the fragment; None when nobody can say."""
        found: list[Doubt] = []
        for name in store_names:
            if name == fragment_id[0] or not self._may_hold(fragment_id, name):
                continue
            number = _ALL_NUMBERS if last_number is None else last_number
            if self.openings(name) == 0:  # nothing was sent there in this life
                number = self._started_at.get(fragment_id, number)
            found.append(Doubt(fragment_id[0], fragment_id[1], number, name))
        return found

    def _may_hold(self, fragment_id: FragmentId, store_name: str) -> bool:
        return (
            self.openings(store_name) == 0
            or store_name in self._unseen.get(fragment_id, ())
            or fragment_id in self._under_way
            or any(name == store_name for name, _ in self._unknown.get(fragment_id, {}).values())
            or store_name in self._arrived.get(fragment_id, {}).values()
        )

    def still_in_doubt(self, doubt: Doubt) -> bool:
        return self._may_hold((doubt.store_name, doubt.fragment), doubt.gone_to)

    def doubt(self, doubts: Iterable[Doubt]) -> None:
        """The row of an entity says so. In the life in which it was written down we know better."""
        for doubt in doubts:
            fragment_id = (doubt.store_name, doubt.fragment)
            self._doubted.setdefault(fragment_id, set()).add(doubt.gone_to)
            if self.openings(doubt.gone_to) == 0:
                unseen = self._unseen.setdefault(fragment_id, {})
                unseen[doubt.gone_to] = max(unseen.get(doubt.gone_to, 0), doubt.number)

    def no_doubt(self, fragment_id: FragmentId) -> None:
        """The row of an entity says nothing about this fragment."""
        self._doubted.pop(fragment_id, None)

    # -- holding back

    def hold_back(self, source: Fragment) -> None:
        """A fragment was loaded: it must know which of its rows are not its own to give."""
        fragment_id = source.id
        if fragment_id in self._under_way or fragment_id in self._unknown or fragment_id in self._arrived:
            source.horizon.held_back = self._rows_held_back(fragment_id)
        if fragment_id in self._unseen:
            unseen = self._unseen[fragment_id]
            for name, number in unseen.items():  # what comes from now on has not gone anywhere
                unseen[name] = min(number, source.counters.last_counter)
            source.horizon.held_back_up_to = self._unseen_up_to(fragment_id)
        if fragment_id in self._arrived:
            self.settle_soon(fragment_id)

    def _rows_held_back(self, fragment_id: FragmentId) -> set[int]:
        numbers = set(self._unknown.get(fragment_id, ()))
        numbers.update(self._arrived.get(fragment_id, ()))
        for departure in self._under_way.get(fragment_id, ()):
            numbers.update(departure.destinations)
        return numbers

    def _refresh(self, fragment_id: FragmentId) -> None:
        """More is known about the rows of a source, or less."""
        source = self._sources.loaded_fragment(*fragment_id)
        if source is not None and not source.is_failed:
            _hold_back(source, self._rows_held_back(fragment_id), self._unseen_up_to(fragment_id))
        if fragment_id in self._arrived:
            self.settle_soon(fragment_id)
        doubted = self._doubted.get(fragment_id)
        if doubted and not all(self._may_hold(fragment_id, name) for name in doubted):
            self.on_certain(fragment_id)

    def _unseen_up_to(self, fragment_id: FragmentId) -> int:
        return max(self._unseen.get(fragment_id, {}).values(), default=0)

    # -- settling

    def settle_all(self) -> None:
        """Also where nothing is forwarded any more."""
        for fragment_id in list(self._arrived):
            self.settle_soon(fragment_id)

    def settle_soon(self, fragment_id: FragmentId) -> None:
        """What cannot be settled now is when its fragment is loaded, or its store opened, next: also when that
        happens while it is tried with the fragment that was there before."""
        if fragment_id in self._settling:
            self._asked_again.add(fragment_id)
        elif self._settleable(fragment_id):
            self._settling.add(fragment_id)
            self._spawn(self._settle(fragment_id))

    async def _settle(self, fragment_id: FragmentId) -> None:
        try:
            await self._settle_now(fragment_id)
        except (StoreError, BrokerError) as error:
            _log.warning("A transfer out of store %s is settled later: %s", fragment_id[0], error)
        finally:
            self._settling.discard(fragment_id)
        if fragment_id in self._asked_again:
            self._asked_again.discard(fragment_id)
            self.settle_soon(fragment_id)

    async def _settle_now(self, fragment_id: FragmentId) -> None:
        """Raises StoreError, ServerBusy."""
        store_name, key = fragment_id
        while self._settleable(fragment_id):
            if not self._sources.is_in_service(store_name):
                return
            if not self._sources.has_owner(store_name, key):
                self.forget(fragment_id, dict(self._arrived[fragment_id]))
                return
            source = self._sources.fragment(store_name, key)
            if source is None or source.is_failed:
                return
            await self._delete(source, fragment_id)

    def _settleable(self, fragment_id: FragmentId) -> dict[int, str]:
        """Rows that have arrived, and that no run is under way with: that one deletes its own."""
        arrived = self._arrived.get(fragment_id)
        if not arrived:
            return {}
        runs = self._under_way.get(fragment_id, ())
        return {
            number: name
            for number, name in arrived.items()
            if not any(number in departure.destinations for departure in runs)
        }

    async def _delete(self, source: Fragment, fragment_id: FragmentId) -> None:
        """Deletes rows that have arrived elsewhere, then removes their marks. Raises StoreError, ServerBusy."""
        wanted = self._settleable(fragment_id)
        page = await source.store.by_number(source.key, PLACE_ACTIVE, sorted(wanted))
        arrived = self._settleable(
            fragment_id
        )  # another store may have been opened, and tell of more, while we read
        rows = [row for row in page.messages if row.sequence_number in arrived]
        if rows:
            write = source.write()
            source.withdraw(rows)
            source.locks.drop({row.sequence_number for row in rows})
            write.remove(FORWARDED, rows)
            write.join()
        await source.durable()
        self.forget(fragment_id, wanted)

    def forget(self, fragment_id: FragmentId, arrived: dict[int, str]) -> None:
        """The rows are gone from their source, durably: the marks have done their work."""
        known = self._arrived.get(fragment_id)
        if known is not None:
            for number in arrived:
                known.pop(number, None)
            if not known:
                del self._arrived[fragment_id]
        by_store: dict[str, list[TransferMark]] = {}
        for number, name in arrived.items():
            by_store.setdefault(name, []).append(TransferMark(fragment_id[0], fragment_id[1], number))
        for name, marks in by_store.items():
            self._remove(name, marks)
        self._refresh(fragment_id)

    def _remove(self, store_name: str, marks: list[TransferMark]) -> None:
        # What cannot be removed now is found and removed when the store is opened next.
        self._keeper_of(store_name).join(lambda batch: batch.transfer_marks_removed.extend(marks))


def _hold_back(source: Fragment, numbers: set[int], up_to: int) -> None:
    """These rows, and all up to that number, may have been moved elsewhere; all others can be had."""
    horizon = source.horizon
    if numbers == horizon.held_back and up_to == horizon.held_back_up_to:
        return
    horizon.held_back, horizon.held_back_up_to = numbers, up_to
    if source.forwarder is not None:
        source.forwarder.arrived([1])
    elif source.settings.requires_session:
        source.sessions.read_again()
    else:
        source.lane.read_again()
    if not source.settings.is_dead_letter:  # their time may have come meanwhile
        now_ms = source.runtime.clock.wall_ms()
        source.head_expiry.joined(now_ms)
        sweeper = source.runtime.sweepers.get(source.store.name)
        if sweeper is not None:
            sweeper.joined(now_ms)


def _nobody_listens(fragment_id: FragmentId) -> None:
    del fragment_id
