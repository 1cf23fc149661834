"""The event hubs of a namespace, for gateways and for the namespace itself; how they come, change and go.

So do their consumer groups. Hubs live beside queues and topics: one catalogue, one set of stores, one space of
names, one set of rights.

Theory of operation. As for queues (`broker.namespace.entity_creation`): changes wait for one another under the
namespace's lock, a change is made when the catalogue's home has it, and only then memory follows. Logs of a new
hub are committed in their stores before its row names them, and dropped after the row is gone; what a crash leaves
between belongs to nobody and is dropped when its store is opened next.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.model.descriptions import AuthorizationRule, completed_rules
from busway.model.entity_path import already_exists, not_found, path_key, shown
from busway.model.errors import BadArgument, BrokerError, EntityAlreadyExists, QuotaExceeded, ServerBusy
from busway.store.contract import CommitBatch, Counters, FragmentKey, FragmentRow, StoreError
from busway.streams.capture import Captures
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import (
    DEFAULT_GROUP,
    ConsumerGroupDescription,
    EventHubDescription,
    check_group,
    check_hub,
    check_hub_update,
    groups_max,
)
from busway.streams.hub_table import GroupRow, HubRow, HubTable, LogShare, group_rows, hub_rows

Join = Callable[[CommitBatch], None]
_KIND: Final = "EventHub"
_GROUP_KIND: Final = "ConsumerGroup"


class HubChanges:
    """How event hubs and consumer groups come, change and go."""

    def __init__(self, namespace: Namespace, table: HubTable, clock: Clock, entropy: Entropy) -> None:
        self._namespace = namespace
        self._table = table
        self._clock = clock
        self._entropy = entropy

    # -- hubs

    async def create(
        self, wanted: EventHubDescription, groups: Sequence[ConsumerGroupDescription]
    ) -> EventHubDescription:
        """With its consumer groups; `$Default` is always among them (H-5)."""
        namespace = self._namespace
        async with namespace.contents.changing:
            self._check_name(wanted)
            completed = self._completed(wanted)
            group_rows = self._first_groups(completed, groups)
            shares = self._placed(completed.partition_count)
            row = HubRow(
                path_key(completed.path), completed, shares, namespace.contents.catalogue.version + 1
            )
            await self._create_logs(row, 0)
            texts: dict[str, str | None] = {row.row_key: row.text(None)}
            texts.update({group.row_key: group.text(None) for group in group_rows})
            await namespace.contents.write(texts, _creating(row, 0, namespace.contents.catalogue.home.name))
            self._adopt(row, 0)
            for group in group_rows:
                self._table.put_group(group)
            self._table.hub(row)
            namespace.operations.record(f"Create {_KIND}", completed.path)
        return completed

    def _check_name(self, wanted: EventHubDescription) -> None:
        namespace = self._namespace
        check_hub(replace(wanted, authorization_rules=()), namespace.limits)
        key = path_key(wanted.path)
        if key in self._table.rows or namespace.exists(wanted.path):
            raise already_exists(namespace.name, wanted.path)
        below = namespace.contents.entities.index.paths_below(key)
        if below:
            raise EntityAlreadyExists(
                f"The name {shown(wanted.path)} cannot be used for an event hub: {shown(below[0])} lies below it."
            )
        entities = namespace.contents.entities.index.entity_count() + len(self._table.rows)
        if entities >= namespace.limits.entities_max:
            raise QuotaExceeded(
                f"The namespace may have {namespace.limits.entities_max} entities; no more can be created."
            )

    def _completed(self, wanted: EventHubDescription) -> EventHubDescription:
        now_ms = self._clock.wall_ms()
        rules = completed_rules(wanted.authorization_rules, (), self._entropy, now_ms)
        completed = replace(wanted, authorization_rules=rules, created_at_ms=now_ms, updated_at_ms=now_ms)
        check_hub(completed, self._namespace.limits)
        return completed

    def _first_groups(
        self, hub: EventHubDescription, groups: Sequence[ConsumerGroupDescription]
    ) -> list[GroupRow]:
        wanted = {path_key(DEFAULT_GROUP): ConsumerGroupDescription(hub.path, DEFAULT_GROUP)}
        wanted.update({path_key(group.name): replace(group, hub_path=hub.path) for group in groups})
        self._check_group_count(len(wanted), hub.path)
        for group in wanted.values():
            check_group(group, self._namespace.limits)
        key, now_ms = path_key(hub.path), hub.created_at_ms
        return [
            GroupRow(key, replace(group, created_at_ms=now_ms, updated_at_ms=now_ms))
            for group in wanted.values()
        ]

    def _placed(self, count: int) -> tuple[LogShare, ...]:
        stores = self._namespace.stores.spread(count)
        return tuple(LogShare(store.name, store.store.next_fragment_key()) for store in stores)

    async def _create_logs(self, row: HubRow, first: int) -> None:
        """In the stores other than the home; there they join the row's own batch."""
        namespace = self._namespace
        home = namespace.contents.catalogue.home.name
        made: list[str] = []
        for name in sorted({share.store_name for share in row.shares[first:]} - {home}):
            try:
                await namespace.contents.keepers[name].commit(_creating(row, first, name))
                made.append(name)
            except StoreError as error:
                for other in made:
                    namespace.contents.keepers[other].join(_dropping(row, first, other))
                raise ServerBusy(
                    f"The store {name} failed: nothing was created. Please try again."
                ) from error

    def _adopt(self, row: HubRow, first: int) -> None:
        for share in row.shares[first:]:
            self._namespace.contents.keepers[share.store_name].counters[share.log] = Counters()
        self._table.put(row)

    async def update(self, wanted: EventHubDescription) -> EventHubDescription:
        namespace = self._namespace
        async with namespace.contents.changing:
            row = self.found(wanted.path)
            present = row.description
            now_ms = self._clock.wall_ms()
            rules = completed_rules(
                wanted.authorization_rules, present.authorization_rules, self._entropy, now_ms
            )
            changed = replace(
                wanted,
                path=present.path,
                authorization_rules=rules,
                created_at_ms=present.created_at_ms,
                updated_at_ms=now_ms,
            )
            check_hub_update(present, changed, namespace.limits)
            await self._write_update(row, changed)
            namespace.operations.record(f"Update {_KIND}", present.path)
        if rules != present.authorization_rules:
            namespace.contents.rights_changed()
        return changed

    async def _write_update(self, row: HubRow, changed: EventHubDescription) -> None:
        """H-3: with more partitions, where they may become more."""
        namespace = self._namespace
        first = len(row.shares)
        added = changed.partition_count - first
        shares = row.shares + (self._placed(added) if added > 0 else ())
        fresh = replace(row, description=changed, shares=shares)
        await self._create_logs(fresh, first)
        text = fresh.text(namespace.contents.catalogue.rows.get(row.row_key))
        await namespace.contents.write(
            {row.row_key: text}, _creating(fresh, first, namespace.contents.catalogue.home.name)
        )
        self._adopt(fresh, first)

    async def delete(self, path: str) -> None:
        namespace = self._namespace
        async with namespace.contents.changing:
            row = self.found(path)
            home = namespace.contents.catalogue.home
            texts: dict[str, str | None] = {row.row_key: None}
            texts.update({group.row_key: None for group in self._table.groups(row.key)})
            await namespace.contents.write(texts, _dropping(row, 0, home.name))
            self._table.remove(row, not_found(namespace.name, row.description.path))
            # Elsewhere it is enough to try: what is left there belongs to nobody and goes at the next opening.
            for name in row.store_names:
                keeper = namespace.contents.keepers[name]
                if keeper is home or keeper.join(_dropping(row, 0, name)):
                    namespace.background.spawn(keeper.sweep_dropped(namespace.limits.sweep_rows_max))
            namespace.operations.record(f"Delete {_KIND}", row.description.path)
        namespace.contents.rights_changed()

    # -- consumer groups

    async def create_group(self, wanted: ConsumerGroupDescription) -> ConsumerGroupDescription:
        namespace = self._namespace
        async with namespace.contents.changing:
            hub = self.found(wanted.hub_path)
            check_group(wanted, namespace.limits)
            if self._table.group(hub.key, wanted.name) is not None:
                raise already_exists(namespace.name, f"{hub.description.path}/ConsumerGroups/{wanted.name}")
            self._check_group_count(len(self._table.groups(hub.key)) + 1, hub.description.path)
            now_ms = self._clock.wall_ms()
            completed = replace(
                wanted, hub_path=hub.description.path, created_at_ms=now_ms, updated_at_ms=now_ms
            )
            await self._write_group(GroupRow(hub.key, completed), "Create")
        return completed

    async def update_group(self, wanted: ConsumerGroupDescription) -> ConsumerGroupDescription:
        namespace = self._namespace
        async with namespace.contents.changing:
            hub = self.found(wanted.hub_path)
            present = self.found_group(hub, wanted.name).description
            check_group(wanted, namespace.limits)
            changed = replace(
                present, user_metadata=wanted.user_metadata, updated_at_ms=self._clock.wall_ms()
            )
            await self._write_group(GroupRow(hub.key, changed), "Update")
        return changed

    async def _write_group(self, row: GroupRow, verb: str) -> None:
        namespace = self._namespace
        await namespace.contents.write(
            {row.row_key: row.text(namespace.contents.catalogue.rows.get(row.row_key))}
        )
        self._table.put_group(row)
        where = f"{row.description.hub_path}/ConsumerGroups/{row.description.name}"
        namespace.operations.record(f"{verb} {_GROUP_KIND}", where)

    async def delete_group(self, hub_path: str, name: str) -> None:
        namespace = self._namespace
        if path_key(name) == path_key(DEFAULT_GROUP):
            raise BadArgument(f"The consumer group {DEFAULT_GROUP} cannot be deleted.")
        async with namespace.contents.changing:
            hub = self.found(hub_path)
            row = self.found_group(hub, name)
            await namespace.contents.write({row.row_key: None})
            where = f"{hub.description.path}/ConsumerGroups/{row.description.name}"
            self._table.remove_group(row, not_found(namespace.name, where))
            namespace.operations.record(f"Delete {_GROUP_KIND}", where)

    def _check_group_count(self, count: int, hub_path: str) -> None:
        most = groups_max(self._namespace.limits)
        if count > most:
            raise QuotaExceeded(
                f"The event hub {shown(hub_path)} may have {most} consumer groups; no more can be created."
            )

    # -- both

    def found(self, path: str) -> HubRow:
        row = self._table.rows.get(path_key(path))
        if row is None:
            raise not_found(self._namespace.name, path)
        return row

    def found_group(self, hub: HubRow, name: str) -> GroupRow:
        row = self._table.group(hub.key, name)
        if row is None:
            raise not_found(self._namespace.name, f"{hub.description.path}/ConsumerGroups/{name}")
        return row


def _creating(row: HubRow, first: int, store_name: str) -> Join:
    """The logs of partitions from `first` on in one store."""

    def join(batch: CommitBatch) -> None:
        for index in range(first, len(row.shares)):
            share = row.shares[index]
            if share.store_name == store_name:
                owner = f"{row.description.path}/Partitions/{index}"
                batch.fragments_created.append(FragmentRow(share.log, owner, 0, Counters()))

    return join


def _dropping(row: HubRow, first: int, store_name: str) -> Join:
    keys: list[FragmentKey] = [share.log for share in row.shares[first:] if share.store_name == store_name]
    return lambda batch: batch.fragments_dropped.extend(keys)


_log = logging.getLogger("busway.namespace")

#: Of paths in a warning.
_SHOWN_PATHS_MAX: Final = 5
#: What may follow a hub's name in an address, in lower case.
_PARTS: Final = ("consumergroups", "partitions", "publishers")


class EventHubs:
    """Made before the namespace is opened, which tells it what the catalogue says."""

    def __init__(
        self, namespace: Namespace, clock: Clock, entropy: Entropy, capture_folder: Path | None = None
    ) -> None:
        self.namespace = namespace
        self.captures = Captures(capture_folder)
        self._table = HubTable(
            lambda: namespace.name, namespace.runtime, namespace.contents.keepers.__getitem__, self.captures
        )
        self._changes = HubChanges(namespace, self._table, clock, entropy)
        #: Hubs that stand above queues or topics, as earlier versions allowed.
        self._warned: set[str] = set()
        namespace.contents.hubs = self

    # -- for gateways

    def exists(self, path: str) -> bool:
        return path_key(path) in self._table.rows

    def row(self, path: str) -> HubRow | None:
        return self._table.rows.get(path_key(path))

    def hub(self, path: str) -> EventHub:
        """Raises EntityNotFound."""
        return self._table.hub(self._changes.found(path))

    def loaded(self) -> list[EventHub]:
        """Those that have been used since the start."""
        return self._table.loaded()

    def hubs(self) -> list[EventHubDescription]:
        """Sorted by path."""
        return [row.description for _, row in sorted(self._table.rows.items())]

    def description(self, path: str) -> EventHubDescription:
        return self._changes.found(path).description

    def groups(self, path: str) -> list[ConsumerGroupDescription]:
        """By name; `$Default` first."""
        row = self._changes.found(path)
        return [group.description for group in self._table.groups(row.key)]

    def group(self, path: str, name: str) -> ConsumerGroupDescription:
        return self._changes.found_group(self._changes.found(path), name).description

    def store_names(self, path: str) -> list[str]:
        """Where each partition lies."""
        return [share.store_name for share in self._changes.found(path).shares]

    async def create(
        self, wanted: EventHubDescription, groups: Sequence[ConsumerGroupDescription] = ()
    ) -> EventHubDescription:
        return await self.namespace.background.finish(self._changes.create(wanted, groups))

    async def update(self, wanted: EventHubDescription) -> EventHubDescription:
        return await self.namespace.background.finish(self._changes.update(wanted))

    async def delete(self, path: str) -> None:
        await self.namespace.background.finish(self._changes.delete(path))

    async def create_group(self, wanted: ConsumerGroupDescription) -> ConsumerGroupDescription:
        return await self.namespace.background.finish(self._changes.create_group(wanted))

    async def update_group(self, wanted: ConsumerGroupDescription) -> ConsumerGroupDescription:
        return await self.namespace.background.finish(self._changes.update_group(wanted))

    async def delete_group(self, hub_path: str, name: str) -> None:
        await self.namespace.background.finish(self._changes.delete_group(hub_path, name))

    # -- for the namespace (`HubEntities`)

    def adopt(self, rows: Mapping[str, str]) -> None:
        self._table.replace_all(
            hub_rows(rows), group_rows(rows), lambda path: not_found(self.namespace.name, path)
        )
        for key, row in self._table.rows.items():
            below = self.namespace.contents.entities.index.paths_below(key)
            if below and key not in self._warned:
                self._warned.add(key)
                _log.warning(
                    "Below the event hub %s lie %d queues or topics (%s). Where one has an address of the hub, links"
                    " reach the hub. Please move their messages to other names, or delete them.",
                    shown(row.description.path),
                    len(below),
                    ", ".join(map(shown, below[:_SHOWN_PATHS_MAX])),
                )

    def kind_of(self, key: str) -> str | None:
        return "an event hub" if key in self._table.rows else None

    def entity_count(self) -> int:
        return len(self._table.rows)

    def owner_key(self, key: str) -> str | None:
        name, _, rest = key.partition("/")
        if name not in self._table.rows:
            return None
        return name if rest == "" or rest.split("/")[0] in _PARTS else None

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        row = self._table.rows.get(key)
        return None if row is None else (row.incarnation, row.description.authorization_rules)

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        return self._table.keys_in(store_name)

    def lose_store(self, store_name: str, error: BrokerError) -> None:
        self._table.lose_store(store_name, error)

    def regain_store(self, store_name: str) -> None:
        self._table.regain_store(store_name)
