"""One store's rows are put into another store, page by page, and compared at the end.

Theory of operation. Each page is one commit of the target, and the note of how far the copy is lies in the same
commit (a row beside the catalogue, which keeps servers away): whatever ends the copy, it goes on behind the last page
that is there, and no row is put twice. The note sums up what was put: how many rows of each kind, and their digests.

Fragments come first, in the order of their keys, so the keys that they were given tell which is which: those of the
target, in order, are those of the source, as far as they were made. Of copies that share a body all come in one page;
so the target shares it again.

At the end everything is read back from the target and summed up once more. That must give what the note says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from busway.broker.namespace.namespace import COPYING_KEY
from busway.store.contract import Counters, FragmentKey, FragmentRow, Store, StoreError
from busway.store.stored_rows import (
    INDEXES,
    KINDS,
    Places,
    Position,
    StoredFacts,
    StoredRow,
    StoredRows,
)

_PAGE_ROWS: Final = 4_000
_PAGE_BYTES: Final = 2 << 20
#: Of copies that share a body: more of them lose it.
_GROUP_ROWS_MAX: Final = 100_000
_FRAGMENTS_AT_ONCE: Final = 1_000
#: Damaged rows that are named.
NAMED_MAX: Final = 20
_SUM_MASK: Final = (1 << 64) - 1
_FORMAT: Final = 1

Tell = Callable[[int], None]


class CopyRefused(Exception):
    """The text is a sentence for people."""


class CopyNote:
    """How far the copy of one store is. It lies in the target."""

    def __init__(self, origin: dict[str, Any]) -> None:
        #: Which state of which store is copied.
        self.origin = origin
        self.kind = 0
        self.after: Position = ()
        #: Kind → rows, and the sum of their digests.
        self.sums: dict[str, tuple[int, int]] = {}
        #: Damaged rows that were left out.
        self.left_out = 0
        #: All stores were compared: only the catalogue is missing.
        self.is_compared = False

    def text(self) -> str:
        return json.dumps(
            {
                "format": _FORMAT,
                "origin": self.origin,
                "kind": self.kind,
                "after": self.after,
                "sums": self.sums,
                "left_out": self.left_out,
                "is_compared": self.is_compared,
            }
        )

    @classmethod
    def parse(cls, store: str, text: str) -> CopyNote:
        """Raises StoreError."""
        try:
            data = json.loads(text)
            if data["format"] != _FORMAT:
                raise ValueError("another format")
            note = cls(data["origin"])
            note.kind, note.after = data["kind"], tuple(data["after"])
            note.sums = {kind: (count, total) for kind, (count, total) in data["sums"].items()}
            note.left_out, note.is_compared = data["left_out"], data["is_compared"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"The note of the copy in the store {store} cannot be read: empty it."
            ) from error
        return note

    def add(self, kind: str, digests: list[int]) -> None:
        count, total = self.sums.get(kind, (0, 0))
        self.sums[kind] = (count + len(digests), (total + sum(digests)) & _SUM_MASK)


class StoreCopy:
    """Of one store into another."""

    def __init__(
        self, source: StoredRows, facts: StoredFacts, target: Store, note: CopyNote, tell: Tell
    ) -> None:
        self._source = source
        self._facts = facts
        self.target = target
        self.note = note
        self._tell = tell
        #: Fragments by their key in the source.
        self.fragments: dict[int, FragmentKey] = {}
        self._rows_of = {row.key: row for row in facts.fragments}
        self._counters: dict[int, Counters] = {}

    def retell(self, tell: Tell) -> None:
        """Who is told of rows from now on."""
        self._tell = tell

    async def make_fragments(self) -> None:
        """Those that are not there yet. Raises StoreError, CopyRefused."""
        target = self.target
        there = sorted(await target.fragments(), key=lambda row: row.key)
        wanted = sorted(self._facts.fragments, key=lambda row: row.key)
        pairs = list(zip(wanted, there, strict=False))
        if len(there) > len(wanted) or any(_differ(*pair) for pair in pairs):
            raise CopyRefused(f"The store {target.name} holds fragments that are not of this copy: empty it.")
        self.fragments = {old.key: new.key for old, new in pairs}
        self._counters = {new.key: new.counters for _, new in pairs}
        missing = wanted[len(there) :]
        for start in range(0, len(missing), _FRAGMENTS_AT_ONCE):
            batch = target.batch()
            for row in missing[start : start + _FRAGMENTS_AT_ONCE]:
                key = target.next_fragment_key()
                self.fragments[row.key] = key
                self._counters[key] = row.counters
                batch.fragments_created.append(
                    FragmentRow(key, row.owner, row.fragment_index, row.counters.copy())
                )
            await target.flush()

    async def copy(self, places: Places, *, skip_damaged: bool) -> None:
        """Raises StoreError, CopyRefused."""
        note = self.note
        while note.kind < len(KINDS):
            kind = KINDS[note.kind]
            for page in _pages(self._source.rows(kind, note.after)):
                await self._put(kind, page, places, skip_damaged)
            note.kind, note.after = note.kind + 1, ()
            await self.write_note()

    async def _put(self, kind: str, page: list[StoredRow], places: Places, skip_damaged: bool) -> None:
        damaged = [row for row in page if row.is_damaged and row.fragment in places.here]
        if damaged and not skip_damaged:
            raise CopyRefused(self._refusal(damaged))
        batch = self.target.batch()
        for row in damaged:
            key = places.here[row.fragment]
            row.leave_out(self._counters[key])
            batch.counters[key] = self._counters[key]
        digests: list[int] = []
        for row in page:
            if not row.is_damaged and row.placed(places):
                row.join(batch)
                digests.append(row.digest())
        self.note.add(kind, digests)
        self.note.left_out += len(damaged)
        self.note.after = page[-1].position
        batch.catalogue[COPYING_KEY] = self.note.text()
        await self.target.flush()
        self._tell(len(page))

    async def write_note(self) -> None:
        self.target.batch().catalogue[COPYING_KEY] = self.note.text()
        await self.target.flush()

    def _refusal(self, damaged: list[StoredRow]) -> str:
        named = ", ".join(self._named(row) for row in damaged[:NAMED_MAX])
        more = f" and {len(damaged) - NAMED_MAX} more" if len(damaged) > NAMED_MAX else ""
        return (
            f"Damaged in the store {self._source.name}: {named}{more}. Restore a backup, or give --skip-damaged: they"
            " are left behind then, and counted no more. busway check names all that is damaged in files."
        )

    def _named(self, row: StoredRow) -> str:
        fragment = self._rows_of[row.fragment]
        return f"{row.told(fragment.fragment_index)} of {fragment.owner}"

    # -- at the end

    async def compare(self, written: StoredRows, there: Places, here: Places) -> None:
        """`written`: the target, read back; `there`: places that stay, `here`: those of the source. Raises
        StoreError, CopyRefused."""
        facts = written.facts()
        if len(facts.fragments) != len(self.fragments):
            raise self._unlike("fragments", len(self.fragments), len(facts.fragments))
        found = CopyNote({})
        for kind in KINDS:
            await self._sum(found, kind, written.rows(kind), there)
        for kind in KINDS:
            if (
                found.sums.get(kind, (0, 0)) != self.note.sums.get(kind, (0, 0))
                and kind not in _MESSAGE_KINDS
            ):
                raise self._unlike(kind, self._count(self.note, kind), self._count(found, kind))
        if _messages(found) != _messages(self.note):
            raise self._unlike("messages", _messages(self.note)[0], _messages(found)[0])
        if not self.note.left_out:
            for index in INDEXES:
                await self._compare_index(index, written, there, here)

    async def _compare_index(self, index: str, written: StoredRows, there: Places, here: Places) -> None:
        ours, theirs = CopyNote({}), CopyNote({})
        await self._sum(ours, index, self._source.rows(index), here)
        await self._sum(theirs, index, written.rows(index), there)
        if ours.sums != theirs.sums:
            raise self._unlike(f"index of {index}", self._count(ours, index), self._count(theirs, index))

    async def _sum(self, note: CopyNote, kind: str, rows: Iterable[StoredRow], places: Places) -> None:
        for page in _pages(rows):
            whole = [row for row in page if not row.is_damaged and row.placed(places)]
            note.add(kind, [row.digest() for row in whole])
            self._tell(len(page))

    @staticmethod
    def _count(note: CopyNote, kind: str) -> int:
        return note.sums.get(kind, (0, 0))[0]

    def _unlike(self, what: str, put: int, found: int) -> CopyRefused:
        detail = "of other content" if put == found else f"{found:,} of {put:,}"
        return CopyRefused(
            f"The copy in the store {self.target.name} is not what was put there ({what}: {detail}): empty it, and"
            " begin anew."
        )


#: A target may give up sharing a body, or begin it.
_MESSAGE_KINDS: Final = ("messages", "copies")


def _messages(note: CopyNote) -> tuple[int, int]:
    sums = [note.sums.get(kind, (0, 0)) for kind in _MESSAGE_KINDS]
    return sum(count for count, _ in sums), sum(total for _, total in sums) & _SUM_MASK


def _differ(old: FragmentRow, new: FragmentRow) -> bool:
    return (old.owner, old.fragment_index) != (new.owner, new.fragment_index)


def _pages(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    page: list[StoredRow] = []
    size = 0
    for row in rows:
        is_full = len(page) >= _PAGE_ROWS or size >= _PAGE_BYTES
        is_one_group = bool(page) and row.group != 0 and row.group == page[-1].group
        if page and is_full and not (is_one_group and len(page) < _GROUP_ROWS_MAX):
            yield page
            page, size = [], 0
            is_one_group = False
        page.append(row)
        size += 128 if is_one_group else row.size_bytes
    if page:
        yield page
