"""The stores of a namespace, for operators: which there are, taken out of service and back. And what everybody is
told when one fails or returns."""

from dataclasses import replace

from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.opening import public_url
from busway.broker.namespace.placement import spread_over
from busway.broker.store_keeper import StoreKeeper
from busway.model.entity_path import shown
from busway.model.errors import BrokerError, EntityNotFound, ServerBusy, StoreOutcomeUnknown
from busway.store.contract import CommitUnknown, StoreError


class NamespaceStores:
    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def shown(self) -> list[dict[str, object]]:
        """In the order they were given."""
        return [
            {
                "name": keeper.name,
                "url": public_url(keeper.url),
                "state": keeper.state,
                "fragments": len(self._contents.keys_in(keeper.name)),
            }
            for keeper in self._contents.keepers.values()
        ]

    def spread(self, count: int) -> list[StoreKeeper]:
        """One for each of so many fragments. Raises ServerBusy when one of them is not in service (P-60)."""
        return spread_over(list(self._contents.keepers.values()), count)

    async def disable(self, name: str) -> None:
        """Takes a store out of service, also over restarts, until `enable`."""
        await self._contents.background.finish(self._disable(self._named(name)))

    async def _disable(self, keeper: StoreKeeper) -> None:
        async with self._contents.changing:
            if not keeper.is_disabled:
                await self._mark_disabled(keeper, True)
                await keeper.disable()

    async def enable(self, name: str) -> None:
        await self._contents.background.finish(self._enable(self._named(name)))

    async def _enable(self, keeper: StoreKeeper) -> None:
        if keeper.is_disabled:
            await keeper.enable()
            async with self._contents.changing:
                await self._mark_disabled(keeper, False)

    async def _mark_disabled(self, keeper: StoreKeeper, is_disabled: bool) -> None:
        catalogue = self._contents.catalogue
        row = next(row for row in catalogue.store_rows() if row.name == keeper.name)
        changed = replace(row, is_disabled=is_disabled)
        await self._contents.write({row.key: changed.text(catalogue.rows.get(row.key))})

    def _named(self, name: str) -> StoreKeeper:
        keepers = self._contents.keepers
        if name not in keepers:
            raise EntityNotFound(f"There is no store {shown(name)}; known are {', '.join(keepers)}.")
        return keepers[name]

    # -- told by keepers

    def lost(self, keeper: StoreKeeper, error: StoreError) -> None:
        runtime = self._contents.runtime
        for sweeps in (runtime.sweepers, runtime.activators):
            sweep = sweeps.pop(keeper.name, None)
            if sweep is not None:
                sweep.stop()
        reason: BrokerError = (
            StoreOutcomeUnknown()
            if isinstance(error, CommitUnknown)
            else ServerBusy(
                "The store of this entity is not available at the moment. Please try again later."
            )
        )
        self._contents.entities.lose_store(keeper.name, reason)
        self._contents.hubs.lose_store(keeper.name, reason)
        self._contents.staged.lose_store(keeper.name)

    def entered(self, keeper: StoreKeeper) -> None:
        self._contents.entities.regain_store(keeper.name)
        self._contents.hubs.regain_store(keeper.name)
        self._contents.staged.regain_store(keeper.name)
