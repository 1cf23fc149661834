"""Every entity of the namespace: its row always, its fragments from the moment it is first used.

Theory of operation. A plain entity is loaded whole or not at all: with its store it goes, and whoever holds it is
evicted. A partitioned one is loaded with the fragments whose stores are in service. It stays when a store goes, with
one fragment less behind its outlets, and the fragment is made anew when the store is back (`lose_store`,
`regain_store`); links do not notice.
"""

from collections.abc import Callable, Iterable, Iterator

from busway.broker.descriptions import SubscriptionDescription, TopicDescription, routes
from busway.broker.entity.fragment_group import FragmentGroup
from busway.broker.entity.queue import Queue
from busway.broker.entity.topic import Topic
from busway.broker.entity_path import path_key
from busway.broker.errors import BrokerError, EntityUpdated, ServerBusy
from busway.broker.forward.transfers import Transfers
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.receiver import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.fragment.strays import put_strays_back
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.entity_counts import EntityCounts
from busway.broker.namespace.entity_index import EntityIndex
from busway.broker.namespace.entity_loading import EntityLoader, not_available
from busway.broker.namespace.rule_rows import RuleRow
from busway.broker.namespace.rule_table import RuleTable
from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import FragmentKey


class EntityTable:
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
        runtime.strays.on_arrival = self._stray_arrived

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
        row, index = owner
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

    def _stray_arrived(self, place: tuple[str, FragmentKey]) -> None:
        """In a turn of its own: the fragment may just be going."""
        runtime = self._runtime
        runtime.timers.at(runtime.clock.monotonic(), lambda: self._take_back(*place))

    def _take_back(self, store_name: str, key: FragmentKey) -> None:
        """A fragment that cannot be had now takes them when it is loaded."""
        if not self.has_owner(store_name, key):
            self._runtime.strays.take((store_name, key))
            return
        fragment = self.fragment(store_name, key)
        if fragment is not None and fragment.is_usable():
            put_strays_back(fragment)

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
                group.lose(index, error)

    def regain_store(self, store_name: str) -> None:
        """The store is in service again: partitioned entities that are loaded get their fragments back. Others are
        loaded when they are used."""
        for row, entity in self.loaded():
            if row.is_partitioned and store_name in row.store_names and row.key not in self._parked:
                self._regain(row, entity, store_name)
        for place in self._runtime.strays.places():
            if place[0] == store_name:
                self._take_back(*place)

    def _regain(self, row: EntityRow, entity: Queue | Topic, store_name: str) -> None:
        for index, share in enumerate(row.shares):
            if share.store_name != store_name:
                continue
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
