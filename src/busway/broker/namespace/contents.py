"""What a namespace consists of, and the one way to change it.

Theory of operation. The catalogue says what there is, and the tables in memory follow it: a change is written
(`write`), and only then whoever wrote it changes the tables. Changes wait for one another (`changing`). Changes,
stores that come and go, and what clients ask for all work on this, and it knows none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from busway.background import BackgroundWork
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.auto_delete import AutoDelete
from busway.broker.namespace.catalogue import Catalogue, Changes
from busway.broker.namespace.catalogue_rows import EntityRow, NamespaceRow
from busway.broker.namespace.decided_rules import to_take_over
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.namespace.hub_entities import HubEntities, NoHubs
from busway.broker.namespace.idle_entities import IdleEntities
from busway.broker.namespace.operations_log import SUCCEEDED, OperationsLog
from busway.broker.namespace.staged_rows import NoStagedRows, StagedRows
from busway.broker.store_keeper import StoreKeeper
from busway.model.descriptions import KIND_NAMES, Description
from busway.model.entity_path import not_found, path_key, shown
from busway.model.errors import InvalidOperation
from busway.store.contract import CommitBatch, FragmentKey

#: Adds what belongs to a change to the batch that writes it.
Join = Callable[[CommitBatch], None]


class NamespaceContents:
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
