"""What a namespace consists of, and the one way to change it.

Theory of operation. The catalogue says what there is, and the tables in memory follow it: a change is written
(`write`), and only then whoever wrote it changes the tables. Changes wait for one another (`changing`). Changes,
stores that come and go, and what clients ask for all work on this, and it knows none of them.

Two things live in it of which it knows no more than a protocol. Event hubs share its catalogue, its stores, its
names and its rights, and are told what it is told; how they work is their own affair (`streams`). Rows that lie in
stores and belong to no entity yet are what writers have staged (`busway.staging`): known is which fragments are
theirs, and they are told when a store comes and goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.auto_delete import AutoDelete, IdleEntities
from busway.broker.namespace.catalogue import Catalogue, Changes, to_take_over
from busway.broker.namespace.catalogue_rows import EntityRow, NamespaceRow
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.namespace.operations_log import SUCCEEDED, OperationsLog
from busway.broker.store_keeper import StoreKeeper
from busway.event_loop import BackgroundWork
from busway.model.descriptions import KIND_NAMES, AuthorizationRule, Description
from busway.model.entity_path import not_found, path_key, shown
from busway.model.errors import BrokerError, InvalidOperation
from busway.store.contract import CommitBatch, FragmentKey


class HubEntities(Protocol):
    """Event hubs, as far as the namespace knows them. They share its catalogue, its stores, its names and its
    rights, and are told what it is told; how they work is their own affair (`streams`)."""

    def adopt(self, rows: Mapping[str, str]) -> None:
        """Memory follows the catalogue."""

    def kind_of(self, key: str) -> str | None:
        """What is there under this key (`path_key`), for a sentence: "an event hub"; None when nothing is."""

    def entity_count(self) -> int: ...

    def owner_key(self, key: str) -> str | None:
        """The entity that an address belongs to (`hub/consumergroups/g/partitions/0`); None when it
        is none of ours."""

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        """(incarnation, rules)."""

    def keys_in(self, store_name: str) -> set[FragmentKey]: ...

    def lose_store(self, store_name: str, error: BrokerError) -> None: ...

    def regain_store(self, store_name: str) -> None: ...


class NoHubs:
    """A namespace of queues and topics alone."""

    def adopt(self, rows: Mapping[str, str]) -> None: ...

    def kind_of(self, key: str) -> str | None:
        del key
        return None

    def entity_count(self) -> int:
        return 0

    def owner_key(self, key: str) -> str | None:
        del key
        return None

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        del key
        return None

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        del store_name
        return set()

    def lose_store(self, store_name: str, error: BrokerError) -> None: ...

    def regain_store(self, store_name: str) -> None: ...


class StagedRows(Protocol):
    """Rows that lie in stores and belong to no entity yet: what writers have staged (`busway.staging`). The
    namespace knows no more of them than this: which fragments are theirs, and when a store comes and goes."""

    async def store_opened(self, keeper: StoreKeeper, notes: Mapping[str, str]) -> None:
        """A store was read and is about to go into service; `notes`: what lies beside its catalogue (`catalogue.
        NOTE_PREFIXES`). Raises StoreError when it cannot be understood."""

    def regain_store(self, store_name: str) -> None:
        """It is in service."""

    def lose_store(self, store_name: str) -> None:
        """What memory holds of it is worth nothing any more."""

    def keys_in(self, store_name: str) -> set[FragmentKey]: ...

    async def forget_all(self) -> None:
        """The namespace is made as new: neither rows nor the memory of those that were written stay. Raises
        ServerBusy when something could not be forgotten."""


class NoStagedRows:
    """A namespace that nobody stages for."""

    async def store_opened(self, keeper: StoreKeeper, notes: Mapping[str, str]) -> None: ...

    def regain_store(self, store_name: str) -> None: ...

    def lose_store(self, store_name: str) -> None: ...

    async def forget_all(self) -> None: ...

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        del store_name
        return set()


#: Adds what belongs to a change to the batch that writes it.
Join = Callable[[CommitBatch], None]


class NamespaceContents:
    """What a namespace consists of, and the one way to change it."""

    def __init__(
        self,
        name: str,
        keepers: dict[str, StoreKeeper],
        runtime: BrokerRuntime,
        background: BackgroundWork,
        delete_idle: Callable[[str], None],
    ) -> None:
        self.runtime = runtime
        self.limits = runtime.limits
        self.clock = runtime.clock
        self.entropy = runtime.entropy
        self.background = background
        #: By name, in the order they were given.
        self.keepers = keepers
        self.catalogue = Catalogue()
        #: The namespace itself: its name and its keys.
        self.row = NamespaceRow("", name, (), 0)
        self.entities = EntityTable(runtime, keepers.__getitem__)
        self.idle = IdleEntities(self.entities, keepers.__getitem__)
        self.auto_delete = AutoDelete(self.idle, self.clock, runtime.timers, delete_idle)
        self.operations = OperationsLog(self.clock, self.entropy)
        #: Both are set before the namespace is opened.
        self.hubs: HubEntities = NoHubs()
        self.staged: StagedRows = NoStagedRows()
        #: Changes wait for one another.
        self.changing = asyncio.Lock()
        self._rights_watchers: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        return self.row.name

    async def write(self, changes: Changes, join: Join | None = None) -> None:
        """Raises ServerBusy when nothing was changed, StoreOutcomeUnknown when that is unknown."""
        await self.catalogue.change(changes, join)
        self.copy_catalogue()

    def copy_catalogue(self) -> None:
        """To stores that are behind."""
        for keeper in self.keepers.values():
            if keeper.is_open and self.catalogue.is_behind(keeper):
                self.background.spawn(self.catalogue.copy_to(keeper))

    def decided_changes(self) -> Changes:
        """Of rules, by transactions: what the catalogue has not taken over yet (T-13)."""
        rows = self.entities.rows
        return to_take_over(self.catalogue.decided_rules, self.catalogue.rows, lambda key: key in rows)

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        """Fragments of entities of all kinds."""
        return self.entities.index.keys_in(store_name) | self.hubs.keys_in(store_name)

    def entity_row(self, path: str) -> EntityRow:
        """Raises EntityNotFound, and InvalidOperation where an event hub is."""
        row = self.entities.rows.get(path_key(path))
        if row is None:
            kind = self.hubs.kind_of(path_key(path))
            if kind is not None:
                raise InvalidOperation(f"{shown(path)} is {kind}, neither a queue nor a topic.")
            raise not_found(self.name, path)
        return row

    def record(self, verb: str, description: Description, status: str = SUCCEEDED) -> None:
        """O-7: a line of the operations log."""
        event = f"{verb} {KIND_NAMES[type(description)]}"
        self.operations.record(event, description.path, status=status)

    # -- rights

    def watch_rights(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change that may end or give rights. Returns the un-watch."""
        self._rights_watchers.append(changed)

        def unwatch() -> None:
            if changed in self._rights_watchers:
                self._rights_watchers.remove(changed)

        return unwatch

    def rights_changed(self) -> None:
        for changed in list(self._rights_watchers):
            changed()


def dropping(keys: Sequence[FragmentKey]) -> Join:
    """Their rows are swept later."""
    return lambda batch: batch.fragments_dropped.extend(keys)
