"""The namespace: what exists, where it lies, who may change it, and everything that time brings.

Theory of operation. The catalogue's rows are parsed once into `QueueRow`s; a queue's fragments are made when it
is first used, from counters that its store read at opening, so ten thousand idle queues are ten thousand small
rows and start-up reads no message.

Changes (create, update, delete, rules, stores) wait for one another and run to their end even when whoever
asked has gone away. A change is made when the catalogue's home has it; only then memory follows. Fragments of a
new queue are committed in their store before the row names them, and dropped after the row is gone; what a
crash leaves between the two belongs to nobody and is dropped when its store is opened next.

A store that fails takes its loaded queues with it: they are evicted and forgotten, and made anew when the store
is back (`store_keeper`). Everything else goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from busway.broker.authorization import Authorizer
from busway.broker.auto_delete import LOOK_AROUND_EVERY_S, AutoDelete
from busway.broker.background import BackgroundWork
from busway.broker.catalogue import Catalogue, Changes
from busway.broker.catalogue_rows import (
    NAMESPACE_KEY,
    QUEUE_PREFIX,
    NamespaceRow,
    QueueRow,
    queue_row_key,
    store_rows,
)
from busway.broker.description_checks import check_creation, check_rules, check_update
from busway.broker.descriptions import AuthorizationRule, QueueDescription, RuntimeCounts
from busway.broker.entity_path import DEAD_LETTER_KEYWORD, not_found, path_key, shown
from busway.broker.errors import (
    BadArgument,
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.broker.expiry import ExpirySweeper
from busway.broker.fragment import Fragment
from busway.broker.limits import Limits
from busway.broker.opening import added_stores, first_rows, public_url, with_root_key
from busway.broker.placement import choose_store
from busway.broker.queue import Queue
from busway.broker.queue_table import QueueTable
from busway.broker.ready_window import WindowBudget
from busway.broker.runtime import BrokerRuntime
from busway.broker.sas_keys import ROOT_RULE_NAME, completed_rules
from busway.broker.schedule import Activator
from busway.broker.store_keeper import StoreKeeper
from busway.broker.timers import Timers
from busway.clock import Clock, Entropy
from busway.store.contract import (
    CommitBatch,
    CommitUnknown,
    Counters,
    FragmentKey,
    FragmentRow,
    Store,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)

_log = logging.getLogger("busway.namespace")

#: Queues loaded in one go by background work, before others get their turn.
_SLICE_QUEUES: Final = 50


class Namespace:
    """See the head of this file. `root_key`: the operator's own key for RootManageSharedAccessKey; without it a
    random one is drawn at the first start. `name` counts at the first start only."""

    def __init__(
        self,
        name: str,
        stores: Sequence[Store],
        clock: Clock,
        entropy: Entropy,
        limits: Limits,
        *,
        root_key: str | None = None,
        accepts_development_key: bool = False,
    ) -> None:
        self.name = name
        self.limits = limits
        self._clock = clock
        self._entropy = entropy
        self._given_root_key = root_key
        self._timers = Timers()
        self._background = BackgroundWork()
        self._runtime = BrokerRuntime(
            clock,
            entropy,
            limits,
            self._timers,
            WindowBudget(limits.window_bytes_max),
            self._background.spawn,
            self._store_failed,
            self._used_bytes,
        )
        self._keepers = {store.name: self._keeper(store) for store in stores}
        if not stores or len(self._keepers) < len(stores):
            raise StoreError("A namespace needs one or more stores, each with a name of its own.")
        self._catalogue = Catalogue()
        self._queues = QueueTable(self._runtime, self._keepers.__getitem__)
        self._auto_delete = AutoDelete(self._queues, clock, self._timers, self._delete_idle)
        self._row = NamespaceRow("", name, (), 0)
        self._rule_watchers: list[Callable[[], None]] = []
        #: Changes wait for one another.
        self._changing = asyncio.Lock()
        self.authorizer = Authorizer(self, clock, accepts_development_key=accepts_development_key)

    def _keeper(self, store: Store) -> StoreKeeper:
        return StoreKeeper(
            store,
            self._clock,
            self._timers,
            self._background.spawn,
            examine=self._examine,
            lost=self._store_lost,
        )

    # -- life

    async def open(self) -> None:
        """Raises StoreError with a sentence for people. A store that cannot be opened keeps the others from
        nothing, unless this is the first start."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        keepers = self._ordered()
        errors = await self._connect()
        connected = [keeper for keeper in keepers if errors[keeper.name] is None]
        failures = [error for error in errors.values() if error is not None]
        if not connected:
            raise failures[0]
        await self._catalogue.load(keepers, connected)
        is_new = self._catalogue.version == 0
        if is_new and failures:
            raise failures[0]
        if not is_new:
            self._check_stores()
        self._adopt()
        await self._enter_service(errors)
        await self._complete_catalogue(is_new)
        self._queues.opened_at_ms = self._clock.wall_ms()
        self._auto_delete.arm()
        self._look_around()
        self._background.spawn(self._watch_heads())

    async def _connect(self) -> dict[str, StoreError | None]:
        """By store the error that kept it from being opened. Stores out of service are not even tried."""
        errors: dict[str, StoreError | None] = {}
        disabled: set[str] = set()
        for keeper in self._ordered():
            if keeper.name in disabled:
                errors[keeper.name] = StoreUnavailable(f"The store {keeper.name} is out of service.")
                continue
            errors[keeper.name] = await _connect(keeper)
            if errors[keeper.name] is None and len(errors) == 1:
                rows = await self._catalogue.read(keeper)
                disabled = {row.name for row in store_rows(rows) if row.is_disabled}
        return errors

    def _check_stores(self) -> None:
        added_stores(self._catalogue, self._ordered())
        for row in self._catalogue.store_rows():
            self._keepers[row.name].is_disabled = row.is_disabled

    async def _enter_service(self, errors: dict[str, StoreError | None]) -> None:
        """The home first: it tells which fragments nobody owns."""
        home = self._catalogue.home
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
        async with self._changing:
            changes = self._first_rows() if is_new else self._later_rows()
            if not changes:
                return
            try:
                await self._change(changes)
            except BrokerError as error:
                if is_new:
                    raise StoreError(error.sentence) from error
                _log.warning("The catalogue could not be brought up to date: %s", error.sentence)
                return
            self._adopt()

    def _first_rows(self) -> Changes:
        return first_rows(self.name, self._ordered(), self._clock, self._entropy, self._given_root_key)

    def _later_rows(self) -> Changes:
        changes = dict(added_stores(self._catalogue, self._ordered()))
        text = self._catalogue.rows[NAMESPACE_KEY]
        if NamespaceRow.parse(text) != self._row:
            changes[NAMESPACE_KEY] = self._row.text(text)
        return changes

    def _ordered(self) -> list[StoreKeeper]:
        """Stores in the order they were given."""
        return list(self._keepers.values())

    async def close(self) -> None:
        """Ends background work, writes what is left, closes the stores. Idempotent."""
        self._flush_accessed()
        await self._background.close()
        for keeper in self._keepers.values():
            try:
                await keeper.close()
            except StoreError as error:
                _log.warning("The store %s could not be closed cleanly: %s", keeper.name, error)

    # -- time

    def next_deadline(self) -> float | None:
        """Monotonic; None when time brings nothing."""
        return self._timers.next_deadline()

    def watch_deadlines(self, earlier: Callable[[], None]) -> None:
        """Calls back when the next deadline has become an earlier one: whoever sleeps until it must know."""
        self._timers.on_earlier = earlier

    def tick(self) -> None:
        """Locks, schedules, expiry, auto-delete, stores that come back: everything that is due now. A store may
        have failed in a commit that nobody waited for; then only looking tells, and its queues wait for that."""
        for keeper in self._keepers.values():
            keeper.check_health()
        self._timers.run(self._clock.monotonic())

    def _look_around(self) -> None:
        """Once a minute: what no event tells."""
        self._flush_accessed()
        self._runtime.namespace_size.recount()
        self._auto_delete.look_around()
        self._copy_catalogue()
        self._timers.at(self._clock.monotonic() + LOOK_AROUND_EVERY_S, self._look_around)

    def _used_bytes(self) -> int:
        """L-4: of all entities, those of absent stores as they were last seen."""
        return sum(
            counters.bytes for keeper in self._keepers.values() for counters in keeper.counters.values()
        )

    def _flush_accessed(self) -> None:
        """E-41: last uses that no other write has carried to the store."""
        for row, queue in self._queues.loaded():
            keeper = self._keepers[row.store_name]
            for fragment in (queue.main, queue.dead_letter):
                if keeper.notice_access(fragment.key):
                    keeper.join(_counting(fragment.key, fragment.counters))

    async def _watch_heads(self) -> None:
        """Queues whose messages expire at the head are loaded, a slice at a time: their fragments then watch
        it (M-44)."""
        for index, key in enumerate(self._queues.with_expiring_head()):
            if index % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                await asyncio.sleep(0)
            row = self._queues.rows.get(key)
            if row is not None and self._keepers[row.store_name].is_open:
                self._queues.queue(row)

    # -- queues

    def queue(self, path: str) -> Queue:
        """Raises EntityNotFound; ServerBusy while its store is not available."""
        return self._queues.queue(self._found(path))

    def exists(self, path: str) -> bool:
        return path_key(path) in self._queues.rows

    def descriptions(self) -> list[QueueDescription]:
        """Sorted by path."""
        return [row.description for _, row in sorted(self._queues.rows.items())]

    def description(self, path: str) -> QueueDescription:
        return self._found(path).description

    async def counts(self, path: str) -> RuntimeCounts:
        return self._queues.counts(self._found(path))

    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]:
        return [self._queues.counts(self._found(path)) for path in paths]

    def _found(self, path: str) -> QueueRow:
        row = self._queues.rows.get(path_key(path))
        if row is None:
            raise not_found(self.name, path)
        return row

    async def create_queue(self, description: QueueDescription) -> QueueDescription:
        return (await self.create_queues([description]))[0]

    async def create_queues(self, wanted: list[QueueDescription]) -> list[QueueDescription]:
        """All of them or none."""
        return await self._background.finish(self._create(wanted))

    async def _create(self, wanted: list[QueueDescription]) -> list[QueueDescription]:
        async with self._changing:
            self._check_creations(wanted)
            rows = self._placed([self._completed(description) for description in wanted])
            await self._create_fragments(rows)
            home = self._catalogue.home.name
            at_home = [row for row in rows if row.store_name == home]
            texts: Changes = {queue_row_key(row.key): row.text(None) for row in rows}
            await self._change(texts, _creating(at_home))
            for row in rows:
                counters = self._keepers[row.store_name].counters
                counters[row.main], counters[row.dead_letter] = Counters(), Counters()
                self._queues.put(row)
                _log.info("Create Queue %s (store %s)", row.description.path, row.store_name)
        self._auto_delete.arm()
        return [row.description for row in rows]

    def _check_creations(self, wanted: list[QueueDescription]) -> None:
        keys = set(self._queues.rows)
        for description in wanted:
            # Rules may still lack their keys; they are checked when they are complete.
            check_creation(replace(description, authorization_rules=()), self.limits)
            key = path_key(description.path)
            if key in keys:
                raise EntityAlreadyExists(
                    f"An entity with the name {shown(description.path)} already exists."
                )
            keys.add(key)
        if len(keys) > self.limits.entities_max:
            raise QuotaExceeded(
                f"The namespace has {len(self._queues)} of at most {self.limits.entities_max} entities; no more"
                " can be created."
            )

    def _completed(self, wanted: QueueDescription) -> QueueDescription:
        now_ms = self._clock.wall_ms()
        rules = completed_rules(wanted.authorization_rules, (), self._entropy, now_ms)
        completed = replace(wanted, authorization_rules=rules, created_at_ms=now_ms, updated_at_ms=now_ms)
        check_creation(completed, self.limits)
        return completed

    def _placed(self, descriptions: list[QueueDescription]) -> list[QueueRow]:
        rows: list[QueueRow] = []
        planned = {name: _Planned(keeper) for name, keeper in self._keepers.items()}
        for description in descriptions:
            store = choose_store(planned.values())
            store.fragment_count += 2
            key = store.keeper.store.next_fragment_key
            incarnation = self._catalogue.version + 1
            path = description.path
            rows.append(QueueRow(path_key(path), description, store.name, key(), key(), incarnation))
        return rows

    async def _create_fragments(self, rows: list[QueueRow]) -> None:
        """In the stores other than the home; there they join the row's own batch."""
        home = self._catalogue.home.name
        for name in {row.store_name for row in rows} - {home}:
            there = [row for row in rows if row.store_name == name]
            try:
                await self._keepers[name].commit(_creating(there))
            except StoreError as error:
                raise ServerBusy(
                    f"The store {name} failed: nothing was created. Please try again."
                ) from error

    async def update_queue(self, description: QueueDescription) -> QueueDescription:
        return await self._background.finish(self._update(description))

    async def _update(self, wanted: QueueDescription) -> QueueDescription:
        async with self._changing:
            row = self._found(wanted.path)
            present = row.description
            now_ms = self._clock.wall_ms()
            rules = completed_rules(
                wanted.authorization_rules, present.authorization_rules, self._entropy, now_ms
            )
            kept = check_update(present, replace(wanted, authorization_rules=rules), self.limits)
            changed = replace(row, description=replace(kept, updated_at_ms=now_ms))
            row_key = queue_row_key(row.key)
            await self._change({row_key: changed.text(self._catalogue.rows.get(row_key))})
            self._queues.put(changed)
            _log.info("Update Queue %s", present.path)
        self._auto_delete.arm()
        if rules != present.authorization_rules:
            self._tell_rule_watchers()
        return changed.description

    async def delete_queue(self, path: str) -> None:
        await self._background.finish(self._delete(path))

    async def _delete(self, path: str) -> None:
        async with self._changing:
            row = self._found(path)
            await self._delete_row(row)
            _log.info("Delete Queue %s", row.description.path)
        self._tell_rule_watchers()

    async def _delete_row(self, row: QueueRow) -> None:
        keeper = self._keepers[row.store_name]
        drop = _dropping([row.main, row.dead_letter])
        is_home = keeper is self._catalogue.home
        await self._change({queue_row_key(row.key): None}, drop if is_home else None)
        self._queues.remove(row, not_found(self.name, row.description.path))
        self._auto_delete.forget(row.key)
        # Elsewhere it is enough to try: what is left there belongs to nobody and goes at the next opening.
        if is_home or keeper.join(drop):
            self._background.spawn(keeper.sweep_dropped(self.limits.sweep_rows_max))

    def _delete_idle(self, key: str) -> None:
        row = self._queues.rows.get(key)
        if row is not None:
            self._background.spawn(self._auto_delete_row(row))

    async def _auto_delete_row(self, row: QueueRow) -> None:
        """E-110. Looks again when its turn has come: the queue may have been used, or be another one."""
        async with self._changing:
            present = self._queues.rows.get(row.key)
            if present is not row or not self._auto_delete.is_due(row.key):
                return
            try:
                await self._delete_row(row)
            except BrokerError as error:
                _log.warning("AutoDelete Delete Queue %s failed: %s", row.description.path, error.sentence)
                return
            _log.info("AutoDelete Delete Queue %s", row.description.path)
        self._tell_rule_watchers()

    # -- rules

    def rules(self) -> tuple[AuthorizationRule, ...]:
        return self._row.rules

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        row = self._queues.rows.get(key)
        return None if row is None else (row.incarnation, row.description.authorization_rules)

    @property
    def root_key(self) -> str:
        """The key in the connection string; treat it as what it is."""
        return next(rule.primary_key for rule in self._row.rules if rule.name == ROOT_RULE_NAME)

    async def set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None:
        await self._background.finish(self._set_rules(rules))

    async def _set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None:
        if not any(rule.name == ROOT_RULE_NAME for rule in rules):
            raise BadArgument(
                f"The rule {ROOT_RULE_NAME} cannot be deleted: the server's own connection string uses it."
                " Rotate its keys instead."
            )
        async with self._changing:
            completed = completed_rules(rules, self._row.rules, self._entropy, self._clock.wall_ms())
            check_rules(completed, self.limits)
            changed = replace(self._row, rules=completed)
            await self._change({NAMESPACE_KEY: changed.text(self._catalogue.rows.get(NAMESPACE_KEY))})
            self._row = changed
        self._tell_rule_watchers()

    def watch_rules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change that may end or give rights. Returns the un-watch."""
        self._rule_watchers.append(changed)

        def unwatch() -> None:
            if changed in self._rule_watchers:
                self._rule_watchers.remove(changed)

        return unwatch

    def _tell_rule_watchers(self) -> None:
        for changed in list(self._rule_watchers):
            changed()

    # -- stores

    def stores(self) -> list[dict[str, object]]:
        return [
            {
                "name": keeper.name,
                "url": public_url(keeper.url),
                "state": keeper.state,
                "fragments": len(self._queues.keys_in(keeper.name)),
            }
            for keeper in self._ordered()
        ]

    async def disable_store(self, name: str) -> None:
        """Takes a store out of service, also over restarts, until `enable_store`."""
        await self._background.finish(self._disable(self._named_store(name)))

    async def _disable(self, keeper: StoreKeeper) -> None:
        async with self._changing:
            if not keeper.is_disabled:
                await self._mark_disabled(keeper, True)
                await keeper.disable()

    async def enable_store(self, name: str) -> None:
        await self._background.finish(self._enable(self._named_store(name)))

    async def _enable(self, keeper: StoreKeeper) -> None:
        if keeper.is_disabled:
            await keeper.enable()
            async with self._changing:
                await self._mark_disabled(keeper, False)

    async def _mark_disabled(self, keeper: StoreKeeper, is_disabled: bool) -> None:
        row = next(row for row in self._catalogue.store_rows() if row.name == keeper.name)
        changed = replace(row, is_disabled=is_disabled)
        await self._change({row.key: changed.text(self._catalogue.rows.get(row.key))})

    def _named_store(self, name: str) -> StoreKeeper:
        if name not in self._keepers:
            raise EntityNotFound(f"There is no store {shown(name)}; known are {', '.join(self._keepers)}.")
        return self._keepers[name]

    def _store_failed(self, store: Store, error: StoreError) -> None:
        self._keepers[store.name].fail(error)

    def _store_lost(self, keeper: StoreKeeper, error: StoreError) -> None:
        for sweeps in (self._runtime.sweepers, self._runtime.activators):
            sweep = sweeps.pop(keeper.name, None)
            if sweep is not None:
                sweep.stop()
        told: BrokerError = (
            StoreOutcomeUnknown()
            if isinstance(error, CommitUnknown)
            else ServerBusy(
                "The store of this entity is not available at the moment. Please try again later."
            )
        )
        self._queues.lose_store(keeper.name, told)

    async def _examine(self, keeper: StoreKeeper) -> None:
        """A store was opened. Raises StoreError when it does not fit; drops what belongs to nobody."""
        async with self._changing:
            if await self._catalogue.reload(keeper):
                self._adopt()
            lost = self._queues.keys_in(keeper.name) - keeper.counters.keys()
            if lost:
                raise StoreError(
                    f"The store {keeper.name} lacks {len(lost)} fragments that the catalogue knows. Was its"
                    " file removed or replaced? Restore it, or delete the queues that lay in it."
                )
            await self._catch_up(keeper)
            await self._drop_orphans(keeper)
        fragment_of = _FragmentFinder(self._queues, keeper.name)
        Activator(keeper.store, fragment_of, self._runtime).start()
        ExpirySweeper(keeper.store, fragment_of, self._runtime).start()
        self._background.spawn(keeper.sweep_dropped(self.limits.sweep_rows_max))
        self._background.spawn(self._watch_heads())

    async def _catch_up(self, keeper: StoreKeeper) -> None:
        """The home must have everything before it takes changes; a copy may follow later."""
        if keeper is not self._catalogue.home:
            self._background.spawn(self._catalogue.copy_to(keeper))
            return
        await self._catalogue.copy_to(keeper)
        if self._catalogue.is_behind(keeper):
            raise StoreError(f"The store {keeper.name} could not be brought up to date.")

    async def _drop_orphans(self, keeper: StoreKeeper) -> None:
        orphans = sorted(keeper.counters.keys() - self._queues.keys_in(keeper.name))
        if orphans and self._catalogue.home_leads:
            await keeper.commit(_dropping(orphans))
            for key in orphans:
                del keeper.counters[key]

    # -- the catalogue

    async def _change(self, changes: Changes, join: Callable[[CommitBatch], None] | None = None) -> None:
        await self._catalogue.change(changes, join)
        self._copy_catalogue()

    def _copy_catalogue(self) -> None:
        for keeper in self._keepers.values():
            if keeper.is_open and self._catalogue.is_behind(keeper):
                self._background.spawn(self._catalogue.copy_to(keeper))

    def _adopt(self) -> None:
        """Memory follows the catalogue."""
        rows = self._catalogue.rows
        if NAMESPACE_KEY in rows:
            self._row = self._with_given_key(NamespaceRow.parse(rows[NAMESPACE_KEY]))
            self.name = self._row.name
        queues = [QueueRow.parse(key, text) for key, text in rows.items() if key.startswith(QUEUE_PREFIX)]
        self._queues.replace_all(queues, lambda row: not_found(self.name, row.description.path))
        self._tell_rule_watchers()

    def _with_given_key(self, row: NamespaceRow) -> NamespaceRow:
        """The operator's own key counts at once, also while it cannot be written."""
        key = self._given_root_key
        if key is None:
            return row
        return replace(row, rules=with_root_key(row.rules, key, self._clock, self._entropy))


class _Planned:
    """A store while several queues are being placed at once."""

    def __init__(self, keeper: StoreKeeper) -> None:
        self.keeper = keeper
        self.name = keeper.name
        self.is_open = keeper.is_open
        self.fragment_count = keeper.fragment_count


class _FragmentFinder:
    """Which fragment a row of a store belongs to."""

    def __init__(self, queues: QueueTable, store_name: str) -> None:
        self._queues = queues
        self._store_name = store_name

    async def __call__(self, key: FragmentKey) -> Fragment | None:
        return self._queues.fragment(self._store_name, key)


async def _connect(keeper: StoreKeeper) -> StoreError | None:
    try:
        await keeper.connect()
    except StoreTooNew:
        raise
    except StoreError as error:
        return error
    return None


def _creating(rows: Sequence[QueueRow]) -> Callable[[CommitBatch], None]:
    def join(batch: CommitBatch) -> None:
        for row in rows:
            path = row.description.path
            batch.fragments_created.append(FragmentRow(row.main, path, 0, Counters()))
            batch.fragments_created.append(
                FragmentRow(row.dead_letter, f"{path}/{DEAD_LETTER_KEYWORD}", 0, Counters())
            )

    return join


def _dropping(keys: Sequence[FragmentKey]) -> Callable[[CommitBatch], None]:
    return lambda batch: batch.fragments_dropped.extend(keys)


def _counting(key: FragmentKey, counters: Counters) -> Callable[[CommitBatch], None]:
    return lambda batch: batch.counters.update({key: counters})
