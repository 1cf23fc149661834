"""The stores of a namespace: its first moments, what is done before they go into service, and for operators.

Opening. All stores are opened and their catalogues compared before the first goes into service, and the marks of
messages that were on their way are read; what the stores say becomes the contents of the namespace. A store that
cannot be opened keeps the others from nothing, unless this is the first start: it comes into service later, by its
keeper. The list of stores is written at the first start. Later the same stores must be given; more of them extend
it, for new entities only; fewer are refused, because a store that is left out would silently hide its queues.

Entry: what is done before a store goes into service, and what may wait until later. A store is served from memory
that follows the catalogue, so when it was opened both are compared: what the catalogue knows must be there, what
belongs to nobody (staged rows belong to their stage) is dropped, marks of moves are read. The catalogue's home is
looked at while nothing is being changed, because it may tell of a change whose outcome was unknown. Every other
store is none of a change's business: a change holds `changing` for as long as the home's commit takes, which may
be as long as a disk hangs. So another store never waits for it. What looks as if it belonged to nobody may just be
in the making then, and is dropped afterwards; rules that a transaction has decided follow later, as they do while
the home is away.

When the home is back, the outcome of a creation or a deletion may have become known, and a creation that failed
leaves what other stores had made already. All that lies in stores that never failed, so nobody opens them and
looks: they are read then (`_FragmentsElsewhere`), before memory follows the catalogue. What the catalogue names is
taken up, the rest is dropped.

`NamespaceStores` is for operators: which stores there are, taken out of service and back. It also tells everybody
when one fails or returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from busway.broker.fragment.expiry_and_schedule import Activator, ExpirySweeper
from busway.broker.fragment.fragment import Fragment
from busway.broker.namespace.catalogue import Catalogue, Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, NamespaceRow, StoreRow, store_rows
from busway.broker.namespace.contents import NamespaceContents, dropping
from busway.broker.namespace.entity_creation import database_of, spread_over
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.namespace.lost_commits import leap, make_anew
from busway.broker.store_keeper import StoreKeeper
from busway.clock import Clock, Entropy
from busway.model.descriptions import ROOT_RULE_NAME, AuthorizationRule, root_rule
from busway.model.entity_path import shown
from busway.model.errors import BrokerError, EntityNotFound, ServerBusy, StoreOutcomeUnknown
from busway.store.contract import (
    CommitUnknown,
    FragmentKey,
    FragmentRow,
    StoreError,
    StoreInUse,
    StoreTooNew,
    StoreUnavailable,
)

_log = logging.getLogger("busway.namespace")


class NamespaceOpening:
    """`root_key`: the operator's own key for the root rule. `adopt`: memory follows the catalogue."""

    def __init__(self, contents: NamespaceContents, root_key: str | None, adopt: Callable[[], None]) -> None:
        self._contents = contents
        self._given_root_key = root_key
        self._adopt = adopt

    async def open(self) -> None:
        """Raises StoreError with a sentence for people."""
        contents = self._contents
        keepers = self._ordered()
        errors = await self._connect_all()
        connected = [keeper for keeper in keepers if errors[keeper.name] is None]
        failures = [error for error in errors.values() if error is not None]
        if not connected:
            raise failures[0]
        await contents.catalogue.load(keepers, connected)
        is_new = contents.catalogue.version == 0
        if is_new and failures:
            raise failures[0]
        if not is_new:
            self._check_stores()
        self._adopt()
        await self._read_marks(errors)
        await self._enter_service(errors)
        await self._complete_catalogue(is_new)

    def with_given_key(self, row: NamespaceRow) -> NamespaceRow:
        """The operator's own key counts at once, also while it cannot be written."""
        key = self._given_root_key
        if key is None:
            return row
        return replace(row, rules=with_root_key(row.rules, key, self._contents.clock, self._contents.entropy))

    def _ordered(self) -> list[StoreKeeper]:
        """Stores in the order they were given."""
        return list(self._contents.keepers.values())

    async def _connect_all(self) -> dict[str, StoreError | None]:
        """By store the error that kept it from being opened. Stores out of service are not even tried, nor others in
        a database that failed: each might wait as long for an answer, and is opened later like every failed store."""
        errors: dict[str, StoreError | None] = {}
        disabled: set[str] = set()
        failures: dict[str, StoreError] = {}
        for keeper in self._ordered():
            if keeper.name in disabled:
                errors[keeper.name] = StoreUnavailable(f"The store {keeper.name} is out of service.")
                continue
            database = database_of(keeper.url)
            if database in failures:
                errors[keeper.name] = failures[database]
                keeper.postpone()
                continue
            error = errors[keeper.name] = await _connect(keeper)
            if error is not None:
                failures[database] = error
            elif len(errors) == 1:
                rows = await self._contents.catalogue.read(keeper)
                disabled = {row.name for row in store_rows(rows) if row.is_disabled}
        return errors

    def _check_stores(self) -> None:
        contents = self._contents
        added_stores(contents.catalogue, self._ordered())
        for row in contents.catalogue.store_rows():
            contents.keepers[row.name].is_disabled = row.is_disabled

    async def _read_marks(self, errors: dict[str, StoreError | None]) -> None:
        """Of all stores before the first goes into service: what has arrived anywhere is not sent a second time, also
        when it would go elsewhere by now."""
        for keeper in self._ordered():
            if errors[keeper.name] is None and not keeper.is_disabled:
                try:
                    await self._contents.entities.transfers.store_opened(keeper)
                except StoreError as error:
                    errors[keeper.name] = error

    async def _enter_service(self, errors: dict[str, StoreError | None]) -> None:
        """The home first: it tells which fragments nobody owns."""
        home = self._contents.catalogue.home
        for keeper in [home, *(keeper for keeper in self._ordered() if keeper is not home)]:
            if keeper.is_disabled:
                await keeper.store.close()
                continue
            error = errors[keeper.name]
            try:
                if error is not None:
                    raise error
                await keeper.enter_service()
            except StoreError as failure:
                keeper.fail(failure)

    async def _complete_catalogue(self, is_new: bool) -> None:
        """The rows of a first start, of new stores, and of the operator's own key."""
        contents = self._contents
        async with contents.changing:
            changes = self._first_rows() if is_new else {**self._later_rows(), **contents.decided_changes()}
            if not changes:
                return
            try:
                await contents.write(changes)
            except BrokerError as error:
                if is_new:
                    raise StoreError(error.sentence) from error
                _log.warning("The catalogue could not be brought up to date: %s", error.sentence)
                return
            self._adopt()

    def _first_rows(self) -> Changes:
        contents = self._contents
        return first_rows(
            contents.name, self._ordered(), contents.clock, contents.entropy, self._given_root_key
        )

    def _later_rows(self) -> Changes:
        contents = self._contents
        changes = dict(added_stores(contents.catalogue, self._ordered()))
        text = contents.catalogue.rows[NAMESPACE_KEY]
        if NamespaceRow.parse(text) != contents.row:
            changes[NAMESPACE_KEY] = contents.row.text(text)
        return changes


async def _connect(keeper: StoreKeeper) -> StoreError | None:
    try:
        await keeper.connect()
    except (StoreTooNew, StoreInUse):  # no start without them: one would be damaged, the other served twice
        raise
    except StoreError as error:
        return error
    return None


def first_rows(
    name: str, keepers: Sequence[StoreKeeper], clock: Clock, entropy: Entropy, root_key: str | None
) -> Changes:
    """What the catalogue of a new namespace says (A-3)."""
    now_ms = clock.wall_ms()
    row = NamespaceRow(entropy.bytes(16).hex(), name, (root_rule(entropy, now_ms, root_key),), now_ms)
    changes: dict[str, str | None] = {NAMESPACE_KEY: row.text(None)}
    for position, keeper in enumerate(keepers):
        store = StoreRow(keeper.name, public_url(keeper.url), position)
        changes[store.key] = store.text(None)
    return changes


def added_stores(catalogue: Catalogue, keepers: Sequence[StoreKeeper]) -> Changes:
    """Rows of stores that are new to the namespace. Raises StoreError when known ones were not given."""
    known = catalogue.store_rows()
    given = {keeper.name for keeper in keepers}
    missing = [row.name for row in known if row.name not in given]
    if missing:
        raise StoreError(
            f"This namespace lives on {len(known)} stores ({', '.join(row.name for row in known)}), but"
            f" {', '.join(missing)} {'was' if len(missing) == 1 else 'were'} not given. Start with at least"
            f" the same stores (for files in the data directory: --stores {len(known)} or more)."
        )
    names = {row.name for row in known}
    fresh = [keeper for keeper in keepers if keeper.name not in names]
    rows = [
        StoreRow(keeper.name, public_url(keeper.url), len(known) + index)
        for index, keeper in enumerate(fresh)
    ]
    return {row.key: row.text(None) for row in rows}


def with_root_key(
    rules: tuple[AuthorizationRule, ...], key: str, clock: Clock, entropy: Entropy
) -> tuple[AuthorizationRule, ...]:
    """The operator's own key is the primary key of the root rule, which is made again if it was deleted."""
    now_ms = clock.wall_ms()
    if not any(rule.name == ROOT_RULE_NAME for rule in rules):
        return (root_rule(entropy, now_ms, key), *rules)
    return tuple(_with_key(rule, key, now_ms) if rule.name == ROOT_RULE_NAME else rule for rule in rules)


def _with_key(rule: AuthorizationRule, key: str, now_ms: int) -> AuthorizationRule:
    changed = replace(rule, primary_key=key)
    return rule if changed == rule else replace(changed, modified_at_ms=now_ms)


def public_url(url: str) -> str:
    """A store's address as it is recorded, printed and logged: without user, password and query, where drivers
    keep secrets. One of unknown form (`host=… password=…`) is not shown at all."""
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.isalnum():
        return ""
    if not rest.startswith("//"):
        return url  # a path on this machine
    place = rest[2:].rpartition("@")[2]  # first of all: a password may hold any of the other marks
    return f"{scheme}://{place.partition('?')[0].partition('#')[0]}"


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
        if lost and keeper.store.lost_commits:
            make_anew(keeper, self._owners_of(lost, keeper.name))
        elif lost:
            raise StoreError(
                f"The store {keeper.name} lacks {len(lost)} fragments that the catalogue knows. Was its"
                " file removed or replaced? Restore it, or delete the queues that lay in it."
            )

    def _owners_of(self, keys: set[FragmentKey], store_name: str) -> Iterator[tuple[FragmentKey, str, int]]:
        contents = self._contents
        for key in sorted(keys):
            owner = contents.entities.index.owner(store_name, key)
            yield (key, "", 0) if owner is None else (key, owner[0].description.path, owner[1])

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


def _owner(keeper: StoreKeeper) -> str | None:
    """For people; None: nobody knows, or nobody."""
    if keeper.is_taken:
        return "another server"
    return "this server" if keeper.store_is_usable else None


class NamespaceStores:
    """The stores of a namespace, for operators: which there are, taken out of service and back. And what
    everybody is told when one fails or returns."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def shown(self) -> list[dict[str, object]]:
        """In the order they were given."""
        return [
            {
                "name": keeper.name,
                "url": public_url(keeper.url),
                "state": keeper.state,
                "owner": _owner(keeper),
                "epoch": keeper.store.epoch,
                "lost_commits": keeper.lost_commits,
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
        contents, has_lost = self._contents, keeper.store.lost_commits > 0
        if has_lost:
            owner = contents.entities.index.owner
            keys = contents.entities.index.keys_in(keeper.name)
            found = ((key, owner(keeper.name, key)) for key in sorted(keys))
            leap(keeper, [(key, place[1]) for key, place in found if place is not None])
        contents.entities.regain_store(keeper.name)
        contents.hubs.regain_store(keeper.name)
        contents.staged.regain_store(keeper.name)
        if has_lost:
            keeper.store.loss_is_met()
