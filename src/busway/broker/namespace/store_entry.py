"""What is done before a store goes into service, and what may wait until later.

Theory of operation. A store is served from memory that follows the catalogue, so when it was opened both are
compared: what the catalogue knows must be there, what belongs to nobody (staged rows belong to their stage) is
dropped, marks of moves are read. The
catalogue's home is looked at while nothing is being changed, because it may tell of a change whose outcome was
unknown. Every other store is none of a change's business: a change holds `changing` for as long as the home's
commit takes, which may be as long as a disk hangs. So another store never waits for it. What looks as if it
belonged to nobody may just be in the making then, and is dropped afterwards; rules that a transaction has decided
follow later, as they do while the home is away.

When the home is back, the outcome of a creation or a deletion may have become known, and a creation that failed
leaves what other stores had made already. All that lies in stores that never failed, so nobody opens them and
looks: they are read then (`_FragmentsElsewhere`), before memory follows the catalogue. What the catalogue names is
taken up, the rest is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Final

from busway.broker.fragment.expiry import ExpirySweeper
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.schedule import Activator
from busway.broker.namespace.contents import NamespaceContents, dropping
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.store_keeper import StoreKeeper
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, FragmentRow, StoreError

_log = logging.getLogger("busway.namespace")

#: How long a store waits for the home to take over rules that were decided in it.
_TAKE_OVER_S: Final = 2.0

#: The fragments that somebody has in a store.
KeysIn = Callable[[StoreKeeper], set[FragmentKey]]


class StoreEntry:
    """Of all stores of a namespace."""

    def __init__(
        self,
        contents: NamespaceContents,
        adopt: Callable[[], None],
        watch_heads: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self._contents = contents
        #: Memory follows the catalogue.
        self._adopt = adopt
        #: Entities whose messages expire or move on by themselves are loaded.
        self._watch_heads = watch_heads

    async def examine(self, keeper: StoreKeeper) -> None:
        """A store was opened. Raises StoreError when it does not fit; drops what belongs to nobody."""
        contents = self._contents
        if keeper is contents.catalogue.home:
            async with contents.changing:
                elsewhere = await self._follow_home(keeper)
                contents.entities.transfers.open_departures()
                await contents.staged.store_opened(keeper, contents.catalogue.take_notes(keeper))
                self._check_nothing_lost(keeper)
                await self._bring_home_up_to_date(keeper)
                self._drop_orphans(keeper)
                if contents.catalogue.home_leads:
                    for other in elsewhere.drop_rest(self._keys_in):
                        contents.background.spawn(other.sweep_dropped(contents.runtime.limits.sweep_rows_max))
                await contents.entities.transfers.store_opened(keeper)
        else:
            await contents.catalogue.reload(keeper)
            await self._take_over_soon()
            await contents.staged.store_opened(keeper, contents.catalogue.take_notes(keeper))
            self._check_nothing_lost(keeper)
            contents.background.spawn(contents.catalogue.copy_to(keeper))
            self._drop_orphans_of_other(keeper)
            await contents.entities.transfers.store_opened(keeper)
        fragment_of = _FragmentFinder(contents.entities, keeper.name)
        Activator(keeper.store, fragment_of, contents.runtime).start()
        ExpirySweeper(keeper.store, fragment_of, contents.runtime).start()
        contents.background.spawn(keeper.sweep_dropped(contents.runtime.limits.sweep_rows_max))
        contents.background.spawn(self._watch_heads())
        contents.entities.transfers.settle_all()

    def entered(self, keeper: StoreKeeper) -> None:
        """The home is in service: it takes what was decided without it."""
        contents = self._contents
        if keeper is contents.catalogue.home and contents.decided_changes():
            contents.background.spawn(self._take_over_rules())

    async def _follow_home(self, keeper: StoreKeeper) -> _FragmentsElsewhere:
        contents = self._contents
        elsewhere = _FragmentsElsewhere()
        await elsewhere.read(other for other in contents.keepers.values() if other is not keeper)
        if await contents.catalogue.reload(keeper):
            self._adopt()
            elsewhere.take_up(self._keys_in)
        return elsewhere

    async def _bring_home_up_to_date(self, keeper: StoreKeeper) -> None:
        """It must have everything before it takes changes; a copy may follow later."""
        await self._contents.catalogue.copy_to(keeper)
        if self._contents.catalogue.is_behind(keeper):
            raise StoreError(f"The store {keeper.name} could not be brought up to date.")

    def _keys_in(self, keeper: StoreKeeper) -> set[FragmentKey]:
        contents, name = self._contents, keeper.name
        return contents.keys_in(name) | contents.staged.keys_in(name)

    def _check_nothing_lost(self, keeper: StoreKeeper) -> None:
        lost = self._keys_in(keeper) - keeper.counters.keys()
        if lost:
            raise StoreError(
                f"The store {keeper.name} lacks {len(lost)} fragments that the catalogue knows. Was its"
                " file removed or replaced? Restore it, or delete the queues that lay in it."
            )

    # -- what belongs to nobody

    def _drop_orphans_of_other(self, keeper: StoreKeeper) -> None:
        if self._contents.changing.locked():
            self._contents.background.spawn(self._drop_orphans_later(keeper))
        else:
            self._drop_orphans(keeper)

    async def _drop_orphans_later(self, keeper: StoreKeeper) -> None:
        contents = self._contents
        async with contents.changing:
            if not keeper.is_open:  # it is looked at again when it is back
                return
            try:
                self._drop_orphans(keeper)
            except StoreError as error:
                keeper.fail(error)
                return
        await keeper.sweep_dropped(contents.runtime.limits.sweep_rows_max)

    def _drop_orphans(self, keeper: StoreKeeper) -> None:
        """While nothing is in the making. Nobody waits for the commit: should it fail, the store is opened again."""
        orphans = sorted(keeper.counters.keys() - self._keys_in(keeper))
        if orphans and self._contents.catalogue.home_leads:
            keeper.store.batch().fragments_dropped.extend(orphans)
            for key in orphans:
                del keeper.counters[key]

    # -- rules that transactions decided

    async def _take_over_soon(self) -> None:
        """Before the store's topics are published to, if the home does it soon."""
        contents = self._contents
        if not contents.decided_changes() or not contents.catalogue.home.is_open:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        async def take_over() -> None:
            try:
                await self._take_over_rules()
            finally:
                end()

        runtime = contents.runtime
        timer = runtime.timers.at(runtime.clock.monotonic() + _TAKE_OVER_S, end)
        contents.background.spawn(take_over())
        try:
            await over
        finally:
            runtime.timers.cancel(timer)

    async def _take_over_rules(self) -> None:
        """T-13: what a transaction has decided about rules, and the catalogue did not hear of. Waits for the home."""
        contents = self._contents
        async with contents.changing:
            changes = contents.decided_changes()
            if not changes or not contents.catalogue.home.is_open:
                return
            try:
                await contents.write(changes)
            except BrokerError as error:
                _log.warning("Rules that a transaction changed are written down later: %s", error.sentence)
            else:
                self._adopt()


class _FragmentFinder:
    """Which fragment a row of a store belongs to."""

    def __init__(self, entities: EntityTable, store_name: str) -> None:
        self._entities = entities
        self._store_name = store_name

    async def __call__(self, key: FragmentKey) -> Fragment | None:
        return self._entities.fragment(self._store_name, key)


class _FragmentsElsewhere:
    """Read before memory follows the catalogue, taken up after it, without a moment between the two; all that while
    nothing is in the making."""

    def __init__(self) -> None:
        self._rows: list[tuple[StoreKeeper, list[FragmentRow]]] = []

    async def read(self, keepers: Iterable[StoreKeeper]) -> None:
        """Raises StoreError when a store that is in service cannot be read."""
        for keeper in keepers:
            if not keeper.is_open:
                continue
            try:
                self._rows.append((keeper, await keeper.store.fragments()))
            except StoreError as error:
                if keeper.is_open:  # nobody would read it again: the home comes back when it can be read
                    raise
                # it is opened anew and then read whole
                _log.warning("The fragments of store %s are read later: %s", keeper.name, error)

    def take_up(self, keys_in: KeysIn) -> None:
        for keeper, rows in self._rows:
            missing = keys_in(keeper) - keeper.counters.keys()
            keeper.counters.update({row.key: row.counters for row in rows if row.key in missing})

    def drop_rest(self, keys_in: KeysIn) -> list[StoreKeeper]:
        """The stores that have something to sweep now. Nobody waits for a commit: should it fail, the store is opened
        again and looked at then."""
        swept: list[StoreKeeper] = []
        for keeper, rows in self._rows:
            rest = sorted({row.key for row in rows} - keys_in(keeper))
            if rest and keeper.join(dropping(rest)):
                swept.append(keeper)
                for key in rest:
                    keeper.counters.pop(key, None)
        return swept
