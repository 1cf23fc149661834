"""Every entity of the namespace: its row always, its fragments from the moment it is first used."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from busway.broker.auto_delete import Candidate
from busway.broker.catalogue_rows import EntityRow
from busway.broker.descriptions import (
    FOREVER_MS,
    Description,
    QueueDescription,
    Receivable,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
)
from busway.broker.distribution import Distribution
from busway.broker.entity_path import path_key
from busway.broker.errors import BrokerError, EntityNotFound, ServerBusy
from busway.broker.forwarding import Forwarder, Route
from busway.broker.fragment import Fragment
from busway.broker.fragment_settings import FragmentSettings
from busway.broker.queue import Queue, runtime_counts
from busway.broker.rule_rows import RuleRow
from busway.broker.rule_table import RuleTable
from busway.broker.runtime import BrokerRuntime
from busway.broker.store_keeper import StoreKeeper
from busway.broker.topic import Topic
from busway.broker.transfers import Transfers
from busway.rules.selection import Selection
from busway.store.contract import Counters, FragmentKey


class EntityTable:
    def __init__(self, runtime: BrokerRuntime, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._runtime = runtime
        self._keeper_of = keeper_of
        self.rows: dict[str, EntityRow] = {}
        self.rules = RuleTable(runtime.entropy)
        self.transfers = Transfers(keeper_of)
        self._loaded: dict[str, Queue | Topic] = {}
        #: Not to be loaded just now.
        self._parked: set[str] = set()
        #: Topic → its subscriptions, in order of creation.
        self._subscriptions: dict[str, dict[str, None]] = {}
        #: Store → fragment → key of the entity it belongs to.
        self._owners: dict[str, dict[FragmentKey, str]] = {}
        #: Entities with a finite AutoDeleteOnIdle.
        self._mortal: set[str] = set()
        #: The namespace was opened then: before, nobody could use anything.
        self.opened_at_ms = 0

    # -- rows

    def put(self, row: EntityRow) -> None:
        """An entity is new or has changed."""
        self.rows[row.key] = row
        owners = self._owners.setdefault(row.store_name, {})
        for key in row.fragments:
            owners[key] = row.key
        if row.description.auto_delete_on_idle_ms < FOREVER_MS:
            self._mortal.add(row.key)
        else:
            self._mortal.discard(row.key)
        if isinstance(row.description, SubscriptionDescription):
            topic_key = path_key(row.description.topic_path)
            self._subscriptions.setdefault(topic_key, {})[row.key] = None
        self._refresh(row.key)

    def _refresh(self, key: str) -> None:
        """A loaded entity follows its row; the subscriptions of a topic have settings from it (E-61)."""
        row, entity = self.rows[key], self._loaded.get(key)
        description = row.description
        if isinstance(description, TopicDescription):
            if isinstance(entity, Topic):
                settings = FragmentSettings.of_topic(description, self._runtime.limits)
                entity.replace_description(description, settings)
            for subscription_key in self._subscriptions.get(key, ()):
                self._refresh(subscription_key)
        elif isinstance(entity, Queue):
            entity.replace_description(description, *self._settings(description))

    def park(self, key: str, error: BrokerError) -> None:
        """Unloads an entity and keeps it so until `unpark`."""
        self._parked.add(key)
        self._unload(key, error)

    def unpark(self, key: str) -> None:
        self._parked.discard(key)

    def load(self, row: EntityRow) -> None:
        """So that it sees to what it has; later when its store is not there."""
        try:
            self.entity(row)
        except ServerBusy:
            return

    def remove(self, row: EntityRow, error: BrokerError) -> None:
        """The entity is gone: whoever holds it is evicted with `error` (E-86)."""
        self.rows.pop(row.key, None)
        self._runtime.flows.forget(row.description.path)
        self._mortal.discard(row.key)
        if isinstance(row.description, SubscriptionDescription):
            topic_key = path_key(row.description.topic_path)
            self._subscriptions.get(topic_key, {}).pop(row.key, None)
            self.rules.forget(topic_key, row.key)
        elif isinstance(row.description, TopicDescription):
            self._subscriptions.pop(row.key, None)
            self.rules.unload(row.key)
        owners = self._owners.get(row.store_name, {})
        for key in row.fragments:
            owners.pop(key, None)
            self._keeper_of(row.store_name).counters.pop(key, None)
        self._unload(row.key, error)

    def replace_all(self, rows: Iterable[EntityRow], gone: Callable[[EntityRow], BrokerError]) -> None:
        """The catalogue was read anew: only what differs is touched. Topics come before their
        subscriptions."""
        wanted = {row.key: row for row in rows}
        for row in list(self.rows.values()):
            fresh = wanted.get(row.key)
            if fresh is None or fresh.incarnation != row.incarnation:
                self.remove(row, gone(row))
        for row in sorted(wanted.values(), key=_creation):
            if self.rows.get(row.key) != row:
                self.put(row)

    def replace_rules(self, rows: Iterable[RuleRow]) -> None:
        """The catalogue was read anew."""
        self.rules.replace_all(rows)
        for row, entity in self.loaded():
            if isinstance(entity, Topic):
                entity.distribution.selection = self._selection(row.key)

    def _selection(self, topic_key: str) -> Selection:
        return self.rules.load(topic_key, [row.key for row in self.subscriptions(topic_key)])

    def subscriptions(self, topic_key: str) -> list[EntityRow]:
        return [self.rows[key] for key in self._subscriptions.get(topic_key, ())]

    def filter_counts(self, topic_key: str) -> tuple[int, int]:
        """SQL filters and correlation filters of a topic (E-72)."""
        return self.rules.filter_counts(topic_key)

    def entity_count(self) -> int:
        """Queues and topics (L-1)."""
        subscriptions = sum(map(len, self._subscriptions.values()))
        return len(self.rows) - subscriptions

    # -- entities

    def queue(self, row: EntityRow) -> Queue:
        """Makes its fragments when they are not there yet. Raises ServerBusy without its store."""
        queue = self._loaded.get(row.key)
        if queue is None:
            queue = self._loaded[row.key] = self._load_queue(row)
        assert isinstance(queue, Queue), "a topic is not received from"
        return queue

    def topic(self, row: EntityRow) -> Topic:
        topic = self._loaded.get(row.key)
        if topic is None:
            topic = self._loaded[row.key] = self._load_topic(row)
        assert isinstance(topic, Topic), "only a topic distributes"
        return topic

    def entity(self, row: EntityRow) -> Queue | Topic:
        return self.topic(row) if isinstance(row.description, TopicDescription) else self.queue(row)

    def _load_queue(self, row: EntityRow) -> Queue:
        keeper = self._open_keeper(row)
        description = row.description
        assert not isinstance(description, TopicDescription)
        main_settings, dead_letter_settings = self._settings(description)
        dead_letter = self._fragment(row.dead_letter, keeper, dead_letter_settings, None)
        main = self._fragment(row.main, keeper, main_settings, dead_letter)
        dead_letter.start()
        main.start()
        if description.forward_to is not None:
            main.forwarder = Forwarder(main, self._route(description.forward_to, ""))
            main.forwarder.wake()
        if description.forward_dead_lettered_messages_to is not None:
            onward = self._route(description.forward_dead_lettered_messages_to, description.path)
            dead_letter.forwarder = Forwarder(dead_letter, onward)
            dead_letter.forwarder.wake()
        return Queue(description.path, description, main, dead_letter)

    def _route(self, target_path: str, left: str) -> Route:
        hops_max = self._runtime.limits.forwarding_hops_max
        return Route(target_path, lambda: self._target(target_path), self.transfers, hops_max, left)

    def _target(self, path: str) -> Queue | Topic:
        row = self.rows.get(path_key(path))
        if row is None:
            raise EntityNotFound(f"The entity '{path}' does not exist.")
        return self.entity(row)

    def _load_topic(self, row: EntityRow) -> Topic:
        keeper = self._open_keeper(row)
        description = row.description
        assert isinstance(description, TopicDescription)
        settings = FragmentSettings.of_topic(description, self._runtime.limits)
        main = self._fragment(row.main, keeper, settings, None)
        distribution = Distribution(
            main,
            self._selection(row.key),
            lambda key: self.queue(self.rows[key]),
            lambda: self.topic_bytes(row),
            description.filtering_messages_before_publishing,
        )
        main.start()
        return Topic(description.path, description, main, distribution)

    def _open_keeper(self, row: EntityRow) -> StoreKeeper:
        keeper = self._keeper_of(row.store_name)
        if not keeper.is_open or row.key in self._parked:
            raise ServerBusy(
                f"The store of '{row.description.path}' is not available at the moment. Please try again later."
            )
        return keeper

    def _settings(self, description: Receivable) -> tuple[FragmentSettings, FragmentSettings]:
        """Of the main fragment and of the dead-letter fragment."""
        limits = self._runtime.limits
        if isinstance(description, QueueDescription):
            return (
                FragmentSettings.of_queue(description, limits),
                FragmentSettings.of_queue(description, limits, dead_letter=True),
            )
        topic = self.rows[path_key(description.topic_path)].description
        assert isinstance(topic, TopicDescription)
        return (
            FragmentSettings.of_subscription(description, topic, limits),
            FragmentSettings.of_subscription(description, topic, limits, dead_letter=True),
        )

    def _fragment(
        self, key: FragmentKey, keeper: StoreKeeper, settings: FragmentSettings, dead_letter: Fragment | None
    ) -> Fragment:
        return Fragment(key, 0, keeper.counters[key], keeper.store, settings, self._runtime, dead_letter)

    def fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """For the sweeps of a store: the fragment, loaded when need be; None when nobody owns it."""
        owner = self._owners.get(store_name, {}).get(key)
        if owner is None:
            return None
        row = self.rows[owner]
        try:
            entity = self.entity(row)
        except ServerBusy:
            return None
        return entity.dead_letter if isinstance(entity, Queue) and key == row.dead_letter else entity.main

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        """Fragments that entities have in the store."""
        return set(self._owners.get(store_name, {}))

    def lose_store(self, store_name: str, error: BrokerError) -> None:
        """The store failed: what memory holds of its entities is worth nothing any more."""
        for key in [key for key in self._loaded if self.rows[key].store_name == store_name]:
            self._unload(key, error)

    def _unload(self, key: str, error: BrokerError) -> None:
        entity = self._loaded.pop(key, None)
        if entity is not None:
            if isinstance(entity, Topic):
                self.rules.unload(key)
            entity.failed(error)

    def loaded(self) -> Iterator[tuple[EntityRow, Queue | Topic]]:
        for key, entity in list(self._loaded.items()):
            yield self.rows[key], entity

    # -- numbers

    def needing_care(self) -> list[str]:
        """Entities whose messages expire in order at the head, or move on: only loaded fragments see to it."""
        return [
            row.key for row in self.rows.values() if self._head_may_expire(row) or self._has_to_forward(row)
        ]

    def _head_may_expire(self, row: EntityRow) -> bool:
        counters = self._keeper_of(row.store_name).counters.get(row.main)
        return counters is not None and counters.active > 0 and counters.expiry_high_ms > 0

    def _has_to_forward(self, row: EntityRow) -> bool:
        description = row.description
        if routes(description) == (None, None):
            return False
        counters = self._keeper_of(row.store_name).counters
        return any(key in counters and counters[key].active > 0 for key in row.fragments)

    def counts(self, row: EntityRow) -> RuntimeCounts:
        """E-100…E-102. Without its store an entity's numbers are unknown (E-91, E-104)."""
        keeper = self._keeper_of(row.store_name)
        if not keeper.is_open:
            return RuntimeCounts(availability="Unknown")
        main = keeper.counters.get(row.main, _NOTHING)
        if isinstance(row.description, TopicDescription):
            return self._topic_counts(row, main)
        counts = runtime_counts(main, keeper.counters.get(row.dead_letter, _NOTHING))
        if row.description.forward_to is None:
            return counts
        return replace(counts, active=0, transfer=counts.active)  # F-13

    def _topic_counts(self, row: EntityRow, own: Counters) -> RuntimeCounts:
        """E-56: the copies' bytes count here, their messages do not. E-111: any use of a subscription is a use
        of its topic."""
        copies = [self.counts(subscription) for subscription in self.subscriptions(row.key)]
        return RuntimeCounts(
            scheduled=own.scheduled,
            size_bytes=own.bytes + sum(counts.size_bytes for counts in copies),
            accessed_at_ms=max([own.accessed_at_ms, *(counts.accessed_at_ms for counts in copies)]),
        )

    def topic_bytes(self, row: EntityRow) -> int:
        return self.counts(row).size_bytes

    def touch(self, row: EntityRow, now_ms: int) -> None:
        """A use that is no message: a rule was added (E-111)."""
        counters = self._keeper_of(row.store_name).counters.get(row.main)
        if counters is not None:
            counters.accessed_at_ms = max(counters.accessed_at_ms, now_ms)

    def auto_delete_candidates(self) -> Iterator[Candidate]:
        """Those whose store is there: without it nobody knows when an entity was used."""
        for key in self._mortal:
            row = self.rows[key]
            if self._keeper_of(row.store_name).is_open:
                yield self._candidate(row)

    def _candidate(self, row: EntityRow) -> Candidate:
        counts = self.counts(row)
        description = row.description
        used_ms = max(
            counts.accessed_at_ms, description.updated_at_ms, description.created_at_ms, self.opened_at_ms
        )
        in_use = counts.scheduled > 0 or self._is_received_from(row)
        return Candidate(row.key, description.auto_delete_on_idle_ms, used_ms, in_use)

    def _is_received_from(self, row: EntityRow) -> bool:
        if isinstance(row.description, TopicDescription):
            return any(map(self._is_received_from, self.subscriptions(row.key)))
        queue = self._loaded.get(row.key)
        if not isinstance(queue, Queue):
            return False
        return bool(queue.main.receivers() or queue.dead_letter.receivers())


def routes(description: Description) -> tuple[str | None, str | None]:
    """Where its messages go by themselves, and where its dead letters do."""
    if isinstance(description, TopicDescription):
        return None, None
    return description.forward_to, description.forward_dead_lettered_messages_to


def _creation(row: EntityRow) -> tuple[int, int, str]:
    """Topics first; subscriptions in the order they were made."""
    return isinstance(row.description, SubscriptionDescription), row.incarnation, row.key


_NOTHING = Counters()
