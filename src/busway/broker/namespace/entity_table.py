"""Every entity of the namespace: its row always, its fragments from the moment it is first used.

Theory of operation. Entities are made of their rows: fragments with their counters, behind the outlets that links
use. A plain entity is loaded whole or not at all: with its store it goes, and whoever holds it is evicted. A
partitioned one is loaded with the fragments whose stores are in service. It stays when a store goes, with one
fragment less behind its outlets, and the fragment is made anew when the store is back (`lose_store`,
`regain_store`); links do not notice.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from busway.broker.entity.distribution import Distribution
from busway.broker.entity.entity import Queue, Topic
from busway.broker.entity.fragment_group import FragmentGroup
from busway.broker.forward.forwarding import Forwarder, ForwardRoute
from busway.broker.forward.send_via import TransferForwarder, is_transfer_key
from busway.broker.forward.transfers import Transfers
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.runtime import BrokerRuntime, FragmentId
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.namespace.catalogue_rows import EntityRow, Share
from busway.broker.namespace.entity_index import EntityCounts, EntityIndex
from busway.broker.namespace.rule_table import RuleRow, RuleTable
from busway.broker.store_keeper import StoreKeeper
from busway.model.descriptions import (
    QueueDescription,
    Receivable,
    SubscriptionDescription,
    TopicDescription,
    routes,
)
from busway.model.entity_path import path_key
from busway.model.errors import BrokerError, EntityNotFound, EntityUpdated, ServerBusy
from busway.rules.selection import Selection
from busway.store.contract import FragmentIndex, FragmentKey

Loaded = TypeVar("Loaded")


class EntityLoader:
    """`entity_of` and `queue_of` give entities that others lead to: loaded already, or loaded now."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        keeper_of: Callable[[str], StoreKeeper],
        index: EntityIndex,
        rules: RuleTable,
        counts: EntityCounts,
        transfers: Transfers,
        entity_of: Callable[[EntityRow], Queue | Topic],
        queue_of: Callable[[EntityRow], Queue],
    ) -> None:
        self._runtime = runtime
        self._keeper_of = keeper_of
        self._index = index
        self._rules = rules
        self._counts = counts
        self._transfers = transfers
        self._entity_of = entity_of
        self._queue_of = queue_of

    # -- whole entities

    def queue(self, row: EntityRow) -> Queue:
        """Of a queue or a subscription. Raises ServerBusy without its store."""
        description = row.description
        assert not isinstance(description, TopicDescription)
        pairs = self._in_service(row, self.pair)
        mains = [None if pair is None else pair[0] for pair in pairs]
        dead_letters = [None if pair is None else pair[1] for pair in pairs]
        main_settings, dead_letter_settings = self.settings(description)
        return Queue(
            description.path,
            description,
            self._outlet(row, main_settings, mains),
            self._outlet(row, dead_letter_settings, dead_letters),
        )

    def topic(self, row: EntityRow) -> Topic:
        """Raises ServerBusy without its store."""
        description = row.description
        assert isinstance(description, TopicDescription)
        settings = FragmentSettings.of_topic(description, self._runtime.limits)
        if self._rules.selection(row.key) is None:
            self.selection(row.key)
        mains = self._in_service(row, self.topic_fragment)
        return Topic(description.path, description, self._outlet(row, settings, mains))

    def _in_service(
        self, row: EntityRow, load: Callable[[EntityRow, FragmentIndex], Loaded]
    ) -> list[Loaded | None]:
        """What is in service, by index. Raises ServerBusy when nothing is."""
        found = [
            load(row, FragmentIndex(index)) if self._keeper_of(share.store_name).is_open else None
            for index, share in enumerate(row.shares)
        ]
        if all(part is None for part in found):
            raise not_available(row)
        return found

    def _outlet(self, row: EntityRow, settings: FragmentSettings, fragments: list[Fragment | None]) -> Outlet:
        if row.is_partitioned:
            return FragmentGroup(settings, fragments, self._runtime)
        (only,) = fragments
        assert only is not None, "a plain entity is loaded whole"
        return only

    def selection(self, topic_key: str) -> Selection:
        """The topic's rules, compiled anew."""
        return self._rules.load(topic_key, [row.key for row in self._index.subscriptions(topic_key)])

    def settings(self, description: Receivable) -> tuple[FragmentSettings, FragmentSettings]:
        """Of the main fragment and of the dead-letter fragment."""
        limits = self._runtime.limits
        if isinstance(description, QueueDescription):
            return (
                FragmentSettings.of_queue(description, limits),
                FragmentSettings.of_queue(description, limits, dead_letter=True),
            )
        topic = self._index.rows[path_key(description.topic_path)].description
        assert isinstance(topic, TopicDescription)
        return (
            FragmentSettings.of_subscription(description, topic, limits),
            FragmentSettings.of_subscription(description, topic, limits, dead_letter=True),
        )

    # -- fragments

    def pair(self, row: EntityRow, index: FragmentIndex) -> tuple[Fragment, Fragment]:
        """One fragment and the one of its dead letters."""
        description = row.description
        assert not isinstance(description, TopicDescription)
        main_settings, dead_letter_settings = self.settings(description)
        share = row.shares[index]
        dead_letter = self._fragment(share, share.dead_letter, index, dead_letter_settings, None)
        main = self._fragment(share, share.main, index, main_settings, dead_letter)
        for fragment, target in ((dead_letter, routes(description)[1]), (main, routes(description)[0])):
            self._transfers.hold_back(fragment)
            if target is not None:
                self._transfers.loaded(fragment, self._index.stores_of(target))
            fragment.start()
        if description.forward_to is not None:
            main.forwarder = Forwarder(main, self._route(description.forward_to, ""))
            main.forwarder.wake()
        elif is_transfer_key(row.key):
            main.forwarder = TransferForwarder(main, lambda path: self._route(path, ""))
            main.forwarder.wake()
        if description.forward_dead_lettered_messages_to is not None:
            onward = self._route(description.forward_dead_lettered_messages_to, description.path)
            dead_letter.forwarder = Forwarder(dead_letter, onward)
            dead_letter.forwarder.wake()
        return main, dead_letter

    def topic_fragment(self, row: EntityRow, index: FragmentIndex) -> Fragment:
        description = row.description
        assert isinstance(description, TopicDescription)
        settings = FragmentSettings.of_topic(description, self._runtime.limits)
        share = row.shares[index]
        main = self._fragment(share, share.main, index, settings, None)
        selection = self._rules.selection(row.key)
        assert selection is not None, "it is loaded with the topic"
        rows, queue_of, counts = self._index.rows, self._queue_of, self._counts
        main.intake = Distribution(
            main,
            selection,
            lambda key: queue_of(rows[key]).inlet.member(index),
            lambda: counts.topic_share_bytes(row, index),
            description.filtering_messages_before_publishing,
        )
        main.start()
        return main

    def _fragment(
        self,
        share: Share,
        key: FragmentKey,
        index: FragmentIndex,
        settings: FragmentSettings,
        dead_letter: Fragment | None,
    ) -> Fragment:
        keeper = self._keeper_of(share.store_name)
        counters = keeper.counters[key]
        return Fragment(key, index, counters, keeper.store, settings, self._runtime, dead_letter)

    def _route(self, target_path: str, left: str) -> ForwardRoute:
        hops_max = self._runtime.limits.forwarding_hops_max
        return ForwardRoute(target_path, lambda: self._target(target_path), self._transfers, hops_max, left)

    def _target(self, path: str) -> Queue | Topic:
        row = self._index.rows.get(path_key(path))
        if row is None:
            raise EntityNotFound(f"The entity '{path}' does not exist.")
        return self._entity_of(row)


def not_available(row: EntityRow) -> ServerBusy:
    return ServerBusy(
        f"The store of '{row.description.path}' is not available at the moment. Please try again later."
    )


class EntityTable:
    """Every entity of the namespace: its row always, its fragments from the moment it is first used."""

    def __init__(self, runtime: BrokerRuntime, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._runtime = runtime
        self._keeper_of = keeper_of
        self.index = EntityIndex()
        self.rows = self.index.rows
        self.rules = RuleTable(runtime.entropy)
        self.counts = EntityCounts(self.index, keeper_of)
        self.transfers = Transfers(keeper_of, self, runtime.spawn)
        self._loader = EntityLoader(
            runtime,
            keeper_of,
            self.index,
            self.rules,
            self.counts,
            self.transfers,
            self.entity,
            self.queue,
        )
        self._loaded: dict[str, Queue | Topic] = {}
        #: Not to be loaded just now.
        self._parked: set[str] = set()
        runtime.undelivered.on_arrival = self._undelivered_arrived

    # -- rows

    def put(self, row: EntityRow) -> None:
        """An entity is new or has changed."""
        self.index.put(row)
        for share in row.shares:
            for key in share.fragments:
                self.transfers.no_doubt((share.store_name, key))
        self.transfers.doubt(row.doubts)
        self._refresh(row.key)

    def _refresh(self, key: str) -> None:
        """A loaded entity follows its row; the subscriptions of a topic have settings from it (E-61)."""
        row, entity = self.rows[key], self._loaded.get(key)
        description = row.description
        if isinstance(description, TopicDescription):
            if isinstance(entity, Topic):
                settings = FragmentSettings.of_topic(description, self._runtime.limits)
                entity.replace_description(description, settings)
            for subscription in self.index.subscriptions(key):
                self._refresh(subscription.key)
        elif isinstance(entity, Queue):
            entity.replace_description(description, *self._loader.settings(description))

    def remove(self, row: EntityRow, error: BrokerError) -> None:
        """The entity is gone: whoever holds it is evicted with `error` (E-86)."""
        self.index.remove(row)
        self._runtime.flows.forget(row.description.path)
        if isinstance(row.description, SubscriptionDescription):
            self.rules.forget(path_key(row.description.topic_path), row.key)
        elif isinstance(row.description, TopicDescription):
            self.rules.unload(row.key)
        for share in row.shares:
            for key in share.fragments:
                self.transfers.no_doubt((share.store_name, key))
                self._keeper_of(share.store_name).counters.pop(key, None)
        self._unload(row.key, error)

    def replace_all(
        self, rows: Iterable[EntityRow], gone: Callable[[EntityRow], BrokerError]
    ) -> list[EntityRow]:
        """The catalogue was read anew: only what differs is touched. Topics come before their subscriptions. Returns
        entities whose messages go elsewhere than before: they are parked until somebody loads them anew."""
        turned: list[EntityRow] = []
        wanted = {row.key: row for row in rows}
        for row in list(self.rows.values()):
            fresh = wanted.get(row.key)
            if fresh is None or fresh.incarnation != row.incarnation:
                self.remove(row, gone(row))
        for row in sorted(wanted.values(), key=_creation):
            present = self.rows.get(row.key)
            if present == row:
                continue
            if present is not None and routes(present.description) != routes(row.description):
                self.park(row.key, EntityUpdated())
                turned.append(row)
            self.put(row)
        return turned

    def replace_rules(self, rows: Iterable[RuleRow]) -> None:
        """The catalogue was read anew."""
        self.rules.replace_all(rows)
        for row, entity in self.loaded():
            if isinstance(entity, Topic):
                entity.replace_selection(self._loader.selection(row.key))

    def subscriptions(self, topic_key: str) -> list[EntityRow]:
        return self.index.subscriptions(topic_key)

    # -- entities

    def queue(self, row: EntityRow) -> Queue:
        """Makes its fragments when they are not there yet. Raises ServerBusy without its store."""
        queue = self._loaded.get(row.key)
        if queue is None:
            self._check_not_parked(row)
            queue = self._loaded[row.key] = self._loader.queue(row)
        assert isinstance(queue, Queue), "a topic is not received from"
        return queue

    def topic(self, row: EntityRow) -> Topic:
        topic = self._loaded.get(row.key)
        if topic is None:
            self._check_not_parked(row)
            topic = self._loaded[row.key] = self._loader.topic(row)
        assert isinstance(topic, Topic), "only a topic distributes"
        return topic

    def entity(self, row: EntityRow) -> Queue | Topic:
        return self.topic(row) if isinstance(row.description, TopicDescription) else self.queue(row)

    def load(self, row: EntityRow) -> None:
        """So that it sees to what it has; later when its store is not there."""
        try:
            self.entity(row)
        except ServerBusy:
            return

    def park(self, key: str, error: BrokerError) -> None:
        """Unloads an entity and keeps it so until `unpark`."""
        self._parked.add(key)
        self._unload(key, error)

    def unpark(self, key: str) -> None:
        self._parked.discard(key)

    def _check_not_parked(self, row: EntityRow) -> None:
        if row.key in self._parked:
            raise not_available(row)

    def _unload(self, key: str, error: BrokerError) -> None:
        entity = self._loaded.pop(key, None)
        if entity is not None:
            if isinstance(entity, Topic):
                self.rules.unload(key)
            entity.failed(error)

    def loaded(self) -> Iterator[tuple[EntityRow, Queue | Topic]]:
        for key, entity in list(self._loaded.items()):
            yield self.rows[key], entity

    # -- fragments

    def fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """For the sweeps of a store: the fragment, loaded when need be; None when nobody owns it."""
        owner = self.index.owner(store_name, key)
        if owner is None:
            return None
        row, index = owner[0], FragmentIndex(owner[1])
        try:
            entity = self.entity(row)
            if isinstance(entity, Queue):
                return entity.outlet(key == row.shares[index].dead_letter).member(index)
            return entity.inlet.member(index)
        except ServerBusy:
            return None

    def loaded_fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """The fragment if its entity is loaded and its store there."""
        owner = self.index.owner(store_name, key)
        is_loaded = owner is not None and owner[0].key in self._loaded
        return self.fragment(store_name, key) if is_loaded else None

    def has_owner(self, store_name: str, key: FragmentKey) -> bool:
        return self.index.owner(store_name, key) is not None

    def _undelivered_arrived(self, fragment_id: FragmentId) -> None:
        """In a turn of its own: the fragment may just be going."""
        runtime = self._runtime
        runtime.timers.at(runtime.clock.monotonic(), lambda: self._take_back(*fragment_id))

    def _take_back(self, store_name: str, key: FragmentKey) -> None:
        """A fragment that cannot be had now takes them when it is loaded."""
        if not self.has_owner(store_name, key):
            self._runtime.undelivered.take((store_name, key))
            return
        fragment = self.fragment(store_name, key)
        if fragment is not None and fragment.is_usable():
            fragment.consumption.put_undelivered_back()

    # -- stores

    def is_in_service(self, store_name: str) -> bool:
        """False also for a store that the namespace does not know."""
        try:
            return self._keeper_of(store_name).is_open
        except KeyError:
            return False

    def lose_store(self, store_name: str, error: BrokerError) -> None:
        """The store failed: what memory holds of its fragments is worth nothing any more."""
        for row, entity in self.loaded():
            if store_name not in row.store_names:
                continue
            if not row.is_partitioned:
                self._unload(row.key, error)
                continue
            for index, group in _groups_in(row, entity, store_name):
                group.lose(FragmentIndex(index), error)

    def regain_store(self, store_name: str) -> None:
        """The store is in service again: partitioned entities that are loaded get their fragments back. Others are
        loaded when they are used."""
        for row, entity in self.loaded():
            if row.is_partitioned and store_name in row.store_names and row.key not in self._parked:
                self._regain(row, entity, store_name)
        for fragment_id in self._runtime.undelivered.fragment_ids():
            if fragment_id[0] == store_name:
                self._take_back(*fragment_id)

    def _regain(self, row: EntityRow, entity: Queue | Topic, store_name: str) -> None:
        for at, share in enumerate(row.shares):
            if share.store_name != store_name:
                continue
            index = FragmentIndex(at)
            if isinstance(entity, Topic):
                parts: tuple[Fragment, ...] = (self._loader.topic_fragment(row, index),)
            else:
                parts = self._loader.pair(row, index)
            for outlet, fragment in zip(entity.outlets(), parts, strict=True):
                assert isinstance(outlet, FragmentGroup), "several fragments are a group"
                outlet.regain(index, fragment)

    # -- links

    def is_held(self, row: EntityRow) -> bool:
        """A link stands that it was made for."""
        entity = self._loaded.get(row.key)
        return entity is not None and entity.is_held()

    def is_received_from(self, row: EntityRow) -> bool:
        """Or from a subscription of it."""
        if self.is_held(row):
            return True
        if isinstance(row.description, TopicDescription):
            return any(map(self.is_received_from, self.subscriptions(row.key)))
        queue = self._loaded.get(row.key)
        return isinstance(queue, Queue) and queue.is_received_from()

    def end_by(self, row: EntityRow, by: Attachment) -> None:
        """Nobody new receives from it until `spare`."""
        self.load(row)
        queue = self._loaded.get(row.key)
        if isinstance(queue, Queue):
            queue.end_by(by)

    def is_ended_by(self, row: EntityRow, by: Attachment) -> bool:
        queue = self._loaded.get(row.key)
        return isinstance(queue, Queue) and queue.is_ended_by(by)

    def spare(self, row: EntityRow, by: Attachment) -> None:
        """Whatever has become of it."""
        queue = self._loaded.get(row.key)
        if isinstance(queue, Queue):
            queue.detach(by)


def _groups_in(row: EntityRow, entity: Queue | Topic, store_name: str) -> Iterator[tuple[int, FragmentGroup]]:
    """The groups of a partitioned entity, once for each of its fragments in the store."""
    for index, share in enumerate(row.shares):
        if share.store_name == store_name:
            for outlet in entity.outlets():
                if isinstance(outlet, FragmentGroup):
                    yield index, outlet


def _creation(row: EntityRow) -> tuple[int, int, str]:
    """Topics first; subscriptions in the order they were made."""
    return isinstance(row.description, SubscriptionDescription), row.incarnation, row.key
