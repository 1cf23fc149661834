"""The namespace: what exists, where it lies, who may change it, and everything that time brings.

Theory of operation. The catalogue's rows are parsed once into `EntityRow`s; an entity's fragments are made when
it is first used, from counters that its store read at opening, so ten thousand idle queues are ten thousand small
rows and start-up reads no message.

Changes of entities (`entity_changes`), of subscriptions' rules (`rule_changes`), of rights and of stores wait for
one another and run to their end even when whoever asked has gone away.

A store that fails takes its loaded plain entities with it: they are evicted and forgotten, and made anew when the
store is back (`store_keeper`). Partitioned ones stay, without the fragments that lie there. Everything else goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from busway.background import BackgroundWork
from busway.broker.authorization import Authorizer
from busway.broker.description_checks import check_rules
from busway.broker.descriptions import (
    AuthorizationRule,
    Description,
    FragmentCounts,
    QueueDescription,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
)
from busway.broker.entity.queue import Queue
from busway.broker.entity.topic import Topic
from busway.broker.entity_path import not_found, path_key, shown, topic_key_of
from busway.broker.errors import (
    BadArgument,
    BrokerError,
    EntityNotFound,
    InvalidOperation,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.broker.forward.send_via import SendVia, is_transfer_key, transfer_key
from busway.broker.fragment.ready_window import WindowBudget
from busway.broker.fragment.receiver import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.timers import Timers
from busway.broker.limits import Limits
from busway.broker.namespace.auto_delete import LOOK_AROUND_EVERY_S
from busway.broker.namespace.catalogue import Changes
from busway.broker.namespace.catalogue_rows import (
    NAMESPACE_KEY,
    EntityRow,
    NamespaceRow,
    entity_rows,
    store_rows,
)
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.entity_changes import EntityChanges, NewEntity
from busway.broker.namespace.opening import added_stores, first_rows, public_url, with_root_key
from busway.broker.namespace.rule_beginnings import shown_beginnings
from busway.broker.namespace.rule_changes import RuleChanges
from busway.broker.namespace.rule_rows import rule_rows
from busway.broker.namespace.store_entry import StoreEntry
from busway.broker.sas_keys import ROOT_RULE_NAME, completed_rules
from busway.broker.store_keeper import StoreKeeper
from busway.broker.transaction.transactions import Transactions
from busway.clock import Clock, Entropy
from busway.rules.rule import Rule
from busway.store.contract import (
    CommitBatch,
    CommitUnknown,
    Counters,
    FragmentKey,
    Store,
    StoreError,
    StoreInUse,
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
        self.limits = limits
        self._clock = clock
        self._entropy = entropy
        self._given_root_key = root_key
        self._timers = Timers()
        self.background = BackgroundWork()
        self.runtime = BrokerRuntime(
            clock,
            entropy,
            limits,
            self._timers,
            WindowBudget(limits.window_bytes_max),
            self.background.spawn,
            self._store_failed,
            self._used_bytes,
        )
        self.flows = self.runtime.flows
        self.keepers = {store.name: self._keeper(store) for store in stores}
        if not stores or len(self.keepers) < len(stores):
            raise StoreError("A namespace needs one or more stores, each with a name of its own.")
        self.contents = contents = NamespaceContents(
            name, self.keepers, self.runtime, self.background, self._delete_idle
        )
        self.catalogue = contents.catalogue
        self.entities = contents.entities
        self.auto_delete = contents.auto_delete
        self.operations = contents.operations
        self.changing = contents.changing
        self.write = contents.write
        self._entry = StoreEntry(contents, self.adopt, self.watch_heads)
        #: Entities whose deletion for want of use is under way.
        self._leaving: set[str] = set()
        self._entity_changes = EntityChanges(contents)
        self.rule_changes = RuleChanges(contents)
        self.authorizer = Authorizer(self, clock, accepts_development_key=accepts_development_key)

    @property
    def name(self) -> str:
        return self.contents.name

    def _keeper(self, store: Store) -> StoreKeeper:
        return StoreKeeper(
            store,
            self._clock,
            self._timers,
            self.background.spawn,
            examine=self._examine,
            lost=self._store_lost,
            entered=self._store_entered,
        )

    async def _examine(self, keeper: StoreKeeper) -> None:
        await self._entry.examine(keeper)

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
        await self.catalogue.load(keepers, connected)
        is_new = self.catalogue.version == 0
        if is_new and failures:
            raise failures[0]
        if not is_new:
            self._check_stores()
        self.adopt()
        await self._read_marks(errors)
        await self._enter_service(errors)
        await self._complete_catalogue(is_new)
        self.entities.opened_at_ms = self._clock.wall_ms()
        self.auto_delete.watch_all()
        self._look_around()
        self.background.spawn(self.watch_heads())

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
                rows = await self.catalogue.read(keeper)
                disabled = {row.name for row in store_rows(rows) if row.is_disabled}
        return errors

    def _check_stores(self) -> None:
        added_stores(self.catalogue, self._ordered())
        for row in self.catalogue.store_rows():
            self.keepers[row.name].is_disabled = row.is_disabled

    async def _read_marks(self, errors: dict[str, StoreError | None]) -> None:
        """Of all stores before the first goes into service: what has arrived anywhere is not sent a second time, also
        when it would go elsewhere by now."""
        for keeper in self._ordered():
            if errors[keeper.name] is None and not keeper.is_disabled:
                try:
                    await self.entities.transfers.store_opened(keeper)
                except StoreError as error:
                    errors[keeper.name] = error

    async def _enter_service(self, errors: dict[str, StoreError | None]) -> None:
        """The home first: it tells which fragments nobody owns."""
        home = self.catalogue.home
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
        async with self.changing:
            changes = (
                self._first_rows() if is_new else {**self._later_rows(), **self.contents.decided_changes()}
            )
            if not changes:
                return
            try:
                await self.write(changes)
            except BrokerError as error:
                if is_new:
                    raise StoreError(error.sentence) from error
                _log.warning("The catalogue could not be brought up to date: %s", error.sentence)
                return
            self.adopt()

    def _first_rows(self) -> Changes:
        return first_rows(self.name, self._ordered(), self._clock, self._entropy, self._given_root_key)

    def _later_rows(self) -> Changes:
        changes = dict(added_stores(self.catalogue, self._ordered()))
        text = self.catalogue.rows[NAMESPACE_KEY]
        if NamespaceRow.parse(text) != self.contents.row:
            changes[NAMESPACE_KEY] = self.contents.row.text(text)
        return changes

    def _ordered(self) -> list[StoreKeeper]:
        """Stores in the order they were given."""
        return list(self.keepers.values())

    async def close(self) -> None:
        """Ends background work, writes what is left, closes the stores. Idempotent."""
        self._flush_accessed()
        await self.background.close()
        for keeper in self.keepers.values():
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
        for keeper in self.keepers.values():
            keeper.check_health()
        self._timers.run(self._clock.monotonic())

    def _look_around(self) -> None:
        """Once a minute: what no event tells. The next time is set first: it comes whatever happens now."""
        self._timers.at(self._clock.monotonic() + LOOK_AROUND_EVERY_S, self._look_around)
        self._flush_accessed()
        self.runtime.namespace_size.recount()
        self.auto_delete.look_around()
        self.contents.copy_catalogue()

    def _used_bytes(self) -> int:
        """L-4: of all entities, those of absent stores as they were last seen."""
        return sum(
            counters.bytes for keeper in self.keepers.values() for counters in keeper.counters.values()
        )

    def _flush_accessed(self) -> None:
        """E-41: last uses that no other write has carried to the store."""
        for _, entity in self.entities.loaded():
            for fragment in [each for outlet in entity.outlets() for each in outlet.fragments()]:
                keeper = self.keepers[fragment.store.name]
                if keeper.notice_access(fragment.key):
                    keeper.join(_counting(fragment.key, fragment.counters))

    async def watch_heads(self) -> None:
        """Entities whose messages expire at the head, or move on, are loaded, a slice at a time: their fragments
        then see to it (M-44, F-1)."""
        for index, key in enumerate(self.entities.needing_care()):
            if index % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                await asyncio.sleep(0)
            row = self.entities.rows.get(key)
            if row is not None:
                self.entities.load(row)

    # -- entities

    def queue(self, path: str) -> Queue:
        """What one receives from: a queue, or a subscription by its address. Raises EntityNotFound;
        InvalidOperation for a topic (E-9); ServerBusy while its store is not available."""
        row = self._found(path)
        if isinstance(row.description, TopicDescription):
            raise InvalidOperation(self._not_receivable(row))
        return self.entities.queue(row)

    def sender(self, path: str) -> Queue | Topic:
        """What one sends to: a queue or a topic."""
        return self.entities.entity(self._found(path))

    def _not_receivable(self, row: EntityRow) -> str:
        names = [shown(entry.description.path) for entry in self.entities.subscriptions(row.key)[:10]]
        known = ", ".join(names) if names else "it has none yet"
        return (
            f"The topic {shown(row.description.path)} cannot be received from. Receive from one of its"
            f" subscriptions instead: {known}."
        )

    def transactions(self) -> Transactions:
        """For a new connection."""
        return Transactions(self.runtime)

    def transfer_queue(self, via_path: str) -> Queue | None:
        """Of messages that are sent via this entity; None before there were any."""
        row = self.entities.rows.get(transfer_key(self._found(via_path).key))
        return None if row is None else self.entities.queue(row)

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        """TX-3: None when `prepare_to_send_via` must come first. Raises EntityNotFound, InvalidOperation for a
        subscription."""
        via, destination = self._found(via_path), self._found(destination_path)
        for row in (via, destination):
            if isinstance(row.description, SubscriptionDescription):
                raise InvalidOperation(f"Nobody can send to the subscription {shown(row.description.path)}.")
        transfers = self.transfer_queue(via_path)
        if transfers is None:
            return None
        path = destination.description.path
        return SendVia(self.sender(via_path), transfers, path, lambda: self.sender(path), self.limits)

    async def prepare_to_send_via(self, via_path: str) -> None:
        """Once for each entity. Raises EntityNotFound, ServerBusy."""
        via = self._found(via_path)
        await self.background.finish(self._entity_changes.create_transfer_queue(via))

    def exists(self, path: str) -> bool:
        """As a queue, a topic or a subscription."""
        return path_key(path) in self.entities.rows

    def keys(self) -> list[str]:
        """Of all entities, in no order: for who looks for some of them, a slice at a time."""
        return list(self.entities.rows)

    def queues(self) -> list[QueueDescription]:
        """Sorted by path, as the lists below."""
        return [entry for entry in self._descriptions() if isinstance(entry, QueueDescription)]

    def topics(self) -> list[TopicDescription]:
        return [entry for entry in self._descriptions() if isinstance(entry, TopicDescription)]

    def subscriptions(self, topic_path: str) -> list[SubscriptionDescription]:
        """Raises EntityNotFound when there is no such topic."""
        row = self._found(topic_path)
        if not isinstance(row.description, TopicDescription):
            raise not_found(self.name, topic_path)
        rows = sorted(self.entities.subscriptions(row.key), key=lambda entry: entry.key)
        found = [entry.description for entry in rows]
        return [entry for entry in found if isinstance(entry, SubscriptionDescription)]

    def subscription_rules(self, subscription_path: str) -> list[Rule]:
        """`$Default` first, then in order of creation, as a file has them."""
        row = self.rule_changes.subscription(subscription_path)
        return [entry.rule for entry in self.entities.rules.of(row.key)]

    def rules_by_name(self, subscription_path: str, skip: int, top: int) -> list[Rule]:
        """E-64: a page of them, as clients see them."""
        row = self.rule_changes.subscription(subscription_path)
        return [entry.rule for entry in self.entities.rules.by_name(row.key, skip, top)]

    def subscription_rule(self, subscription_path: str, name: str) -> Rule | None:
        """Raises EntityNotFound when there is no such subscription."""
        row = self.rule_changes.subscription(subscription_path)
        found = self.entities.rules.get(row.key, path_key(name))
        return None if found is None else found.rule

    def rule_beginnings(self, subscription_path: str) -> dict[str, object]:
        """When each rule of the subscription began to apply. Raises EntityNotFound."""
        return shown_beginnings(self.contents, self.rule_changes.subscription(subscription_path))

    def filter_counts(self, topic_path: str) -> tuple[int, int]:
        """How many SQL and how many correlation filters the topic has."""
        return self.entities.filter_counts(path_key(topic_path))

    def _descriptions(self) -> list[Description]:
        rows = sorted(self.entities.rows.items())
        return [row.description for key, row in rows if not is_transfer_key(key)]

    def description(self, path: str) -> Description:
        return self._found(path).description

    async def counts(self, path: str) -> RuntimeCounts:
        return self.entities.counts(self._found(path))

    def fragment_counts(self, path: str) -> list[FragmentCounts]:
        return self.entities.fragment_counts(self._found(path))

    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]:
        return [self.entities.counts(self._found(path)) for path in paths]

    def _found(self, path: str) -> EntityRow:
        row = self.entities.rows.get(path_key(path))
        if row is None:
            kind = self.contents.hubs.kind_of(path_key(path))
            if kind is not None:
                raise InvalidOperation(f"{shown(path)} is {kind}, neither a queue nor a topic.")
            raise not_found(self.name, path)
        return row

    async def create(self, wanted: Sequence[NewEntity]) -> list[Description]:
        """All of them or none."""
        return await self.background.finish(self._entity_changes.create(wanted))

    async def update(self, description: Description) -> Description:
        return await self.background.finish(self._entity_changes.update(description))

    async def delete(self, path: str) -> None:
        """A topic goes with its subscriptions (E-65)."""
        await self.background.finish(self._entity_changes.delete(path))

    def release(self, path: str) -> None:
        """Nobody holds it any more: it goes soon, unless somebody comes first."""
        row = self.entities.rows.get(path_key(path))
        if row is not None:
            self.background.spawn(self._entity_changes.delete_released(row))

    async def end(self, path: str, by: Attachment) -> None:
        """Deletes it for a link that stood for its end (`Queue.end_by`). Raises BrokerError when it stays."""
        await self.background.finish(self._entity_changes.delete_ended(path, by))

    async def add_rule(self, subscription_path: str, rule: Rule) -> Rule:
        return await self.background.finish(self.rule_changes.add(subscription_path, rule))

    async def replace_rule(self, subscription_path: str, rule: Rule) -> Rule:
        return await self.background.finish(self.rule_changes.replace(subscription_path, rule))

    async def remove_rule(self, subscription_path: str, name: str) -> None:
        await self.background.finish(self.rule_changes.remove(subscription_path, name))

    def _delete_idle(self, key: str) -> None:
        """Once, however long it waits for other changes."""
        row = self.entities.rows.get(key)
        if row is not None and key not in self._leaving:
            self._leaving.add(key)
            self.background.spawn(self._leave(row))

    async def _leave(self, row: EntityRow) -> None:
        try:
            await self._entity_changes.delete_idle(row)
        finally:
            self._leaving.discard(row.key)

    # -- rules

    def rules(self) -> tuple[AuthorizationRule, ...]:
        return self.contents.row.rules

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        row = self.entities.rows.get(key)
        if row is not None and isinstance(row.description, SubscriptionDescription):
            row = self.entities.rows.get(topic_key_of(key))  # E-61, A-2
        if row is None or isinstance(row.description, SubscriptionDescription):
            return self.contents.hubs.entity_rules(key)
        return row.incarnation, row.description.authorization_rules

    def owner_key(self, key: str) -> str:
        """Of the entity whose rules count at an address."""
        owner = None if key in self.entities.rows else self.contents.hubs.owner_key(key)
        return topic_key_of(key) if owner is None else owner

    def other_owner_key(self, key: str) -> str | None:
        """Earlier versions let queues have addresses of a hub: which of the two is meant, who opens it must say."""
        return self.contents.hubs.owner_key(key) if key in self.entities.rows else None

    @property
    def root_key(self) -> str:
        """The key in the connection string; treat it as what it is."""
        return next(rule.primary_key for rule in self.contents.row.rules if rule.name == ROOT_RULE_NAME)

    async def set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None:
        await self.background.finish(self._set_rules(rules))

    async def _set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None:
        if not any(rule.name == ROOT_RULE_NAME for rule in rules):
            raise BadArgument(
                f"The rule {ROOT_RULE_NAME} cannot be deleted: the server's own connection string uses it."
                " Rotate its keys instead."
            )
        async with self.changing:
            completed = completed_rules(rules, self.contents.row.rules, self._entropy, self._clock.wall_ms())
            check_rules(completed, self.limits)
            changed = replace(self.contents.row, rules=completed)
            await self.write({NAMESPACE_KEY: changed.text(self.catalogue.rows.get(NAMESPACE_KEY))})
            self.contents.row = changed
        self.rights_changed()

    def watch_rules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change that may end or give rights. Returns the un-watch."""
        return self.contents.watch_rights(changed)

    def rights_changed(self) -> None:
        self.contents.rights_changed()

    # -- stores

    def stores(self) -> list[dict[str, object]]:
        return [
            {
                "name": keeper.name,
                "url": public_url(keeper.url),
                "state": keeper.state,
                "fragments": len(self.contents.keys_in(keeper.name)),
            }
            for keeper in self._ordered()
        ]

    async def disable_store(self, name: str) -> None:
        """Takes a store out of service, also over restarts, until `enable_store`."""
        await self.background.finish(self._disable(self._named_store(name)))

    async def _disable(self, keeper: StoreKeeper) -> None:
        async with self.changing:
            if not keeper.is_disabled:
                await self._mark_disabled(keeper, True)
                await keeper.disable()

    async def enable_store(self, name: str) -> None:
        await self.background.finish(self._enable(self._named_store(name)))

    async def _enable(self, keeper: StoreKeeper) -> None:
        if keeper.is_disabled:
            await keeper.enable()
            async with self.changing:
                await self._mark_disabled(keeper, False)

    async def _mark_disabled(self, keeper: StoreKeeper, is_disabled: bool) -> None:
        row = next(row for row in self.catalogue.store_rows() if row.name == keeper.name)
        changed = replace(row, is_disabled=is_disabled)
        await self.write({row.key: changed.text(self.catalogue.rows.get(row.key))})

    def _named_store(self, name: str) -> StoreKeeper:
        if name not in self.keepers:
            raise EntityNotFound(f"There is no store {shown(name)}; known are {', '.join(self.keepers)}.")
        return self.keepers[name]

    def _store_failed(self, store: Store, error: StoreError) -> None:
        self.keepers[store.name].fail(error)

    def _store_lost(self, keeper: StoreKeeper, error: StoreError) -> None:
        for sweeps in (self.runtime.sweepers, self.runtime.activators):
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
        self.entities.lose_store(keeper.name, told)
        self.contents.hubs.lose_store(keeper.name, told)
        self.contents.staged.lose_store(keeper.name)

    def _store_entered(self, keeper: StoreKeeper) -> None:
        self.entities.regain_store(keeper.name)
        self.contents.hubs.regain_store(keeper.name)
        self.contents.staged.regain_store(keeper.name)
        self._entry.entered(keeper)

    # -- the catalogue

    def adopt(self) -> None:
        """Memory follows the catalogue."""
        rows = self.catalogue.rows
        if NAMESPACE_KEY in rows:
            self.contents.row = self._with_given_key(NamespaceRow.parse(rows[NAMESPACE_KEY]))
        turned = self.entities.replace_all(
            entity_rows(rows), lambda row: not_found(self.name, row.description.path)
        )
        if turned:
            self.background.spawn(self._entity_changes.load_turned(turned))
        self.entities.replace_rules(rule_rows(rows))
        if self.entities.opened_at_ms:  # else all are watched when it is open
            self.auto_delete.watch_all()
        self.contents.hubs.adopt(rows)
        self.rights_changed()

    def _with_given_key(self, row: NamespaceRow) -> NamespaceRow:
        """The operator's own key counts at once, also while it cannot be written."""
        key = self._given_root_key
        if key is None:
            return row
        return replace(row, rules=with_root_key(row.rules, key, self._clock, self._entropy))


async def _connect(keeper: StoreKeeper) -> StoreError | None:
    try:
        await keeper.connect()
    except (StoreTooNew, StoreInUse):  # no start without them: one would be damaged, the other served twice
        raise
    except StoreError as error:
        return error
    return None


def _counting(key: FragmentKey, counters: Counters) -> Callable[[CommitBatch], None]:
    return lambda batch: batch.counters.update({key: counters})
