"""A whole bus is copied to other stores, while nobody serves either: from files into a database, back, or on.

Theory of operation. A store becomes the store of the same position: the first is the catalogue's home again. There
may be more stores than before; those get what is made later. Numbers of messages stay, and with them lock tokens and
positions of readers; keys of fragments and names of stores become others, in rows, marks and the catalogue.

In this order: nothing is touched before both ends are known to be what they should; each target gets its note
(`store_copy`), the home first; fragments, in all stores, because marks name those of others; rows; everything is read
back and compared; the catalogue; the notes go, the home's last. A server refuses stores that have a note. Whatever
ends the copy, the same call goes on with it. A source that was served meanwhile has other commits than the note
says: then the copy must begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, Protocol

from busway.broker.namespace.namespace import (
    COPYING_KEY,
    DECIDED_KEY,
    NAMESPACE_KEY,
    NOTE_PREFIXES,
    NamespaceRow,
    namespace_id,
    public_url,
    store_rows,
)
from busway.safekeeping.catalogue_map import CatalogueMap, NewHome
from busway.safekeeping.store_copy import CopyNote, CopyRefused, StoreCopy, Tell
from busway.store.contract import FragmentKey, Store
from busway.store.stored_rows import KINDS, Places, StoredFacts, StoredRows

#: Stores that are copied at once: each holds a page.
_AT_ONCE: Final = 4
_ROWS_AT_ONCE: Final = 2_000


class StoreEnd(Protocol):
    """A store by its address, at one end of a copy."""

    name: str
    #: Without secrets.
    shown: str

    def held(self) -> AbstractContextManager[None]:
        """No server works with it, as far as can be told and kept so without touching it. Raises CopyRefused,
        StoreError."""

    def rows(self, *, is_open: bool = False) -> StoredRows:
        """What it holds; `is_open`: this process has the store open. Raises StoreError."""

    def begin(self) -> None:
        """It is empty, and comes to be a copy: nobody who knows another store of this name may take it for that one.
        Raises StoreError."""

    def store(self) -> Store:
        """To be opened."""


class StoppedBus:
    """What is copied: stores in their order, with what each says of itself."""

    def __init__(self, stores: Sequence[tuple[StoredRows, StoredFacts]]) -> None:
        """Raises CopyRefused."""
        nothing = StoredFacts(0, 0, {}, [])
        leading = max((facts for _, facts in stores), key=lambda facts: facts.version, default=nothing)
        if leading.version == 0 or NAMESPACE_KEY not in leading.catalogue:
            raise CopyRefused("There is no bus in the stores to copy from: nothing was copied.")
        given = {rows.name: (rows, facts) for rows, facts in stores}
        half = [rows.name for rows, facts in stores if COPYING_KEY in facts.catalogue]
        if half:
            raise CopyRefused(
                f"The store {half[0]} is itself a copy that is not whole: finish that one first."
            )
        self.rows = {
            key: text
            for key, text in leading.catalogue.items()
            if key != DECIDED_KEY and not key.startswith(NOTE_PREFIXES)
        }
        self.version = leading.version
        names = [row.name for row in store_rows(self.rows)]
        missing = [name for name in names if name not in given]
        if missing:
            raise CopyRefused(
                f"This bus lives on {len(names)} stores ({', '.join(names)}), and {', '.join(missing)}"
                f" {'is' if len(missing) == 1 else 'are'} not among those to copy from: give all of them."
            )
        self.stores = [given[name] for name in names]
        row = NamespaceRow.parse(self.rows[NAMESPACE_KEY])
        self.id, self.name = row.id, row.name
        for store, facts in self.stores:
            text = facts.catalogue.get(NAMESPACE_KEY)
            if text is not None and namespace_id(text) != self.id:
                raise CopyRefused(f"The store {store.name} belongs to another namespace: give those of one.")

    def notes_of(self, facts: StoredFacts) -> dict[str, str]:
        """Beside a store's copy of the catalogue."""
        return {key: text for key, text in facts.catalogue.items() if key not in self.rows and _is_note(key)}


def _is_note(key: str) -> bool:
    return key == DECIDED_KEY or key.startswith(NOTE_PREFIXES)


class BusCopy:
    """`run` once; it blocks the loop while it reads."""

    def __init__(
        self,
        bus: StoppedBus,
        ends: Sequence[StoreEnd],
        tell: Callable[[str], Tell],
        check: Callable[[], None],
        *,
        skip_damaged: bool = False,
    ) -> None:
        """`ends`: where it comes to lie. `tell`: by what is being done, who is told of how many rows more. `check`:
        raises CopyRefused when what is copied has changed meanwhile."""
        self._bus = bus
        self._ends = ends
        self._tell = tell
        self._check = check
        self._skip_damaged = skip_damaged
        self._copies: list[StoreCopy] = []

    async def run(self) -> dict[str, object]:
        """What was copied. Raises CopyRefused, StoreError."""
        bus, ends = self._bus, self._ends
        if len(ends) < len(bus.stores):
            raise CopyRefused(
                f"{len(bus.stores)} stores are to be copied, and there {'is' if len(ends) == 1 else 'are'} only"
                f" {len(ends)} to copy them to: give as many, or more (of a database: stores={len(bus.stores)})."
            )
        notes = self._look()
        for end, note in zip(ends, notes, strict=True):
            if note is None and notes[0] is None:
                end.begin()
        opened: list[Store] = []
        try:
            for end in ends:
                opened.append(store := end.store())
                await store.open()
            await self._begin(opened, notes)
            home = self._copies[0].note
            if not home.is_compared:
                await self._copy_rows()
                await self._compare()
                self._check()
                home.is_compared = True
                await self._copies[0].write_note()
            await self._finish()
        finally:
            for store in opened:
                await store.close()
        return self._told()

    # -- before anything is touched

    def _look(self) -> list[CopyNote | None]:
        """The notes that lie in the targets. Raises CopyRefused where something else does."""
        notes: list[CopyNote | None] = []
        for end in self._ends:
            with end.held():
                pass
        for position, end in enumerate(self._ends):
            rows = end.rows()
            try:
                notes.append(self._note_in(position, end, rows.facts(), notes))
            finally:
                rows.close()
        return notes

    def _note_in(
        self, position: int, end: StoreEnd, facts: StoredFacts, before: list[CopyNote | None]
    ) -> CopyNote | None:
        text = facts.catalogue.get(COPYING_KEY)
        if text is None:
            is_finishing = bool(before and before[0] is not None and before[0].is_compared)
            if (facts.fragments or facts.catalogue) and not is_finishing:
                raise CopyRefused(self._is_not_empty(end, facts))
            return None
        note = CopyNote.parse(end.name, text)
        wanted = self._origin(position) if position < len(self._bus.stores) else None
        if note.origin == wanted:
            return note
        if wanted is not None and {**note.origin, "commit": 0} == {**wanted, "commit": 0}:
            raise CopyRefused(
                f"{end.shown} holds a copy that was begun at commit {note.origin['commit']} of"
                f" {wanted['store']}, which was served since and is at commit {wanted['commit']}: empty the stores"
                " to copy to, and begin anew."
            )
        raise CopyRefused(f"{end.shown} holds a part of another copy: empty it, or finish that copy.")

    def _is_not_empty(self, end: StoreEnd, facts: StoredFacts) -> str:
        said = f"{end.shown} is not empty"
        text = facts.catalogue.get(NAMESPACE_KEY)
        if text is not None:
            is_same = namespace_id(text) == self._bus.id
            said += f": it holds {'this bus already' if is_same else 'another bus'}"
        return f"{said}. Copy to an empty one; nothing was copied."

    def _origin(self, position: int) -> dict[str, Any]:
        rows, facts = self._bus.stores[position]
        stores = [store.name for store, _ in self._bus.stores]
        return {
            "namespace": self._bus.id,
            "stores": stores,
            "store": rows.name,
            "commit": facts.commit_number,
        }

    # -- copying

    async def _begin(self, opened: Sequence[Store], notes: Sequence[CopyNote | None]) -> None:
        tell = self._tell("Copying")
        home = notes[0]
        for position, (rows, facts) in enumerate(self._bus.stores):
            note = notes[position]
            copy = StoreCopy(rows, facts, opened[position], note or CopyNote(self._origin(position)), tell)
            self._copies.append(copy)
            if note is None and not (home is not None and home.is_compared):
                await copy.write_note()
        for copy in self._copies:
            await copy.make_fragments()

    def _homes(self) -> dict[str, NewHome]:
        return {
            rows.name: NewHome(copy.target.name, public_url(copy.target.url), copy.fragments)
            for (rows, _), copy in zip(self._bus.stores, self._copies, strict=True)
        }

    def _places(self) -> list[Places]:
        elsewhere = {name: (home.name, home.fragments) for name, home in self._homes().items()}
        return [
            Places(copy.fragments, elsewhere, facts.sessions)
            for (_, facts), copy in zip(self._bus.stores, self._copies, strict=True)
        ]

    async def _copy_rows(self) -> None:
        places = self._places()

        async def work(at: int) -> None:
            await self._copies[at].copy(places[at], skip_damaged=self._skip_damaged)

        await self._each(work)

    async def _each(self, work: Callable[[int], Any]) -> None:
        """For all stores, some at once: while one waits for its commit another reads."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(at: int) -> None:
            async with turns:
                await work(at)

        try:
            async with asyncio.TaskGroup() as group:
                for at in range(len(self._copies)):
                    group.create_task(in_turn(at))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    # -- the end

    async def _compare(self) -> None:
        tell = self._tell("Comparing")
        stays: dict[str, tuple[str, Mapping[int, FragmentKey]]] = {
            copy.target.name: (copy.target.name, {key: key for key in copy.fragments.values()})
            for copy in self._copies
        }
        for copy, end, here in zip(self._copies, self._ends, self._places(), strict=False):
            copy.retell(tell)
            rows = end.rows(is_open=True)
            try:
                there: Mapping[int, FragmentKey] = {key: key for key in copy.fragments.values()}
                await copy.compare(rows, Places(there, stays, set()), here)
            finally:
                rows.close()

    async def _finish(self) -> None:
        """The catalogue, then the notes: the home's last, for it tells that all was compared."""
        homes = self._homes()
        mapped = CatalogueMap(homes)
        rows = mapped.rows(self._bus.rows)
        for (source, facts), copy in reversed(list(zip(self._bus.stores, self._copies, strict=True))):
            texts = rows | mapped.notes(source.name, self._bus.notes_of(facts))
            await self._write_catalogue(copy.target, texts)
            version, found = await copy.target.catalogue()
            found.pop(COPYING_KEY, None)
            if (version, found) != (self._bus.version, texts):
                raise CopyRefused(f"The catalogue in {copy.target.name} is not what was put there.")
            copy.target.batch().catalogue[COPYING_KEY] = None
            await copy.target.flush()

    async def _write_catalogue(self, target: Store, texts: Mapping[str, str]) -> None:
        keys = list(texts)
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            target.batch().catalogue.update({key: texts[key] for key in keys[start : start + _ROWS_AT_ONCE]})
            await target.flush()
        target.batch().catalogue_version = self._bus.version
        await target.flush()

    def _told(self) -> dict[str, object]:
        counts = dict.fromkeys(KINDS, 0)
        for copy in self._copies:
            for kind, (count, _) in copy.note.sums.items():
                counts[kind] += count
        counts["messages"] += counts.pop("copies")
        return {
            "namespace": self._bus.name,
            "stores": [
                {"from": rows.name, "to": copy.target.name, "fragments": len(copy.fragments)}
                for (rows, _), copy in zip(self._bus.stores, self._copies, strict=True)
            ],
            "rows": counts,
            "leftOut": sum(copy.note.left_out for copy in self._copies),
        }


async def copy_bus(
    sources: Sequence[StoreEnd],
    targets: Callable[[int], Sequence[StoreEnd]],
    tell: Callable[[str], Tell],
    *,
    skip_damaged: bool = False,
) -> dict[str, object]:
    """What was copied. `targets`: for so many stores. Raises CopyRefused, StoreError."""
    with ExitStack() as stack:
        for end in sources:
            stack.enter_context(end.held())
        opened: list[StoredRows] = []
        for end in sources:
            opened.append(end.rows())
            stack.callback(opened[-1].close)
        bus = StoppedBus([(rows, rows.facts()) for rows in opened])

        def check() -> None:
            for end, rows in zip(sources, opened, strict=True):
                _check_unchanged(end, rows)

        return await BusCopy(bus, targets(len(bus.stores)), tell, check, skip_damaged=skip_damaged).run()


def _check_unchanged(end: StoreEnd, rows: StoredRows) -> None:
    again = end.rows()
    try:
        if again.facts().commit_number != rows.facts().commit_number:
            raise CopyRefused(f"A server has worked with {end.shown} meanwhile: stop it, and begin anew.")
    finally:
        again.close()
