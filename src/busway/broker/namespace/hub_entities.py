"""Event hubs, as far as the namespace knows them. They share its catalogue, its stores, its names and its rights, and
are told what it is told; how they work is their own affair (`streams`)."""

from collections.abc import Mapping
from typing import Protocol

from busway.model.descriptions import AuthorizationRule
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey


class HubEntities(Protocol):
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
