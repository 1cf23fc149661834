"""The namespace: what exists, where it lies, who may change it, and everything that time brings.

Theory of operation. The catalogue's rows are parsed once into `EntityRow`s; an entity's fragments are made when it
is first used, from counters that its store read at opening, so ten thousand idle queues are ten thousand small
rows and start-up reads no message.

Changes of entities, of subscriptions' rules, of rights and of stores wait for one another and run to their end
even when whoever asked has gone away. What there is, and the one way to change it, is `NamespaceContents`; each
part of the namespace is one kind of work on it. The small parts stand here:

  AccessRules      authorization rules: those of the namespace, and whose count at an address. The rules of an
                   entity are part of its description and change with it
  TransferQueues   messages for one entity by way of another (TX-3): the transfer queue beside an entity, made at
                   its first use
  Upkeep           what no event tells, looked at once a minute: last uses that no other write carries to the
                   store, sizes, entities that nobody uses, copies of the catalogue that are behind. And after each
                   opening, entities that must be loaded: their messages expire or move on by themselves

A store that fails takes its loaded plain entities with it: they are evicted and forgotten, and made anew when the
store is back (`store_keeper`). Partitioned ones stay, without the fragments that lie there. Everything else goes
on.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from busway.broker.entity.entity import Attachments as Attachments
from busway.broker.entity.entity import Queue as Queue
from busway.broker.entity.entity import Topic as Topic
from busway.broker.entity.fragment_choice import fragment_of_key as fragment_of_key
from busway.broker.entity.fragment_choice import key_of as key_of
from busway.broker.forward.send_via import SendVia as SendVia
from busway.broker.forward.send_via import is_transfer_key, transfer_key
from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.auto_delete import LOOK_AROUND_EVERY_S
from busway.broker.namespace.catalogue import COPYING_KEY as COPYING_KEY
from busway.broker.namespace.catalogue import DECIDED_KEY as DECIDED_KEY
from busway.broker.namespace.catalogue import NOTE_PREFIXES as NOTE_PREFIXES
from busway.broker.namespace.catalogue import TAKEN_OVER_PREFIX as TAKEN_OVER_PREFIX
from busway.broker.namespace.catalogue import fragments_named as fragments_named
from busway.broker.namespace.catalogue import namespace_id as namespace_id
from busway.broker.namespace.catalogue_rows import ENTITY_PREFIXES as ENTITY_PREFIXES
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY as NAMESPACE_KEY
from busway.broker.namespace.catalogue_rows import NO_FRAGMENT as NO_FRAGMENT
from busway.broker.namespace.catalogue_rows import STORE_PREFIX as STORE_PREFIX
from busway.broker.namespace.catalogue_rows import EntityRow as EntityRow
from busway.broker.namespace.catalogue_rows import NamespaceRow as NamespaceRow
from busway.broker.namespace.catalogue_rows import StoreRow as StoreRow
from busway.broker.namespace.catalogue_rows import entity_rows
from busway.broker.namespace.catalogue_rows import store_rows as store_rows
from busway.broker.namespace.contents import NamespaceContents as NamespaceContents
from busway.broker.namespace.entity_creation import EntityCreation
from busway.broker.namespace.entity_deletion import EntityDeletion, make_new
from busway.broker.namespace.entity_update import EntityUpdate
from busway.broker.namespace.rule_changes import SubscriptionRules
from busway.broker.namespace.rule_table import rule_rows
from busway.broker.namespace.stores import NamespaceOpening, NamespaceStores, StoreEntry
from busway.broker.namespace.stores import public_url as public_url
from busway.broker.store_keeper import StoreKeeper as StoreKeeper
from busway.broker.transaction.transactions import Transactions
from busway.clock import Clock, Entropy
from busway.event_loop import BackgroundWork
from busway.model.authorization import Authorizer
from busway.model.description_checks import check_rules
from busway.model.descriptions import (
    ROOT_RULE_NAME,
    AuthorizationRule,
    Description,
    FragmentCounts,
    NewEntity,
    QueueDescription,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
    completed_rules,
)
from busway.model.entity_path import not_found, path_key, shown, topic_key_of
from busway.model.errors import BadArgument, InvalidOperation
from busway.model.limits import Limits
from busway.store.contract import CommitBatch, Counters, FragmentKey, Store, StoreError
from busway.timers import Timers


class AccessRules:
    """What `Authorizer` asks (`RuleBook`), and how the namespace's own rules change."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def rules(self) -> tuple[AuthorizationRule, ...]:
        """Of the namespace."""
        return self._contents.row.rules

    @property
    def root_key(self) -> str:
        """The key in the connection string; treat it as what it is."""
        return next(rule.primary_key for rule in self.rules() if rule.name == ROOT_RULE_NAME)

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        rows = self._contents.entities.rows
        row = rows.get(key)
        if row is not None and isinstance(row.description, SubscriptionDescription):
            row = rows.get(topic_key_of(key))  # E-61, A-2
        if row is None or isinstance(row.description, SubscriptionDescription):
            return self._contents.hubs.entity_rules(key)
        return row.incarnation, row.description.authorization_rules

    def owner_key(self, key: str) -> str:
        """Of the entity whose rules count at an address."""
        owner = None if key in self._contents.entities.rows else self._contents.hubs.owner_key(key)
        return topic_key_of(key) if owner is None else owner

    def other_owner_key(self, key: str) -> str | None:
        """Earlier versions let queues have addresses of a hub: which of the two is meant, who opens it must say."""
        return self._contents.hubs.owner_key(key) if key in self._contents.entities.rows else None

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change that may end or give rights. Returns the un-watch."""
        return self._contents.watch_rights(changed)

    async def set(self, rules: tuple[AuthorizationRule, ...]) -> None:
        """Those of the namespace, all of them. To its end even when whoever asked has gone away."""
        await self._contents.background.finish(self._set(rules))

    async def _set(self, rules: tuple[AuthorizationRule, ...]) -> None:
        if not any(rule.name == ROOT_RULE_NAME for rule in rules):
            raise BadArgument(
                f"The rule {ROOT_RULE_NAME} cannot be deleted: the server's own connection string uses it."
                " Rotate its keys instead."
            )
        contents = self._contents
        async with contents.changing:
            present = contents.row
            completed = completed_rules(rules, present.rules, contents.entropy, contents.clock.wall_ms())
            check_rules(completed, contents.limits)
            changed = replace(present, rules=completed)
            await contents.write({NAMESPACE_KEY: changed.text(contents.catalogue.rows.get(NAMESPACE_KEY))})
            contents.row = changed
        contents.rights_changed()


class TransferQueues:
    """Each verb raises EntityNotFound."""

    def __init__(
        self,
        contents: NamespaceContents,
        creation: EntityCreation,
        sender: Callable[[str], Queue | Topic],
    ) -> None:
        self._contents = contents
        self._creation = creation
        self._sender = sender

    def of(self, via_path: str) -> Queue | None:
        """None before something was sent via this entity."""
        entities = self._contents.entities
        row = entities.rows.get(transfer_key(self._contents.entity_row(via_path).key))
        return None if row is None else entities.queue(row)

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        """None when `prepare` must come first. Raises InvalidOperation for a subscription."""
        via = self._contents.entity_row(via_path)
        destination = self._contents.entity_row(destination_path)
        for row in (via, destination):
            if isinstance(row.description, SubscriptionDescription):
                raise InvalidOperation(f"Nobody can send to the subscription {shown(row.description.path)}.")
        transfers = self.of(via_path)
        if transfers is None:
            return None
        path = destination.description.path
        sender, limits = self._sender, self._contents.limits
        return SendVia(sender(via_path), transfers, path, lambda: sender(path), limits)

    async def prepare(self, via_path: str) -> None:
        """Once for each entity. Raises ServerBusy."""
        via = self._contents.entity_row(via_path)
        await self._contents.background.finish(self._creation.create_transfer_queue(via))


#: Queues loaded in one go by background work, before others get their turn.
_SLICE_QUEUES: Final = 50


class Upkeep:
    """What no event tells, looked at once a minute: last uses that no other write carries to the store, sizes,
    entities that nobody uses, copies of the catalogue that are behind. And after each opening, entities that must
    be loaded: their messages expire or move on by themselves."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def start(self) -> None:
        """The namespace is open."""
        self._look_around()
        self._contents.background.spawn(self.watch_heads())

    def _look_around(self) -> None:
        """The next time is set first: it comes whatever happens now."""
        contents = self._contents
        next_time = contents.clock.monotonic() + LOOK_AROUND_EVERY_S
        contents.runtime.timers.at(next_time, self._look_around)
        self.write_uses()
        contents.runtime.namespace_size.recount()
        contents.auto_delete.look_around()
        contents.copy_catalogue()

    def write_uses(self) -> None:
        """E-41: last uses that no other write has carried to the store."""
        contents = self._contents
        for _, entity in contents.entities.loaded():
            for fragment in [each for outlet in entity.outlets() for each in outlet.fragments()]:
                keeper = contents.keepers[fragment.store.name]
                if keeper.notice_access(fragment.key):
                    keeper.join(_counting(fragment.key, fragment.counters))

    async def watch_heads(self) -> None:
        """Entities whose messages expire at the head, or move on, are loaded, a slice at a time: their fragments
        then see to it (M-44, F-1)."""
        entities = self._contents.entities
        for index, key in enumerate(entities.counts.needing_care()):
            if index % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                await asyncio.sleep(0)
            row = entities.rows.get(key)
            if row is not None:
                entities.load(row)


def _counting(key: FragmentKey, counters: Counters) -> Callable[[CommitBatch], None]:
    return lambda batch: batch.counters.update({key: counters})


_log = logging.getLogger("busway.namespace")


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
        self._keepers = {store.name: self._keeper(store) for store in stores}
        if not stores or len(self._keepers) < len(stores):
            raise StoreError("A namespace needs one or more stores, each with a name of its own.")
        #: For hubs and stages, which live in the same catalogue and stores.
        self.contents = NamespaceContents(
            name, self._keepers, self.runtime, self.background, lambda key: self._deletion.delete_idle(key)
        )
        self.operations = self.contents.operations
        self._creation = EntityCreation(self.contents)
        self._update = EntityUpdate(self.contents)
        self._deletion = EntityDeletion(self.contents)
        self._upkeep = Upkeep(self.contents)
        self._opening = NamespaceOpening(self.contents, root_key, self._adopt)
        self._entry = StoreEntry(self.contents, self._adopt, self._upkeep.watch_heads)
        #: The rules of subscriptions.
        self.rules = SubscriptionRules(self.contents)
        #: The namespace's own keys, and whose count where.
        self.access = AccessRules(self.contents)
        self.stores = NamespaceStores(self.contents)
        #: Messages for one entity by way of another.
        self.transfer_queues = TransferQueues(self.contents, self._creation, self.sender)
        self.authorizer = Authorizer(self.access, clock, accepts_development_key=accepts_development_key)

    @property
    def name(self) -> str:
        return self.contents.name

    # -- life

    async def open(self) -> None:
        """Raises StoreError with a sentence for people. A store that cannot be opened keeps the others from
        nothing, unless this is the first start."""
        try:
            await self._opening.open()
        except BaseException:
            await self.close()
            raise
        self.contents.idle.opened_at_ms = self._clock.wall_ms()
        self.contents.auto_delete.watch_all()
        self._upkeep.start()

    async def close(self) -> None:
        """Ends background work, writes what is left, closes the stores. Idempotent."""
        self._upkeep.write_uses()
        await self.background.close()
        for keeper in self._keepers.values():
            try:
                await keeper.close()
            except StoreError as error:
                _log.warning("The store %s could not be closed cleanly: %s", keeper.name, error)

    async def reset(self) -> None:
        """Makes the namespace as new while clients use it, to its end even when whoever asked has gone. Raises
        ServerBusy when it could not be done whole."""
        await self.background.finish(make_new(self.contents, self.stores, self._adopt))

    def _adopt(self) -> None:
        """Memory follows the catalogue."""
        contents, rows = self.contents, self.contents.catalogue.rows
        if NAMESPACE_KEY in rows:
            contents.row = self._opening.with_given_key(NamespaceRow.parse(rows[NAMESPACE_KEY]))
        turned = contents.entities.replace_all(
            entity_rows(rows), lambda row: not_found(self.name, row.description.path)
        )
        if turned:
            self.background.spawn(self._update.load_turned(turned))
        contents.entities.replace_rules(rule_rows(rows))
        if contents.idle.opened_at_ms:  # else all are watched when it is open
            contents.auto_delete.watch_all()
        contents.hubs.adopt(rows)
        contents.rights_changed()

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

    def resume(self, store_names: Collection[str]) -> None:
        """The leases of these stores were over, and are renewed: what waits in them is served."""
        for _, entity in self.contents.entities.loaded():
            for outlet in entity.outlets():
                for fragment in outlet.fragments():
                    if fragment.store.name in store_names:
                        fragment.resume()

    # -- stores, as their keepers and fragments tell

    def _keeper(self, store: Store) -> StoreKeeper:
        return StoreKeeper(
            store,
            self._clock,
            self._timers,
            self.background.spawn,
            examine=lambda keeper: self._entry.examine(keeper),
            lost=lambda keeper, error: self.stores.lost(keeper, error),
            entered=self._store_entered,
        )

    def _store_entered(self, keeper: StoreKeeper) -> None:
        self.stores.entered(keeper)
        self._entry.entered(keeper)

    def _store_failed(self, store: Store, error: StoreError) -> None:
        self._keepers[store.name].fail(error)

    def _used_bytes(self) -> int:
        """L-4: of all entities, those of absent stores as they were last seen."""
        return sum(
            counters.bytes for keeper in self._keepers.values() for counters in keeper.counters.values()
        )

    # -- messages

    def queue(self, path: str) -> Queue:
        """What one receives from: a queue, or a subscription by its address. Raises EntityNotFound;
        InvalidOperation for a topic (E-9); ServerBusy while its store is not available."""
        row = self.contents.entity_row(path)
        if isinstance(row.description, TopicDescription):
            raise InvalidOperation(self._not_receivable(row))
        return self.contents.entities.queue(row)

    def sender(self, path: str) -> Queue | Topic:
        """What one sends to: a queue or a topic."""
        return self.contents.entities.entity(self.contents.entity_row(path))

    def _not_receivable(self, row: EntityRow) -> str:
        subscriptions = self.contents.entities.subscriptions(row.key)[:10]
        names = [shown(entry.description.path) for entry in subscriptions]
        known = ", ".join(names) if names else "it has none yet"
        return (
            f"The topic {shown(row.description.path)} cannot be received from. Receive from one of its"
            f" subscriptions instead: {known}."
        )

    def transactions(self) -> Transactions:
        """For a new connection."""
        return Transactions(self.runtime)

    # -- what exists

    def exists(self, path: str) -> bool:
        """As a queue, a topic or a subscription."""
        return path_key(path) in self.contents.entities.rows

    def keys(self) -> list[str]:
        """Of all entities, in no order: for who looks for some of them, a slice at a time."""
        return list(self.contents.entities.rows)

    def listed_keys(self) -> list[str]:
        """The same without transfer queues, which nobody is told of."""
        return [key for key in self.contents.entities.rows if not is_transfer_key(key)]

    def queues(self) -> list[QueueDescription]:
        """Sorted by path, as the lists below."""
        return [entry for entry in self._descriptions() if isinstance(entry, QueueDescription)]

    def topics(self) -> list[TopicDescription]:
        return [entry for entry in self._descriptions() if isinstance(entry, TopicDescription)]

    def subscriptions(self, topic_path: str) -> list[SubscriptionDescription]:
        """Raises EntityNotFound when there is no such topic."""
        row = self.contents.entity_row(topic_path)
        if not isinstance(row.description, TopicDescription):
            raise not_found(self.name, topic_path)
        rows = sorted(self.contents.entities.subscriptions(row.key), key=lambda entry: entry.key)
        found = [entry.description for entry in rows]
        return [entry for entry in found if isinstance(entry, SubscriptionDescription)]

    def _descriptions(self) -> list[Description]:
        rows = sorted(self.contents.entities.rows.items())
        return [row.description for key, row in rows if not is_transfer_key(key)]

    def description(self, path: str) -> Description:
        return self.contents.entity_row(path).description

    async def counts(self, path: str) -> RuntimeCounts:
        return self.contents.entities.counts.of(self.contents.entity_row(path))

    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]:
        return [self.contents.entities.counts.of(self.contents.entity_row(path)) for path in paths]

    def fragment_counts(self, path: str) -> list[FragmentCounts]:
        return self.contents.entities.counts.by_fragment(self.contents.entity_row(path))

    # -- changes

    async def create(self, wanted: Sequence[NewEntity]) -> list[Description]:
        """All of them or none."""
        return await self.background.finish(self._creation.create(wanted))

    async def update(self, description: Description) -> Description:
        return await self.background.finish(self._update.update(description))

    async def delete(self, path: str) -> None:
        """A topic goes with its subscriptions (E-65)."""
        await self.background.finish(self._deletion.delete(path))

    def release(self, path: str) -> None:
        """Nobody holds it any more: it goes soon, unless somebody comes first."""
        row = self.contents.entities.rows.get(path_key(path))
        if row is not None:
            self.background.spawn(self._deletion.delete_released(row))

    async def end(self, path: str, by: Attachment) -> None:
        """Deletes it for a link that stood for its end (`Queue.end_by`). Raises BrokerError when it stays."""
        await self.background.finish(self._deletion.delete_ended(path, by))
