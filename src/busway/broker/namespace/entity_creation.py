"""How entities come: which may come beside those that are there, the stores they go to, and their creation.

The checks are about names, numbers, topics and targets of forwards. Which store a new entity's fragments go to is
decided once and recorded in the catalogue; nothing moves by itself.

Theory of operation. The fragments of new entities are committed in their stores before the catalogue's home has
rows that name them, and only then memory knows them. What a crash leaves between the two belongs to nobody and is
dropped when its store is opened next. The fragments of a topic's subscriptions lie beside its own. A partitioned
entity has fragments in several stores, all under one row (P-60): it is created when all of these are in service,
or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Protocol, TypeVar

from busway.broker.forward.send_via import is_transfer_key, transfer_description, transfer_key
from busway.broker.namespace.catalogue_rows import NO_FRAGMENT, EntityRow, Share
from busway.broker.namespace.contents import Join, NamespaceContents, dropping
from busway.broker.namespace.rule_changes import (
    beginnings_of_new,
    check_new_rules,
    last_published,
    note_beginnings,
)
from busway.broker.namespace.rule_table import RuleRow
from busway.broker.store_keeper import StoreKeeper
from busway.model.description_checks import PREMIUM, check_creation, with_fragments
from busway.model.descriptions import (
    Description,
    NewEntity,
    SubscriptionDescription,
    TopicDescription,
    completed_rules,
    never_idle,
)
from busway.model.entity_path import (
    DEAD_LETTER_KEYWORD,
    already_exists,
    not_found,
    path_key,
    shown,
    topic_key_of,
)
from busway.model.errors import (
    EntityAlreadyExists,
    ForwardTargetNotFound,
    QuotaExceeded,
    ServerBusy,
    TooManySubscriptions,
)
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, TrueFilter
from busway.store.contract import CommitBatch, Counters, FragmentRow, StoreError, first_number_base


def check_new_entities(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    """Raises when not all of them can come together."""
    keys: set[str] = set()
    rows = contents.entities.rows
    topics = {path_key(new.description.path) for new in wanted if is_topic(new.description)}
    count = contents.entities.index.entity_count() + contents.hubs.entity_count()
    for new in wanted:
        description = new.description
        # Rules may still lack their keys; they are checked when they are complete.
        check_creation(_without_rules(description), contents.limits)
        key = path_key(description.path)
        if key in keys or key in rows or contents.hubs.kind_of(key) is not None:
            raise already_exists(contents.name, description.path)
        keys.add(key)
        if isinstance(description, SubscriptionDescription):
            _check_topic(contents, description, topics)
        else:
            _check_above(contents, description.path)
            count += 1
    _check_subscription_counts(contents, wanted)
    _check_partitioned_count(contents, wanted)
    if count > contents.limits.entities_max:
        raise QuotaExceeded(
            f"The namespace may have {contents.limits.entities_max} entities; no more can be created."
        )


def check_forward_targets(contents: NamespaceContents, rows: Sequence[EntityRow]) -> None:
    """F-2: the target must be a queue or a topic that exists, or comes into being with it. A queue may
    forward to itself and a subscription to its own topic: the limit of hops ends that (E-33, F-6)."""
    fresh = {row.key: row for row in rows}
    for row in rows:
        description = row.description
        if isinstance(description, TopicDescription):
            continue
        for name, target in (
            ("ForwardTo", description.forward_to),
            ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
        ):
            if target is None:
                continue
            found = fresh.get(path_key(target)) or contents.entities.rows.get(path_key(target))
            if found is None or isinstance(found.description, SubscriptionDescription):
                raise ForwardTargetNotFound(
                    f"{name}: the entity {shown(target)} could not be found; create it first."
                )


def is_topic(description: Description) -> bool:
    return isinstance(description, TopicDescription)


def _check_above(contents: NamespaceContents, path: str) -> None:
    """Whatever lies below a hub's name may be an address of the hub: the key of the one would open the other."""
    top = path.partition("/")[0]
    kind = contents.hubs.kind_of(path_key(top))
    if kind is not None:
        raise EntityAlreadyExists(
            f"The name {shown(path)} cannot be used: it lies below {kind.removeprefix('an ')} {shown(top)}."
        )


def _check_partitioned_count(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    """L-2; a partitioned namespace, as Premium ones are, knows no such limit."""
    limits = contents.limits
    if limits.namespace_partitions or limits.sku == PREMIUM:
        return
    added = sum(_is_partitioned(new.description) for new in wanted)
    if not added:
        return
    rows = contents.entities.rows.items()
    present = sum(_is_partitioned(row.description) for key, row in rows if not is_transfer_key(key))
    if present + added > limits.partitioned_entities_max:
        raise QuotaExceeded(
            f"The namespace has {present} of at most {limits.partitioned_entities_max} entities with"
            " EnablePartitioning == true; no more can be created."
        )


def _check_topic(
    contents: NamespaceContents, description: SubscriptionDescription, new_topics: set[str]
) -> None:
    key = path_key(description.topic_path)
    row = contents.entities.rows.get(key)
    if key not in new_topics and (row is None or not is_topic(row.description)):
        raise not_found(contents.name, description.topic_path)


def _check_subscription_counts(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    most = contents.limits.subscriptions_per_topic_max
    added: dict[str, int] = {}
    for new in wanted:
        if isinstance(new.description, SubscriptionDescription):
            key = path_key(new.description.topic_path)
            added[key] = added.get(key, 0) + 1
    for key, count in added.items():
        present = len(contents.entities.subscriptions(key))
        if present + count > most:
            raise TooManySubscriptions(
                f"The topic {shown(key)} has {present} of at most {most} subscriptions; no more can be created."
            )


def _is_partitioned(description: Description) -> bool:
    return not isinstance(description, SubscriptionDescription) and description.enable_partitioning


def _without_rules(description: Description) -> Description:
    if isinstance(description, SubscriptionDescription):
        return description
    return replace(description, authorization_rules=())


class StorePlace(Protocol):
    """A store as placement sees it."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def fragment_count(self) -> int: ...


SomePlace = TypeVar("SomePlace", bound=StorePlace)


def choose_store(stores: Iterable[SomePlace]) -> SomePlace:
    """Of the stores in service the one with the fewest live fragments, then the first by name."""
    ready = [store for store in stores if store.is_open]
    if not ready:
        raise ServerBusy("No store is available at the moment. Please try again later.")
    return min(ready, key=lambda store: (store.fragment_count, store.name))


def spread_over(stores: Sequence[SomePlace], count: int) -> list[SomePlace]:
    """P-1: a store for each fragment of a partitioned entity, evenly over all there are, beginning with the one that
    a plain entity would go to. All of those must be in service (P-60)."""
    in_turn = _by_database(stores)
    start = in_turn.index(choose_store(stores))
    chosen = [in_turn[(start + index) % len(in_turn)] for index in range(count)]
    away = next((store.name for store in chosen if not store.is_open), None)
    if away is not None:
        raise ServerBusy(
            f"The store {away} is not available at the moment, and a partitioned entity needs all of its stores:"
            " nothing was created. Please try again later."
        )
    return chosen


def database_of(url: str) -> str:
    """The address of a store up to its query: a database may hold many stores, and is one thing that can fail or be
    busy. A file is one of its own."""
    return url.partition("?")[0]


def _by_database(stores: Sequence[SomePlace]) -> list[SomePlace]:
    """In their order, but one of each database in turn."""
    databases: dict[str, list[SomePlace]] = {}
    for store in stores:
        databases.setdefault(database_of(store.url), []).append(store)
    rounds = zip_longest(*databases.values())
    return [store for each in rounds for store in each if store is not None]


class EntityCreation:
    """Each verb is awaited to its end; `BackgroundWork.finish` sees to that."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    async def create(self, wanted: Sequence[NewEntity]) -> list[Description]:
        """All of them or none. Topics may come together with their subscriptions."""
        contents = self._contents
        async with contents.changing:
            check_new_entities(contents, wanted)
            completed = [
                replace(new, description=self._completed(new.description)) for new in _topics_first(wanted)
            ]
            rows = self._placed([new.description for new in completed])
            check_forward_targets(contents, rows)
            rules = self._first_rules(completed, rows)
            await self._create_fragments(rows)
            texts = {row.row_key: row.text(None) for row in rows}
            texts.update({rule.row_key: rule.text(None) for rule in rules})
            await contents.write(texts, _creating(rows, contents.catalogue.home.name))
            for row in rows:
                self._put_new(row)
                contents.record("Create", row.description)
            for rule in rules:
                contents.entities.rules.put(topic_key_of(rule.subscription_key), rule)
            await note_beginnings(contents, rules)
        for row in rows:
            contents.auto_delete.watch(row.key)
        return [row.description for row in rows]

    async def create_transfer_queue(self, via: EntityRow) -> None:
        """TX-3: beside the entity that messages are sent via; it is deleted with it."""
        contents = self._contents
        async with contents.changing:
            key = transfer_key(via.key)
            present = contents.entities.rows.get(via.key)
            if present is None or present.incarnation != via.incarnation or key in contents.entities.rows:
                return
            via = present  # perhaps updated meanwhile
            planned = self._planned()
            away = next((name for name in via.store_names if not planned[name].is_open), None)
            if away is not None:
                raise ServerBusy(
                    f"The store {away} of {shown(via.description.path)} is not available just now."
                )
            shares = tuple(planned[share.store_name].share(has_dead_letters=True) for share in via.shares)
            description = transfer_description(via.description)
            row = EntityRow(key, description, shares, via.is_partitioned, contents.catalogue.version + 1)
            await self._create_fragments([row])
            await contents.write(
                {row.row_key: row.text(None)}, _creating([row], contents.catalogue.home.name)
            )
            self._put_new(row)

    def _completed(self, wanted: Description) -> Description:
        contents = self._contents
        now_ms = contents.clock.wall_ms()
        stamped = replace(wanted, created_at_ms=now_ms, updated_at_ms=now_ms)
        if isinstance(stamped, SubscriptionDescription):
            completed: Description = never_idle(stamped)
        else:
            rules = completed_rules(stamped.authorization_rules, (), contents.entropy, now_ms)
            completed = with_fragments(replace(stamped, authorization_rules=rules), contents.limits)
        check_creation(completed, contents.limits)
        return completed

    # -- where they lie

    def _planned(self) -> "dict[str, _Planned]":
        return {name: _Planned(keeper) for name, keeper in self._contents.keepers.items()}

    def _placed(self, descriptions: list[Description]) -> list[EntityRow]:
        contents = self._contents
        rows: dict[str, EntityRow] = {}
        planned = self._planned()
        for description in descriptions:
            key = path_key(description.path)
            if isinstance(description, SubscriptionDescription):
                topic_key = path_key(description.topic_path)
                topic = rows[topic_key] if topic_key in rows else contents.entities.rows[topic_key]
                stores = [planned[share.store_name] for share in topic.shares]
                is_partitioned = topic.is_partitioned
                away = next((store.name for store in stores if not store.is_open), None)
                if away is not None:
                    raise ServerBusy(f"The store {away} of the topic is not available just now.")
            elif description.enable_partitioning:
                stores = spread_over(list(planned.values()), description.fragment_count)
                is_partitioned = True
            else:
                stores = [choose_store(planned.values())]
                is_partitioned = False
            shares = tuple(store.share(has_dead_letters=not is_topic(description)) for store in stores)
            rows[key] = EntityRow(key, description, shares, is_partitioned, contents.catalogue.version + 1)
        return list(rows.values())

    def _first_rules(self, completed: Sequence[NewEntity], rows: Sequence[EntityRow]) -> list[RuleRow]:
        contents = self._contents
        made: list[RuleRow] = []
        now_ms = contents.clock.wall_ms()
        for new, row in zip(completed, rows, strict=True):
            if isinstance(row.description, SubscriptionDescription):
                rules = new.rules or (Rule(DEFAULT_RULE_NAME, TrueFilter()),)
                topic_key = topic_key_of(row.key)
                began = last_published(contents, topic_key)
                beginnings = beginnings_of_new(contents, topic_key)
                for order, rule in enumerate(rules, 1):
                    stamped = replace(rule, created_at_ms=now_ms)
                    made.append(RuleRow(row.key, stamped, order, began, beginnings))
        check_new_rules(contents.name, contents.entities, made, contents.limits)
        return made

    # -- fragments

    async def _create_fragments(self, rows: list[EntityRow]) -> None:
        """In the stores other than the home; there they join the row's own batch."""
        home = self._contents.catalogue.home.name
        made: set[str] = set()
        for name in sorted({share.store_name for row in rows for share in row.shares} - {home}):
            try:
                await self._contents.keepers[name].commit(_creating(rows, name))
                made.add(name)
            except StoreError as error:
                self._drop_created(rows, made)
                raise ServerBusy(
                    f"The store {name} failed: nothing was created. Please try again."
                ) from error

    def _drop_created(self, rows: list[EntityRow], store_names: set[str]) -> None:
        """No row names them, certainly. Where that fails now they go when their store is opened next."""
        shares = [share for row in rows for share in row.shares]
        for name in store_names:
            keys = [key for share in shares if share.store_name == name for key in share.fragments]
            if keys:
                self._contents.keepers[name].join(dropping(keys))

    def _put_new(self, row: EntityRow) -> None:
        for index, share in enumerate(row.shares):
            for key in share.fragments:
                self._contents.keepers[share.store_name].counters[key] = _first_counters(index)
        self._contents.entities.put(row)


class _Planned:
    """A store while several entities are being placed at once."""

    def __init__(self, keeper: StoreKeeper) -> None:
        self.keeper = keeper
        self.name = keeper.name
        self.url = keeper.url
        self.is_open = keeper.is_open
        self.fragment_count = keeper.fragment_count

    def share(self, *, has_dead_letters: bool) -> Share:
        next_key = self.keeper.store.next_fragment_key
        self.fragment_count += 2 if has_dead_letters else 1
        return Share(self.name, next_key(), next_key() if has_dead_letters else NO_FRAGMENT)


def _topics_first(wanted: Sequence[NewEntity]) -> list[NewEntity]:
    """The others keep their order."""
    return sorted(wanted, key=lambda new: isinstance(new.description, SubscriptionDescription))


def _creating(rows: Sequence[EntityRow], store_name: str) -> Join:
    """Their fragments in one store."""

    def join(batch: CommitBatch) -> None:
        for row in rows:
            path = row.description.path
            for index, share in enumerate(row.shares):
                if share.store_name == store_name:
                    owners = (path, f"{path}/{DEAD_LETTER_KEYWORD}")
                    for key, owner in zip(share.fragments, owners, strict=False):
                        batch.fragments_created.append(FragmentRow(key, owner, index, _first_counters(index)))

    return join


def _first_counters(fragment_index: int) -> Counters:
    counters = Counters()
    counters.last_counter = first_number_base(fragment_index)
    return counters
