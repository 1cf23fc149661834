"""What the namespace consists of: rows of JSON, served from memory, kept in every store.

Theory of operation. The *home* is the store at position 0. A change is one commit there and counts from then on;
without the home a change fails cleanly. Every other store has a copy with the version it was made at, written in
the background: a copy that is behind catches up at the next chance. At start the highest version wins, so a lost
home costs at most the changes that no copy had yet; until it is back the namespace works and refuses changes.

A commit of unknown outcome leaves the home failed; when it is back `reload` tells which it was.

Rule changes that a transaction has decided are on their way into the catalogue (T-13). Rules are rows of the
catalogue, whose home may be another store than the one that the transaction's messages lie in, and two stores do
not commit together. So the transaction's own batch carries its rule changes as one text, beside that store's copy
of the catalogue: they are decided when it is durable, together with everything else in it. Then they are taken
over into the catalogue like any other change, with a mark that says how far the decisions of that store are taken
over. After a crash in between the text still has a higher number than the mark, and is taken over when the store
is opened.

A text that was taken over stays where it is until the next takes its place. There is never more than one that
waits in a store, because all changes of the catalogue wait for one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.catalogue_rows import (
    ENTITY_PREFIXES,
    NAMESPACE_KEY,
    STORE_PREFIX,
    EntityRow,
    NamespaceRow,
    StoreRow,
    store_rows,
)
from busway.broker.namespace.rule_table import RULE_PREFIX, RuleRow, subscription_key_of
from busway.broker.store_keeper import StoreKeeper
from busway.model.errors import BadArgument, ServerBusy, StoreOutcomeUnknown
from busway.model.json_rows import integer_at, object_at, read_row, written_row
from busway.store.contract import CommitBatch, CommitUnknown, FragmentKey, StoreError

#: Where the text lies in a store. It is no row of the catalogue.
DECIDED_KEY: Final = "decided-rules"
TAKEN_OVER_PREFIX: Final = "rules-taken-over:"

#: The text of a rule's row; None when there is no such rule.
Text = str | None


@dataclass(frozen=True)
class DecidedRules:
    """Rule changes that a transaction has decided, on their way into the catalogue (T-13)."""

    number: int
    #: Row → its text before and after.
    changes: Mapping[str, tuple[Text, Text]]

    def text(self) -> str:
        return written_row(
            {"number": self.number, "rules": {key: [*both] for key, both in self.changes.items()}}, None
        )

    @classmethod
    def parse(cls, text: str) -> DecidedRules:
        with read_row(DECIDED_KEY, text) as data:
            changes = {key: _both(texts) for key, texts in object_at(data, "rules").items()}
            return cls(integer_at(data, "number"), changes)


def to_take_over(
    decided: Mapping[str, str], rows: Mapping[str, str], exists: Callable[[str], bool]
) -> dict[str, Text]:
    """The changes of the catalogue that are decided and not yet in it. `decided`: the texts, by store; `exists`:
    whether there is a subscription with this key. What somebody else has changed since is left alone."""
    changes: dict[str, Text] = {}
    for store_name, text in decided.items():
        found = DecidedRules.parse(text)
        mark = TAKEN_OVER_PREFIX + store_name
        if found.number <= _number_in(mark, rows.get(mark)):
            continue
        changes[mark] = written_row({"number": found.number}, None)
        for key, (before, after) in found.changes.items():
            if rows.get(key) == before and exists(subscription_key_of(key)):
                changes[key] = after
    return changes


def _number_in(mark: str, text: Text) -> int:
    if text is None:
        return 0
    with read_row(mark, text) as data:
        return integer_at(data, "number")


def _both(texts: object) -> tuple[Text, Text]:
    if not isinstance(texts, list) or len(texts) != 2:
        raise BadArgument("a text before and a text after are expected.")
    before, after = texts
    if not all(text is None or isinstance(text, str) for text in texts):
        raise BadArgument("a text before and a text after are expected.")
    return before, after


_log = logging.getLogger("busway.catalogue")

_VERSION_LEAP: Final = 1 << 20

#: What lies beside a store's copy and is no part of it: notes of stages, and decisions (`busway.staging`).
NOTE_PREFIXES: Final = ("stage:", "decision:")

#: In a store that others are copied into, until all of them are whole (`busway.safekeeping.bus_copy`).
COPYING_KEY: Final = "copying"

#: Rows to write: key → JSON text, or None to delete.
Changes = Mapping[str, str | None]


class Catalogue:
    """What the namespace consists of: rows of JSON, served from memory, kept in every store."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[str, str] = {}
        self._home: StoreKeeper | None = None
        #: The home itself said what we know: then what no row names belongs to nobody.
        self.home_leads = False
        #: Changes that a copy does not have yet, by store; None when we do not know what it has.
        self._pending: dict[str, dict[str, str | None] | None] = {}
        self._copying: set[str] = set()
        #: What stores said at start and nobody has used yet: a catalogue is large, one reading will do.
        self._said: dict[str, tuple[int, dict[str, str]]] = {}
        self._just_loaded: set[str] = set()
        #: Rule changes that transactions decided, by store: the last ones of each (`DecidedRules`).
        self.decided_rules: dict[str, str] = {}
        #: The notes of stores that were read and nobody has taken yet.
        self._notes: dict[str, dict[str, str]] = {}

    @property
    def home(self) -> StoreKeeper:
        assert self._home is not None, "the catalogue was not loaded"
        return self._home

    def store_rows(self) -> list[StoreRow]:
        """By position."""
        return store_rows(self.rows)

    async def read(self, keeper: StoreKeeper) -> dict[str, str]:
        """The rows of one store, before anything is decided."""
        self._said[keeper.name] = await self._read(keeper)
        return self._said[keeper.name][1]

    def take_notes(self, keeper: StoreKeeper) -> dict[str, str]:
        """Of a store that was just read."""
        return self._notes.pop(keeper.name, {})

    async def _read(self, keeper: StoreKeeper, *, is_opened: bool = True) -> tuple[int, dict[str, str]]:
        """What rules were decided there is no part of the copy, so that bringing it up to date leaves them alone; nor
        are notes."""
        version, rows = await keeper.store.catalogue()
        if COPYING_KEY in rows:
            raise StoreError(
                f"The store {keeper.name} holds a part of a bus that is being copied: busway stores copy, given the"
                " same --from and --to once more, goes on with it."
            )
        decided = rows.pop(DECIDED_KEY, None)
        if decided is not None:
            self.decided_rules[keeper.name] = decided
        notes = {key: text for key, text in rows.items() if key.startswith(NOTE_PREFIXES)}
        for key in notes:
            del rows[key]
        if is_opened:
            self._notes[keeper.name] = notes
        return version, rows

    async def load(self, keepers: Sequence[StoreKeeper], connected: Sequence[StoreKeeper]) -> None:
        """Reads the catalogues of the connected stores and takes the highest version."""
        found: dict[str, int] = {}
        ids: dict[str, str] = {}
        for keeper in connected:
            if keeper.name not in self._said:
                await self.read(keeper)
            version, rows = self._said.pop(keeper.name)
            found[keeper.name] = version
            if NAMESPACE_KEY in rows:
                ids[NamespaceRow.parse(rows[NAMESPACE_KEY]).id] = keeper.name
            if version > self.version:
                self.version, self.rows = version, rows
        if len(ids) > 1:
            first, second, *_ = ids.values()
            raise StoreError(
                f"The stores {first} and {second} belong to different namespaces: start each with its own."
            )
        for keeper in keepers:
            self._pending[keeper.name] = {} if found.get(keeper.name) == self.version else None
        self._just_loaded = set(found)
        positions = {row.name: row.position for row in self.store_rows()}
        self._home = min(keepers, key=lambda keeper: positions.get(keeper.name, len(positions)))
        self.home_leads = found.get(self._home.name) == self.version > 0
        if any(keeper.store.lost_commits for keeper in connected):
            self._leap()

    async def change(self, changes: Changes, join: Callable[[CommitBatch], None] | None = None) -> None:
        """Writes the changes to the home, together with what `join` adds to the same batch. Callers wait for
        one another. Raises ServerBusy when nothing was changed, StoreOutcomeUnknown when that is unknown."""
        version = self.version + 1

        def fill(batch: CommitBatch) -> None:
            batch.catalogue.update(changes)
            batch.catalogue_version = version
            if join is not None:
                join(batch)

        await self._commit_at_home(fill)
        self.home_leads = self.home_leads or self.version == 0
        self.version = version
        self._apply(changes)

    def check_changeable(self) -> None:
        """Raises ServerBusy while the home is away."""
        if not self.home.is_open:
            raise ServerBusy(
                f"The store {self.home.name}, which keeps the catalogue, is not available: nothing was changed."
                " Please try again later."
            )

    async def _commit_at_home(self, fill: Callable[[CommitBatch], None]) -> None:
        self.check_changeable()
        try:
            await self.home.commit(fill)
        except CommitUnknown as error:
            self.home_leads = False  # until it is back and says what became of it
            raise StoreOutcomeUnknown from error
        except StoreError as error:
            raise ServerBusy(
                f"The store {self.home.name} failed: nothing was changed. Please try again later."
            ) from error

    def _apply(self, changes: Changes) -> None:
        for key, text in changes.items():
            if text is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = text
        for name, pending in self._pending.items():
            if pending is not None and name != self.home.name:
                pending.update(changes)

    async def reload(self, keeper: StoreKeeper) -> bool:
        """A store came back. True when it was the home and knew more than we did: a change whose outcome was
        unknown had taken place."""
        if keeper.name in self._just_loaded:
            self._just_loaded.discard(keeper.name)
            return False
        version, rows = await self._read(keeper)
        self._pending[keeper.name] = {} if version == self.version and rows == self.rows else None
        if keeper is not self._home:
            return False
        if keeper.store.lost_commits:
            self._leap()
        self.home_leads = version >= self.version > 0
        if version <= self.version:
            return False
        self.version, self.rows = version, rows
        for name in self._pending:
            self._pending[name] = {} if name == keeper.name else None
        return True

    def _leap(self) -> None:
        """A store has lost commits, perhaps versions that were in it alone: none of these is given out again."""
        if self.version > 0:
            self.version += _VERSION_LEAP
            self._pending = dict.fromkeys(self._pending)

    def is_behind(self, keeper: StoreKeeper) -> bool:
        return self._pending.get(keeper.name) != {}

    async def copy_to(self, keeper: StoreKeeper) -> None:
        """Brings a store's copy up to date. One at a time for each store; failures are met later."""
        if keeper.name in self._copying:
            return
        self._copying.add(keeper.name)
        try:
            while keeper.store_is_usable and self.is_behind(keeper):
                await self._copy_once(keeper)
        except StoreError as error:
            self._pending[keeper.name] = None
            _log.warning("The copy of the catalogue in store %s is behind: %s", keeper.name, error)
        finally:
            self._copying.discard(keeper.name)

    async def _copy_once(self, keeper: StoreKeeper) -> None:
        pending = self._pending[keeper.name]
        held = (await self._read(keeper, is_opened=False))[1] if pending is None else {}
        changes = _difference(held, self.rows) if pending is None else pending
        version = self.version
        self._pending[keeper.name] = {}

        def fill(batch: CommitBatch) -> None:
            batch.catalogue.update(changes)
            batch.catalogue_version = version

        await keeper.commit(fill)


def _difference(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {key: text for key, text in wanted.items() if held.get(key) != text}
    changes.update({key: None for key in held if key not in wanted})
    return changes


# -- for whoever reads a row without serving it: checks, and copies of a stopped bus


def namespace_id(text: str) -> str:
    """By the namespace's own row. Raises StoreError when it cannot be read."""
    return NamespaceRow.parse(text).id


def fragments_named(key: str, text: str) -> list[tuple[str, Sequence[FragmentKey]]] | None:
    """The fragments that a row names, by store; None when the row is none of the namespace's own. Raises StoreError,
    and whatever a row may cause that nobody could have written."""
    prefix = key[: key.find(":") + 1]
    if key == NAMESPACE_KEY:
        NamespaceRow.parse(text)
    elif prefix == STORE_PREFIX:
        StoreRow.parse(key, text)
    elif prefix in ENTITY_PREFIXES:
        return [(share.store_name, share.fragments) for share in EntityRow.parse(key, text).shares]
    elif prefix == RULE_PREFIX:
        RuleRow.parse(key, text)
    elif prefix == TAKEN_OVER_PREFIX:
        with read_row(key, text) as data:
            integer_at(data, "number")
    elif key == DECIDED_KEY:
        DecidedRules.parse(text)
    else:
        return None
    return []
