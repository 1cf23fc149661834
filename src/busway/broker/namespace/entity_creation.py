"""How entities come.

Theory of operation. The fragments of new entities are committed in their stores before the catalogue's home has rows
that name them, and only then memory knows them. What a crash leaves between the two belongs to nobody and is dropped
when its store is opened next. The fragments of a topic's subscriptions lie beside its own. A partitioned entity has
fragments in several stores, all under one row (P-60): it is created when all of these are in service, or not at all.
"""

from collections.abc import Sequence
from dataclasses import replace

from busway.broker.forward.send_via import transfer_description, transfer_key
from busway.broker.namespace.catalogue_rows import NO_FRAGMENT, EntityRow, Share
from busway.broker.namespace.contents import Join, NamespaceContents, dropping
from busway.broker.namespace.entity_checks import check_forward_targets, check_new_entities, is_topic
from busway.broker.namespace.placement import choose_store, spread_over
from busway.broker.namespace.rule_beginnings import beginnings_of_new, last_published, note_beginnings
from busway.broker.namespace.rule_checks import check_new_rules
from busway.broker.namespace.rule_rows import RuleRow
from busway.broker.store_keeper import StoreKeeper
from busway.model.description_checks import check_creation, with_fragments
from busway.model.descriptions import Description, NewEntity, SubscriptionDescription, never_idle
from busway.model.entity_path import DEAD_LETTER_KEYWORD, path_key, shown, topic_key_of
from busway.model.errors import ServerBusy
from busway.model.sas_keys import completed_rules
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, TrueFilter
from busway.store.contract import CommitBatch, Counters, FragmentRow, StoreError, first_number_base


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
