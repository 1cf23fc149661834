"""Rows that lie in stores and belong to no entity yet: what writers have staged (`busway.staging`). The namespace
knows no more of them than this: which fragments are theirs, and when a store comes and goes."""

from collections.abc import Mapping
from typing import Protocol

from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import FragmentKey


class StagedRows(Protocol):
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
