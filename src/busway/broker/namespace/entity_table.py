"""Every entity of the namespace: its row always, its fragments from the moment it is first used.

Theory of operation. A plain entity is loaded whole or not at all: with its store it goes, and whoever holds it is
evicted. A partitioned one is loaded with the fragments whose stores are in service. It stays when a store goes, with
one fragment less behind its outlets, and the fragment is made anew when the store is back (`lose_store`,
`regain_store`); links do not notice.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from busway.broker.descriptions import (
    FOREVER_MS,
    MADE_FOR_A_LINK,
    Description,
    FragmentCounts,
    QueueDescription,
    Receivable,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
)
from busway.broker.entity.distribution import Distribution
from busway.broker.entity.fragment_group import FragmentGroup
from busway.broker.entity.queue import Queue, runtime_counts, total
from busway.broker.entity.topic import Topic
from busway.broker.entity_path import path_key
from busway.broker.errors import BrokerError, EntityNotFound, EntityUpdated, ServerBusy
from busway.broker.forward.doubt import Doubt
from busway.broker.forward.forwarding import Forwarder, Route
from busway.broker.forward.send_via import TransferForwarder, is_transfer_key, transfer_key
from busway.broker.forward.transfers import Transfers
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.receiver import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.namespace.auto_delete import Candidate
from busway.broker.namespace.catalogue_rows import EntityRow, Share
from busway.broker.namespace.rule_rows import RuleRow
from busway.broker.namespace.rule_table import RuleTable
from busway.broker.store_keeper import StoreKeeper
from busway.rules.selection import Selection
from busway.store.contract import Counters, FragmentKey

Loaded = TypeVar("Loaded")


class EntityTable:
    def __init__(self, runtime: BrokerRuntime, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._runtime = runtime
        self._keeper_of = keeper_of
        self.rows: dict[str, EntityRow] = {}
        self.rules = RuleTable(runtime.entropy)
        self.transfers = Transfers(keeper_of, self, runtime.spawn)
        self._loaded: dict[str, Queue | Topic] = {}
        #: Not to be loaded just now.
        self._parked: set[str] = set()
        #: Topic → its subscriptions, in order of creation.
        self._subscriptions: dict[str, dict[str, None]] = {}
        #: Store → fragment → key of the entity it belongs to, and its index there.
        self._owners: dict[str, dict[FragmentKey, tuple[str, int]]] = {}
        #: First segment → how many entities lie below it.
        self._below: dict[str, int] = {}
        #: Entities with a finite AutoDeleteOnIdle.
        self._mortal: set[str] = set()
        #: Transfer queues, which nobody counts.
        self._transfer_keys: set[str] = set()
        #: The namespace was opened then: before, nobody could use anything.
        self.opened_at_ms = 0
        runtime.strays.on_arrival = self._stray_arrived

    # -- rows

    def put(self, row: EntityRow) -> None:
        """An entity is new or has changed."""
        if row.key not in self.rows:
            self._count_below(row.key, 1)
        self.rows[row.key] = row
        for index, share in enumerate(row.shares):
            owners = self._owners.setdefault(share.store_name, {})
            for key in share.fragments:
                owners[key] = (row.key, index)
                self.transfers.no_doubt((share.store_name, key))
        self.transfers.doubt(row.doubts)
        if row.description.auto_delete_on_idle_ms < FOREVER_MS:
            self._mortal.add(row.key)
        else:
            self._mortal.discard(row.key)
        if is_transfer_key(row.key):
            self._transfer_keys.add(row.key)
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
        if self.rows.pop(row.key, None) is not None:
            self._count_below(row.key, -1)
        self._runtime.flows.forget(row.description.path)
        self._mortal.discard(row.key)
        self._transfer_keys.discard(row.key)
        if isinstance(row.description, SubscriptionDescription):
            topic_key = path_key(row.description.topic_path)
            self._subscriptions.get(topic_key, {}).pop(row.key, None)
            self.rules.forget(topic_key, row.key)
        elif isinstance(row.description, TopicDescription):
            self._subscriptions.pop(row.key, None)
            self.rules.unload(row.key)
        for share in row.shares:
            owners = self._owners.get(share.store_name, {})
            for key in share.fragments:
                self.transfers.no_doubt((share.store_name, key))
                owners.pop(key, None)
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
                entity.replace_selection(self._selection(row.key))

    def _selection(self, topic_key: str) -> Selection:
        return self.rules.load(topic_key, [row.key for row in self.subscriptions(topic_key)])

    def _count_below(self, key: str, change: int) -> None:
        top, _, rest = key.partition("/")
        if not rest:
            return
        count = self._below.get(top, 0) + change
        if count:
            self._below[top] = count
        else:
            del self._below[top]

    def paths_below(self, key: str) -> list[str]:
        """Of queues and topics; without looking when there are none."""
        if key not in self._below:
            return []
        rows = [row for name, row in self.rows.items() if name.startswith(f"{key}/")]
        return [
            row.description.path
            for row in rows
            if not isinstance(row.description, SubscriptionDescription) and not is_transfer_key(row.key)
        ]

    def subscriptions(self, topic_key: str) -> list[EntityRow]:
        return [self.rows[key] for key in self._subscriptions.get(topic_key, ())]

    def filter_counts(self, topic_key: str) -> tuple[int, int]:
        """SQL filters and correlation filters of a topic (E-72)."""
        return self.rules.filter_counts(topic_key)

    def entity_count(self) -> int:
        """Queues and topics (L-1)."""
        subscriptions = sum(map(len, self._subscriptions.values()))
        return len(self.rows) - subscriptions - len(self._transfer_keys)

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
        description = row.description
        assert not isinstance(description, TopicDescription)
        pairs = self._loaded_shares(row, self._load_pair)
        mains = [None if pair is None else pair[0] for pair in pairs]
        dead_letters = [None if pair is None else pair[1] for pair in pairs]
        main_settings, dead_letter_settings = self._settings(description)
        return Queue(
            description.path,
            description,
            self._outlet(row, main_settings, mains),
            self._outlet(row, dead_letter_settings, dead_letters),
        )

    def _loaded_shares(self, row: EntityRow, load: Callable[[EntityRow, int], Loaded]) -> list[Loaded | None]:
        """What is in service, by index. Raises ServerBusy when nothing is."""
        found = [load(row, index) if self._is_open(row, index) else None for index in range(len(row.shares))]
        if all(part is None for part in found):
            raise ServerBusy(
                f"The store of '{row.description.path}' is not available at the moment. Please try again later."
            )
        return found

    def _is_open(self, row: EntityRow, index: int) -> bool:
        return row.key not in self._parked and self._keeper_of(row.shares[index].store_name).is_open

    def _outlet(self, row: EntityRow, settings: FragmentSettings, fragments: list[Fragment | None]) -> Outlet:
        if row.is_partitioned:
            return FragmentGroup(settings, fragments, self._runtime)
        (only,) = fragments
        assert only is not None, "a plain entity is loaded whole"
        return only

    def _load_pair(self, row: EntityRow, index: int) -> tuple[Fragment, Fragment]:
        """One fragment and the one of its dead letters."""
        description = row.description
        assert not isinstance(description, TopicDescription)
        main_settings, dead_letter_settings = self._settings(description)
        share = row.shares[index]
        dead_letter = self._fragment(share, share.dead_letter, index, dead_letter_settings, None)
        main = self._fragment(share, share.main, index, main_settings, dead_letter)
        for fragment, target in ((dead_letter, routes(description)[1]), (main, routes(description)[0])):
            self.transfers.hold_back(fragment)
            if target is not None:
                self.transfers.loaded(fragment, self.stores_of(target))
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

    def _route(self, target_path: str, left: str) -> Route:
        hops_max = self._runtime.limits.forwarding_hops_max
        return Route(target_path, lambda: self._target(target_path), self.transfers, hops_max, left)

    def _target(self, path: str) -> Queue | Topic:
        row = self.rows.get(path_key(path))
        if row is None:
            raise EntityNotFound(f"The entity '{path}' does not exist.")
        return self.entity(row)

    def _load_topic(self, row: EntityRow) -> Topic:
        description = row.description
        assert isinstance(description, TopicDescription)
        settings = FragmentSettings.of_topic(description, self._runtime.limits)
        if self.rules.selection(row.key) is None:
            self._selection(row.key)
        mains = self._loaded_shares(row, self._load_topic_fragment)
        return Topic(description.path, description, self._outlet(row, settings, mains))

    def _load_topic_fragment(self, row: EntityRow, index: int) -> Fragment:
        description = row.description
        assert isinstance(description, TopicDescription)
        settings = FragmentSettings.of_topic(description, self._runtime.limits)
        share = row.shares[index]
        main = self._fragment(share, share.main, index, settings, None)
        selection = self.rules.selection(row.key)
        assert selection is not None, "it is loaded with the topic"
        main.intake = Distribution(
            main,
            selection,
            lambda key: self.queue(self.rows[key]).inlet.member(index),
            lambda: self._topic_share_bytes(row, index),
            description.filtering_messages_before_publishing,
        )
        main.start()
        return main

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
        self,
        share: Share,
        key: FragmentKey,
        index: int,
        settings: FragmentSettings,
        dead_letter: Fragment | None,
    ) -> Fragment:
        keeper = self._keeper_of(share.store_name)
        counters = keeper.counters[key]
        return Fragment(key, index, counters, keeper.store, settings, self._runtime, dead_letter)

    def fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """For the sweeps of a store: the fragment, loaded when need be; None when nobody owns it."""
        owner = self._owners.get(store_name, {}).get(key)
        if owner is None:
            return None
        row, index = self.rows[owner[0]], owner[1]
        try:
            entity = self.entity(row)
            if isinstance(entity, Queue):
                return entity.outlet(key == row.shares[index].dead_letter).member(index)
            return entity.inlet.member(index)
        except ServerBusy:
            return None

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
            fragment.put_strays_back()

    def closed_for(self, row: EntityRow, changed: EntityRow) -> EntityRow:
        """Its messages, or its dead letters, shall go elsewhere than before: none departs until
        `Transfers.open_departures`, and the changed row says what cannot be known about those that did."""
        doubts = {
            (doubt.store_name, doubt.fragment, doubt.gone_to): doubt for doubt in self._doubts_left(row)
        }
        for part, (before, after) in enumerate(
            zip(routes(row.description), routes(changed.description), strict=True)
        ):
            if before is None or before == after:
                continue
            places = [(share.store_name, share.fragments[part]) for share in row.shares]
            self.transfers.close_departures(places)
            for store_name, key in places:
                counters = self._keeper_of(store_name).counters.get(key)
                number = None if counters is None else counters.last_counter
                for doubt in self.transfers.doubts((store_name, key), number, self.stores_of(before)):
                    doubts[store_name, key, doubt.gone_to] = doubt
        return replace(changed, doubts=tuple(doubts.values()))

    def without_doubts(self, store_name: str, key: FragmentKey) -> tuple[EntityRow, EntityRow] | None:
        """The row of the fragment's entity, and the same without the doubts that have ended; None when none has."""
        owner = self._owners.get(store_name, {}).get(key)
        row = None if owner is None else self.rows[owner[0]]
        if row is None or not row.doubts:
            return None
        left = self._doubts_left(row)
        return None if len(left) == len(row.doubts) else (row, replace(row, doubts=left))

    def _doubts_left(self, row: EntityRow) -> tuple[Doubt, ...]:
        return tuple(doubt for doubt in row.doubts if self.transfers.still_in_doubt(doubt))

    def loaded_fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """The fragment if its entity is loaded and its store there."""
        owner = self._owners.get(store_name, {}).get(key)
        is_loaded = owner is not None and owner[0] in self._loaded
        return self.fragment(store_name, key) if is_loaded else None

    def has_owner(self, store_name: str, key: FragmentKey) -> bool:
        return key in self._owners.get(store_name, {})

    def is_in_service(self, store_name: str) -> bool:
        """False also for a store that the namespace does not know."""
        try:
            return self._keeper_of(store_name).is_open
        except KeyError:
            return False

    def stores_of(self, path: str) -> tuple[str, ...]:
        """Of the entity's fragments; none when there is no such entity."""
        row = self.rows.get(path_key(path))
        return () if row is None else tuple(row.store_names)

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        """Fragments that entities have in the store."""
        return set(self._owners.get(store_name, {}))

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
                parts: tuple[Fragment, ...] = (self._load_topic_fragment(row, index),)
            else:
                parts = self._load_pair(row, index)
            for outlet, fragment in zip(entity.outlets(), parts, strict=True):
                assert isinstance(outlet, FragmentGroup), "several fragments are a group"
                outlet.regain(index, fragment)

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
        counters = self._counters(row, [share.main for share in row.shares])
        return any(each.active > 0 and each.expiry_high_ms > 0 for each in counters)

    def _has_to_forward(self, row: EntityRow) -> bool:
        if routes(row.description) == (None, None) and not is_transfer_key(row.key):
            return False
        keys = [key for share in row.shares for key in share.fragments]
        return any(each.active > 0 for each in self._counters(row, keys))

    def _counters(self, row: EntityRow, keys: Iterable[FragmentKey]) -> list[Counters]:
        """Of those of its fragments whose store was ever seen."""
        wanted = set(keys)
        found = [
            self._keeper_of(share.store_name).counters.get(key)
            for share in row.shares
            for key in share.fragments
            if key in wanted
        ]
        return [counters for counters in found if counters is not None]

    def counts(self, row: EntityRow) -> RuntimeCounts:
        """E-100…E-103: sums over the fragments whose stores are there; without any, numbers are unknown (E-91,
        E-104)."""
        shares = [share for share in row.shares if self._keeper_of(share.store_name).is_open]
        if not shares:
            return RuntimeCounts(availability="Unknown")
        availability = "Available" if len(shares) == len(row.shares) else "Limited"
        main = total(self._share_counters(share, share.main) for share in shares)
        if isinstance(row.description, TopicDescription):
            return replace(self._topic_counts(row, main), availability=availability)
        dead_letter = total(self._share_counters(share, share.dead_letter) for share in shares)
        counts = replace(runtime_counts(main, dead_letter), availability=availability)
        if isinstance(row.description, SubscriptionDescription):
            # E-41: it was used by whoever made it, and so was its topic.
            used_ms = max(counts.accessed_at_ms, row.description.created_at_ms)
            counts = replace(counts, accessed_at_ms=used_ms)
        transfers = self.rows.get(transfer_key(row.key))
        if transfers is not None:
            waiting = self.counts(transfers)
            counts = replace(counts, transfer=waiting.active, transfer_dead_letter=waiting.dead_letter)
        if row.description.forward_to is None:
            return counts
        return replace(counts, active=0, transfer=counts.active + counts.transfer)  # F-13

    def _share_counters(self, share: Share, key: FragmentKey) -> Counters:
        return self._keeper_of(share.store_name).counters.get(key, _NOTHING)

    def fragment_counts(self, row: EntityRow) -> list[FragmentCounts]:
        """O-8: each fragment by itself."""
        return [self._fragment_counts(row, index) for index in range(len(row.shares))]

    def _fragment_counts(self, row: EntityRow, index: int) -> FragmentCounts:
        share = row.shares[index]
        keeper = self._keeper_of(share.store_name)
        if not keeper.is_open:
            return FragmentCounts(
                index, share.store_name, keeper.state, RuntimeCounts(availability="Unknown")
            )
        main = self._share_counters(share, share.main)
        if isinstance(row.description, TopicDescription):
            size_bytes = self._topic_share_bytes(row, index)
            counts = RuntimeCounts(
                scheduled=main.scheduled, size_bytes=size_bytes, accessed_at_ms=main.accessed_at_ms
            )
        else:
            counts = runtime_counts(main, self._share_counters(share, share.dead_letter))
        return FragmentCounts(index, share.store_name, keeper.state, counts)

    def _topic_counts(self, row: EntityRow, own: Counters) -> RuntimeCounts:
        """E-56: the copies' bytes count here, their messages do not. E-111: any use of a subscription is a use
        of its topic."""
        copies = [self.counts(subscription) for subscription in self.subscriptions(row.key)]
        return RuntimeCounts(
            scheduled=own.scheduled,
            size_bytes=own.bytes + sum(counts.size_bytes for counts in copies),
            accessed_at_ms=max([own.accessed_at_ms, *(counts.accessed_at_ms for counts in copies)]),
        )

    def _topic_share_bytes(self, row: EntityRow, index: int) -> int:
        """What counts against the size of one fragment of a topic: its own bytes, and the copies beside it."""
        rows = [row, *self.subscriptions(row.key)]
        shares = [each.shares[index] for each in rows]
        return sum(self._share_counters(share, key).bytes for share in shares for key in share.fragments)

    def touch(self, row: EntityRow, now_ms: int) -> None:
        """A use that is no message: a rule was added (E-111)."""
        for counters in self._counters(row, [share.main for share in row.shares])[:1]:
            counters.accessed_at_ms = max(counters.accessed_at_ms, now_ms)

    def mortal_keys(self) -> Iterable[str]:
        return self._mortal

    def earliest_due_ms(self, key: str) -> int | None:
        if key not in self._mortal:
            return None
        return self._unused_since_ms(key) + self.rows[key].description.auto_delete_on_idle_ms

    def _unused_since_ms(self, key: str) -> int:
        """If it was not used since it was made, changed, or could be."""
        description = self.rows[key].description
        return max(description.updated_at_ms, description.created_at_ms, self.opened_at_ms)

    def auto_delete_candidate(self, key: str) -> Candidate | None:
        """None without its stores: nobody knows when it was used."""
        row = self.rows[key] if key in self._mortal else None
        if row is None or not all(self._keeper_of(name).is_open for name in row.store_names):
            return None
        counts = self.counts(row)
        used_ms = max(counts.accessed_at_ms, self._unused_since_ms(key))
        is_awaited = counts.scheduled > 0 and row.description.user_metadata != MADE_FOR_A_LINK
        in_use = is_awaited or self._is_received_from(row)
        return Candidate(key, row.description.auto_delete_on_idle_ms, used_ms, in_use)

    def is_held(self, row: EntityRow) -> bool:
        """A link stands that it was made for."""
        entity = self._loaded.get(row.key)
        return entity is not None and entity.is_held()

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

    def _is_received_from(self, row: EntityRow) -> bool:
        if self.is_held(row):
            return True
        if isinstance(row.description, TopicDescription):
            return any(map(self._is_received_from, self.subscriptions(row.key)))
        queue = self._loaded.get(row.key)
        return isinstance(queue, Queue) and queue.is_received_from()


def _groups_in(row: EntityRow, entity: Queue | Topic, store_name: str) -> Iterator[tuple[int, FragmentGroup]]:
    """The groups of a partitioned entity, once for each of its fragments in the store."""
    for index, share in enumerate(row.shares):
        if share.store_name == store_name:
            for outlet in entity.outlets():
                if isinstance(outlet, FragmentGroup):
                    yield index, outlet


def routes(description: Description) -> tuple[str | None, str | None]:
    """Where its messages go by themselves, and where its dead letters do."""
    if isinstance(description, TopicDescription):
        return None, None
    return description.forward_to, description.forward_dead_lettered_messages_to


def _creation(row: EntityRow) -> tuple[int, int, str]:
    """Topics first; subscriptions in the order they were made."""
    return isinstance(row.description, SubscriptionDescription), row.incarnation, row.key


_NOTHING = Counters()
