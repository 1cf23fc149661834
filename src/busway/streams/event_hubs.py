"""The event hubs of a namespace, for gateways and for the namespace itself.

They live beside queues and topics: one catalogue, one set of stores, one space of names, one set of rights.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.model.descriptions import AuthorizationRule
from busway.model.entity_path import not_found, path_key, shown
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey
from busway.streams.capture import Captures
from busway.streams.event_hub import EventHub
from busway.streams.hub_changes import HubChanges
from busway.streams.hub_descriptions import ConsumerGroupDescription, EventHubDescription
from busway.streams.hub_rows import HubRow, group_rows, hub_rows
from busway.streams.hub_table import HubTable

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
