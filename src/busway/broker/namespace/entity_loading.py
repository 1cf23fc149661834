"""Entities made of their rows: fragments with their counters, behind the outlets that links use.

A plain entity is made whole or not at all, a partitioned one of the fragments whose stores are in service.
"""

from collections.abc import Callable
from typing import TypeVar

from busway.broker.descriptions import QueueDescription, Receivable, TopicDescription, routes
from busway.broker.entity.distribution import Distribution
from busway.broker.entity.fragment_group import FragmentGroup
from busway.broker.entity.outlet import Outlet
from busway.broker.entity.queue import Queue
from busway.broker.entity.topic import Topic
from busway.broker.entity_path import path_key
from busway.broker.errors import EntityNotFound, ServerBusy
from busway.broker.forward.forwarding import Forwarder, Route
from busway.broker.forward.send_via import TransferForwarder, is_transfer_key
from busway.broker.forward.transfers import Transfers
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.namespace.catalogue_rows import EntityRow, Share
from busway.broker.namespace.entity_counts import EntityCounts
from busway.broker.namespace.entity_index import EntityIndex
from busway.broker.namespace.rule_table import RuleTable
from busway.broker.store_keeper import StoreKeeper
from busway.rules.selection import Selection
from busway.store.contract import FragmentKey

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

    def _in_service(self, row: EntityRow, load: Callable[[EntityRow, int], Loaded]) -> list[Loaded | None]:
        """What is in service, by index. Raises ServerBusy when nothing is."""
        found = [
            load(row, index) if self._keeper_of(share.store_name).is_open else None
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

    def pair(self, row: EntityRow, index: int) -> tuple[Fragment, Fragment]:
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

    def topic_fragment(self, row: EntityRow, index: int) -> Fragment:
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
        index: int,
        settings: FragmentSettings,
        dead_letter: Fragment | None,
    ) -> Fragment:
        keeper = self._keeper_of(share.store_name)
        counters = keeper.counters[key]
        return Fragment(key, index, counters, keeper.store, settings, self._runtime, dead_letter)

    def _route(self, target_path: str, left: str) -> Route:
        hops_max = self._runtime.limits.forwarding_hops_max
        return Route(target_path, lambda: self._target(target_path), self._transfers, hops_max, left)

    def _target(self, path: str) -> Queue | Topic:
        row = self._index.rows.get(path_key(path))
        if row is None:
            raise EntityNotFound(f"The entity '{path}' does not exist.")
        return self._entity_of(row)


def not_available(row: EntityRow) -> ServerBusy:
    return ServerBusy(
        f"The store of '{row.description.path}' is not available at the moment. Please try again later."
    )
